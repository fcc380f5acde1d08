"""Times the towers of a small policy (`kernels.mlp`) on CUDA, and looks for the best tiles.

    python benchmarks/towers_gpu.py [--sweep PROCESSES]

Prints microseconds of values and gradients of two towers of 64-64 tanh with heads of 2 and 1 at the sizes of PPO on
CartPole, and on Breakout (400 bytes), after a comparison with float64. With --sweep first those of several tiles.
"""

import argparse
import itertools
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from torch import Tensor
from triton.testing import do_bench_cudagraph

from denizen import ops
from denizen.nn import kernels
from denizen.nn.kernels import _cuda_mlp, _mlp

FEW, MANY = (64, 4096), (2048, 131_072)  # rows of a step of the rollout, of a minibatch
NARROW, WIDE = 4, 400  # inputs


def tiles(*names: str) -> list[dict[str, int]]:
    """Tiles by their names: rows/warps, and of wide inputs /columns/stages, at last registers of a thread."""
    keys = ("ROWS", "num_warps", "STEP", "num_stages", "maxnreg")
    return [dict(zip(keys, (int(number) for number in name.split("/")), strict=False)) for name in names]


# What is set, number of inputs, rows, tiles, and of the gradients the numbers of programs.
SWEEP = [
    ("_FIRST", WIDE, MANY[1:], tiles("64/8/128/3", "64/8/128/2", "32/8/128/3", "64/8/128/3/128"), (33, 66)),
    ("_FIRST", WIDE, MANY[1:], tiles("64/4/64/3", "64/8/64/3/128", "32/8/128/4/128", "64/8/256/2"), (33, 66, 132)),
    ("_GRADIENTS", NARROW, MANY, tiles("16/4", "32/4", "64/8", "128/8"), (132, 264)),
    ("_WIDE", WIDE, MANY[1:], tiles("64/4/64/3", "128/4/64/3", "128/8/64/3", "128/8/64/4"), None),
    ("_WIDE", WIDE, MANY[1:], tiles("256/8/64/3", "128/8/128/3", "128/8/64/3/96"), None),
    ("_FORWARD_FEW", NARROW, FEW, tiles("16/4", "32/4", "64/4", "32/2", "16/2"), None),
    ("_WIDE_FEW", WIDE, FEW, tiles("32/4/64/3", "64/4/64/3", "64/8/64/3", "64/4/128/3", "32/4/128/3"), None),
    ("_FORWARD", NARROW, MANY[1:], tiles("64/4", "128/4", "128/8"), None),
    ("_GRADIENTS", WIDE, MANY[1:], tiles("16/4", "32/4", "64/8", "128/8"), (132, 264)),
]


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
            expected, first = kernels.mlp(x if inputs == WIDE else x.double(), double, "tanh")
            slopes = _mlp.mlp_gradients(grad.double(), x, first, double, "tanh")
        found, first = kernels.mlp(x, weights, "tanh")
        mine = _mlp.mlp_gradients(grad, x, first, weights, "tanh")
        far = [float((a - b).abs().max() / b.abs().max()) for a, b in ((found, expected), (mine, slopes))]
        print(f"  {rows} rows of {inputs}: off by {far[0]:.1e} and {far[1]:.1e} of the largest", flush=True)
        assert max(far) < tolerance, far
        assert torch.equal(mine, _mlp.mlp_gradients(grad, x, first, weights, "tanh"))


def run(rows: int, inputs: int, gradients: bool) -> Any:
    """A call of the operation."""
    x, weights, grad = made(rows, inputs)
    _, first = kernels.mlp(x, weights, "tanh")
    if gradients:
        return lambda: _mlp.mlp_gradients(grad, x, first, weights, "tanh")
    return lambda: kernels.mlp(x, weights, "tanh")


def us(rows: int, inputs: int, gradients: bool) -> float:
    """Median microseconds of a replayed graph."""
    return round(do_bench_cudagraph(run(rows, inputs, gradients), return_mode="median", rep=10) * 1e3, 2)


def called(case: tuple[Any, ...], tile: dict[str, int], timed: bool = False) -> dict[str, Any]:
    """Times with a tile, or none: run once, so that the kernel is compiled."""
    name, inputs, rows, _, programs = case
    torch.backends.cuda.matmul.allow_tf32 = True
    before, told = {one: getattr(_cuda_mlp, one) for one in (name, "_PROGRAMS", "_FIRST_PROGRAMS")}, {}
    setattr(_cuda_mlp, name, tile)
    try:
        for count, number in itertools.product(rows, programs or (0,)):
            if number:
                setattr(_cuda_mlp, "_PROGRAMS" if name == "_GRADIENTS" else "_FIRST_PROGRAMS", number)
            label = f"{count}/{number}" if number else str(count)
            told[label] = (
                us(count, inputs, programs is not None) if timed else run(count, inputs, programs is not None)()
            )
    except Exception as error:  # what a tile does not fit into, of many types
        told[type(error).__name__] = str(error)[:80]
    for one, value in before.items():
        setattr(_cuda_mlp, one, value)
    return told if timed else {}


def sweep(processes: int) -> None:
    """Times of every candidate; all are compiled at once by as many processes, which share Triton's cache."""
    work = [(case, tile) for case in SWEEP for tile in case[3]]
    began = time.perf_counter()
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        list(pool.map(called, *zip(*work, strict=True)))
    print(f"compiled {len(work)} in {time.perf_counter() - began:.0f} s", flush=True)
    for case, tile in work:
        print(
            f"  {case[0]} of {case[1]} {'/'.join(map(str, tile.values()))}: {called(case, tile, timed=True)}",
            flush=True,
        )


def main() -> None:
    """Check and time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweep", type=int, default=0, metavar="PROCESSES", help="times tiles, compiled by so many")
    swept = parser.parse_args().sweep
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    if swept:
        sweep(swept)
    for tf32, tolerance in ((True, 1e-2), (False, 1e-4)):
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


if __name__ == "__main__":
    main()
