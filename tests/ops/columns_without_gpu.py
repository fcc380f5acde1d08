"""Assembles kernels that store columns side by side for an H100 on a machine without one; run as a script.

Columns of numbers at hand, of what is summed in the same kernel, and of a part beside others. Prints how many kernels
there are.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "run"))

import torch
import without_gpu
from torch import Tensor
from torch.fx import symbolic_trace

from denizen import ops


def at_hand(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x[:, :1] + y[:, :1], x[:, 1:2] * y[:, :1], x[:, :1].sin(), y[:, :1].exp()], 1)


def of_sums(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    first, second = x.sum(1, True), (x * y).sum(1, True)
    return torch.cat([first * 2, second + 1, first * second, first - second], 1), x + y


def beside_others(x: Tensor, y: Tensor) -> Tensor:
    """What lies beyond the columns is asked for one by one as well; those who ask for it are masked there."""
    both = torch.cat([torch.cat([x[:, :1] + y[:, :1], x[:, 1:2] * y[:, :1]], 1), x[:, :2].sin()], 1)
    return both[:, 0] + both[:, 3] * both[:, 2]


if __name__ == "__main__":
    without_gpu.pretend()
    assert ops.fuse_draws()
    for function in (at_hand, of_sums, beside_others):
        code = without_gpu.written(symbolic_trace(function), [torch.rand(3, 5000), torch.rand(3, 5000)])
        with tempfile.TemporaryDirectory() as folder:
            kernels = {name for name, _, _ in without_gpu.assembled(code, Path(folder))}
        print(function.__name__, len(kernels), "joined" if "tl.join" in code else "apart")
