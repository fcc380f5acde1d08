# ruff: noqa: B023  # timed closures run at once
"""Checks every op on CUDA against the CPU reference, bit for bit, then times it at three sizes.

    python benchmarks/ops_gpu.py

Prints a table of microseconds and the share of the measured copy rate.
"""

import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch

import denizen as dz
from denizen import ops
from denizen.space.generators import random_in_neighbours


def check() -> None:
    """Raise where a bit differs."""
    generator = torch.Generator().manual_seed(0)
    empty = torch.empty(0, dtype=torch.int64)
    for n, worlds in itertools.product((1, 3, 4, 1023, 1025, 5000), (1, 3)):
        key = torch.tensor([[7, w] for w in range(worlds)])
        step = torch.tensor(11)
        spread = torch.rand(worlds, n, generator=generator) * 40 * (torch.rand(worlds, n, generator=generator) < 0.5)
        spread[:, : n // 3] = 10 ** (torch.rand(worlds, n // 3, generator=generator) * 14 - 11)
        probs = torch.rand(worlds, n, generator=generator)
        for ids in (
            empty,
            torch.randperm(n, generator=generator)[None],
            torch.randint(0, 2**61, (worlds, n), generator=generator),
        ):
            for values, hazard in ((spread, True), (probs, False)):
                same(ops.draw_mask, values, hazard, ids, key, step, 123456789)
            same(ops.draw_words, ids, n, key, step, 4000000000)
    for n, worlds, weighted in itertools.product((40, 3000), (1, 3), (False, True)):
        graph = dz.Graph.from_edges(random_in_neighbours(n, 8, seed=n))
        if weighted:
            graph = graph.with_weight(torch.rand(graph.num_edges, generator=generator))
        arrays = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx)
        masks = (torch.rand(worlds, n, generator=generator) < 0.3).to(torch.int8)
        reals = torch.rand(worlds, n, generator=generator) * masks
        for where in (None, (torch.rand(1, n, generator=generator) < 0.5).to(torch.int8), 1 - masks):
            same(ops.sum_counts, masks, where, *arrays)
            same(ops.sum_counts, masks.to(torch.int32) * 7, where, *arrays)
            for values in (masks, reals, reals * 3, reals.masked_fill(reals > 0.99, float("nan"))):
                same(ops.sum_fixed, values, where, graph.weight, *arrays, graph.out_edge, 40, 1.0)
            same(ops.sum_real, reals, where, graph.weight, *arrays, graph.out_edge)
    print("all ops: same bits on CUDA as the CPU reference")


def same(op, *args) -> None:
    """Run an op on both and compare."""
    with ops.reference_only():
        expected = op(*args)
    got = op(*(a.cuda() if isinstance(a, torch.Tensor) else a for a in args))
    for e, g in zip(*((x if isinstance(x, tuple) else (x,)) for x in (expected, got)), strict=True):
        assert (
            torch.equal(e.nan_to_num(nan=-1), g.cpu().nan_to_num(nan=-1))
            if e.dtype.is_floating_point
            else torch.equal(e, g.cpu())
        ), (op, [a.shape if isinstance(a, torch.Tensor) else a for a in args], e.flatten()[:9], g.flatten()[:9])


def time_us(function) -> float:
    """Median microseconds of a replayed graph of the call."""
    from triton.testing import do_bench_cudagraph

    return do_bench_cudagraph(function, return_mode="median") * 1e3


def main() -> None:
    """Check, then time."""
    check()
    print(torch.cuda.get_device_name(), torch.__version__)
    empty = torch.empty(0, dtype=torch.int64, device="cuda")
    key, step = torch.tensor([[7, 0]], device="cuda"), torch.tensor(3, device="cuda")
    for n in (37_518, 1_000_000, 8_400_000):
        graph = dz.Graph.from_edges(random_in_neighbours(n, 10, seed=1)).to("cuda")
        arrays = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx)
        hazard = torch.rand(1, n, device="cuda")
        rare = hazard * (torch.rand(1, n, device="cuda") < 0.01)
        row = {"draw all": lambda: ops.draw_mask(hazard, True, empty, key, step, 5)}
        row["draw 1 %"] = lambda: ops.draw_mask(rare, True, empty, key, step, 5)
        for share in (0.01, 0.1, 0.3):
            mask = (torch.rand(1, n, device="cuda") < share).to(torch.int8)
            row[f"push {share:.0%}"] = lambda m=mask: ops.sum_counts(m, 1 - m, *arrays)
            row[f"fixed {share:.0%}"] = lambda m=mask: ops.sum_fixed(
                m * 0.5, 1 - m, None, *arrays, graph.out_edge, 40, 1.0
            )
        row["pull all"] = lambda: ops.sum_real(hazard, None, None, *arrays, graph.out_edge)
        print(n, {name: round(time_us(function), 1) for name, function in row.items()})


if __name__ == "__main__":
    main()
