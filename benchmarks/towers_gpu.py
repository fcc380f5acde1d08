"""Times the towers of a small policy (`ops.mlp`) on CUDA, and looks for the best tiles.

    python benchmarks/towers_gpu.py [--sweep]

Prints microseconds of values and gradients of two towers of 64-64 tanh with heads of 2 and 1 at the sizes of PPO on
CartPole, after a comparison with float64. With --sweep each of several tiles, with what the compiler made of it.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from torch import Tensor
from triton.testing import do_bench_cudagraph

from denizen import ops
from denizen.ops import _cuda_mlp, _mlp

ROWS = {"rollout": (64, 4096), "update": (2048, 131_072)}
FORWARD = [
    {"ROWS": rows, "num_warps": warps} for rows, warps in ((16, 2), (16, 4), (32, 4), (64, 4), (64, 8), (128, 8))
]
GRADIENTS = [
    {"ROWS": rows, "num_warps": warps} for rows, warps in ((16, 4), (32, 4), (32, 8), (64, 4), (64, 8), (128, 8))
]
PROGRAMS = (132, 264, 528)


def made(
    rows: int, inputs: int = 4, width: int = 64, heads: tuple[int, ...] = (2, 1)
) -> tuple[Tensor, list[Tensor], Tensor]:
    """(observations, weights, gradient of what comes out)."""
    torch.manual_seed(rows)
    weights = []
    for head in heads:
        for out, given in ((width, inputs), (width, width), (head, width)):
            weights += [torch.randn(out, given, device="cuda") / given**0.5, torch.randn(out, device="cuda") / 10]
    return torch.randn(rows, inputs, device="cuda"), weights, torch.randn(rows, sum(heads), device="cuda") / rows


def check(tolerance: float) -> None:
    """Raise where values or gradients differ from those in float64, or from run to run."""
    for rows in (1, 100, 5000, 131_072):
        x, weights, grad = made(rows)
        wide = [weight.double() for weight in weights]
        with ops.reference_only():
            expected, slopes = (
                ops.mlp(x.double(), wide, "tanh"),
                _mlp.mlp_gradients(grad.double(), x.double(), wide, "tanh"),
            )
        found, mine = ops.mlp(x, weights, "tanh"), _mlp.mlp_gradients(grad, x, weights, "tanh")
        far = [float((a - b).abs().max() / b.abs().max()) for a, b in ((found, expected), (mine, slopes))]
        print(f"  {rows} rows: off by {far[0]:.1e} and {far[1]:.1e} of the largest", flush=True)
        assert max(far) < tolerance, far
        assert torch.equal(mine, _mlp.mlp_gradients(grad, x, weights, "tanh"))


def us(function: Any) -> float:
    """Median microseconds of a replayed graph of the call."""
    return round(do_bench_cudagraph(function, return_mode="median", rep=10) * 1e3, 2)


def swept(kind: str, candidates: list[dict[str, int]]) -> None:
    """Times of every candidate."""
    for tile in candidates:
        began = time.perf_counter()
        try:
            if kind == "forward":
                _cuda_mlp._FORWARD = _cuda_mlp._FORWARD_FEW = tile
                told = {}
                for rows in (*ROWS["rollout"], *ROWS["update"]):
                    x, weights, _ = made(rows)
                    told[str(rows)] = us(lambda: ops.mlp(x, weights, "tanh"))  # noqa: B023
            else:
                _cuda_mlp._GRADIENTS, told = tile, {}
                for rows in ROWS["update"]:
                    x, weights, grad = made(rows)
                    for programs in PROGRAMS:
                        _cuda_mlp._PROGRAMS = programs
                        told[f"{rows}/{programs}"] = us(lambda: _mlp.mlp_gradients(grad, x, weights, "tanh"))  # noqa: B023
        except Exception as error:  # what a tile does not fit into, of many types
            told = {type(error).__name__: str(error)[:80]}
        print(f"  {kind} {tile}: {told}  [{time.perf_counter() - began:.1f} s]", flush=True)


def main() -> None:
    """Check and time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweep", action="store_true")
    sweep = parser.parse_args().sweep
    print(torch.cuda.get_device_name(), torch.__version__)
    for tf32, tolerance in ((False, 1e-4), (True, 1e-2)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        print("TF32" if tf32 else "float32")
        check(tolerance)
        for rows in (*ROWS["rollout"], *ROWS["update"]):
            x, weights, grad = made(rows)
            told = [us(lambda: ops.mlp(x, weights, "tanh")), us(lambda: _mlp.mlp_gradients(grad, x, weights, "tanh"))]  # noqa: B023
            print(f"  {rows} rows: values {told[0]} us, gradients {told[1]} us", flush=True)
    if sweep:
        swept("forward", FORWARD)
        swept("gradients", GRADIENTS)


if __name__ == "__main__":
    main()
