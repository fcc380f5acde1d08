"""Compiles the kernels of the message steps for an H100 on a machine without one; prints their names.

As `tests/ops/compile_kernels.py` does for those of the ops.
"""

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))

from compile_kernels import compiled, pretend

from denizen.nn.kernels import _cuda_message_steps


def step(samples: int, times: int, width: int, dtype: torch.dtype, own: torch.dtype, rate: float) -> None:
    """A message step of 2 agents, forward and backward."""
    h = torch.zeros(2, samples * times, width, dtype=dtype)
    gain, wide, square = (
        torch.zeros(shape, dtype=own) for shape in ((width,), (2, width, 3 * width), (2, width, width))
    )
    bias, rows = torch.zeros(2, 2, dtype=own), torch.zeros(2, width, dtype=own)
    seed = torch.tensor([3]) if rate else None
    sizes = seed, times, width // 16, 1, rate, 1e-6
    weights = [gain, wide, gain, wide, bias, gain, square, rows, square, rows]
    _, between, qkvs, *matrices = _cuda_message_steps.forward(h, weights, *sizes, True)
    for place, matrix in zip((1, 3, 6, 8), matrices, strict=True):
        weights[place] = matrix
    _cuda_message_steps.backward(h, h, between, qkvs, weights, *sizes)


if __name__ == "__main__":
    pretend()
    step(1, 1, 16, torch.bfloat16, torch.float32, 0.1)  # sizes of 1 are constants to Triton
    step(3, 7, 32, torch.float16, torch.float16, 0.0)
    print(json.dumps(sorted(compiled)))
