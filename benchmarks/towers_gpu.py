"""Times the towers of a small policy (`ops.mlp`) on CUDA, and looks for the best tiles.

    python benchmarks/towers_gpu.py [--sweep]

Prints microseconds of values and gradients of two towers of 64-64 tanh with heads of 2 and 1 at the sizes of PPO on
CartPole, and on Breakout (400 bytes), after a comparison with float64. With --sweep of several tiles.
"""

import argparse
import itertools
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

FEW, MANY = (64, 4096), (2048, 131_072)  # rows of a step of the rollout, of a minibatch
NARROW, WIDE = 4, 400  # inputs


def tiles(rows: tuple[int, ...], warps: tuple[int, ...], **more: tuple[int, ...]) -> list[dict[str, int]]:
    """Every combination."""
    names = ("ROWS", "num_warps", *more)
    return [dict(zip(names, one, strict=True)) for one in itertools.product(rows, warps, *more.values())]


# What is set, number of inputs, rows, tiles, and of the gradients the numbers of programs.
SWEEP = [
    ("_FORWARD_FEW", NARROW, FEW, tiles((16, 32, 64), (4,)), None),
    ("_FORWARD", NARROW, MANY[1:], tiles((64,), (4,)) + tiles((128,), (4, 8)), None),
    ("_GRADIENTS", NARROW, MANY, tiles((16, 32), (4,)) + tiles((64, 128), (8,)), (132, 264, 528)),
    ("_WIDE_FEW", WIDE, FEW, tiles((32, 64), (4,), STEP=(64,)) + tiles((64,), (8,), STEP=(128,)), None),
    ("_WIDE", WIDE, MANY[1:], tiles((64,), (4,), STEP=(64,)) + tiles((128,), (4, 8), STEP=(64,)), None),
    ("_FIRST", WIDE, MANY[1:], tiles((32, 64), (8,), STEP=(128, 256), num_stages=(3,)), (33, 66)),
]  # fmt: skip


def made(
    rows: int, inputs: int, width: int = 64, heads: tuple[int, ...] = (2, 1)
) -> tuple[Tensor, list[Tensor], Tensor]:
    """(observations, weights, gradient of what comes out)."""
    torch.manual_seed(rows)
    weights = []
    for head in heads:
        for out, given in ((width, inputs), (width, width), (head, width)):
            weights += [torch.randn(out, given, device="cuda") / given**0.5, torch.randn(out, device="cuda") / 10]
    x = torch.randn(rows, inputs, device="cuda")
    x = (x > 1).to(torch.uint8) if inputs == WIDE else x
    return x, weights, torch.randn(rows, sum(heads), device="cuda") / rows


def check(tolerance: float) -> None:
    """Raise where values or gradients differ from those in float64, or from run to run."""
    for rows, inputs in itertools.product((1, 100, 5000, 131_072), (NARROW, WIDE)):
        x, weights, grad = made(rows, inputs)
        double = [weight.double() for weight in weights]
        with ops.reference_only():
            expected, first = ops.mlp(x if inputs == WIDE else x.double(), double, "tanh")
            slopes = _mlp.mlp_gradients(grad.double(), x, first, double, "tanh")
        found, first = ops.mlp(x, weights, "tanh")
        mine = _mlp.mlp_gradients(grad, x, first, weights, "tanh")
        far = [float((a - b).abs().max() / b.abs().max()) for a, b in ((found, expected), (mine, slopes))]
        print(f"  {rows} rows of {inputs}: off by {far[0]:.1e} and {far[1]:.1e} of the largest", flush=True)
        assert max(far) < tolerance, far
        assert torch.equal(mine, _mlp.mlp_gradients(grad, x, first, weights, "tanh"))


def us(rows: int, inputs: int, gradients: bool) -> float:
    """Median microseconds of a replayed graph."""
    x, weights, grad = made(rows, inputs)
    _, first = ops.mlp(x, weights, "tanh")

    def call() -> Any:
        return _mlp.mlp_gradients(grad, x, first, weights, "tanh") if gradients else ops.mlp(x, weights, "tanh")

    return round(do_bench_cudagraph(call, return_mode="median", rep=10) * 1e3, 2)


def sweep() -> None:
    """Times of every candidate."""
    for name, inputs, rows, candidates, programs in SWEEP:
        before, told = getattr(_cuda_mlp, name), {}
        for tile in candidates:
            began, told = time.perf_counter(), {}
            setattr(_cuda_mlp, name, tile)
            try:
                for count, number in itertools.product(rows, programs or (0,)):
                    if number:
                        setattr(_cuda_mlp, "_PROGRAMS" if name == "_GRADIENTS" else "_FIRST_PROGRAMS", number)
                    told[f"{count}/{number}" if number else str(count)] = us(count, inputs, programs is not None)
            except Exception as error:  # what a tile does not fit into, of many types
                told[type(error).__name__] = str(error)[:80]
            print(f"  {name} {tile}: {told}  [{time.perf_counter() - began:.1f} s]", flush=True)
        setattr(_cuda_mlp, name, before)


def main() -> None:
    """Check and time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweep", action="store_true")
    swept = parser.parse_args().sweep
    print(torch.cuda.get_device_name(), torch.__version__)
    for tf32, tolerance in ((False, 1e-4), (True, 1e-2)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        print("TF32" if tf32 else "float32")
        try:
            check(tolerance)
        except AssertionError as error:
            print("WRONG", error)
        for inputs, rows in itertools.product((NARROW, WIDE), (*FEW, *MANY)):
            print(
                f"  {rows} rows of {inputs}: values {us(rows, inputs, False)} us, gradients {us(rows, inputs, True)} us"
            )
    if swept:
        sweep()


if __name__ == "__main__":
    main()
