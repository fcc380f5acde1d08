"""Fields on cells on a card: Life, fire and diffusion to 100 million cells; checks first, then times, under 40 s.

    python benchmarks/raster_gpu.py [--device cpu] [--most 100000000] [--out RESULT.json]

Checked: captured steps give the fields of eager steps on the CPU, bit for bit; sums over neighbours those of the graph
of the same neighbours; the total of a diffusing field keeps to the last bit. Timed: nanoseconds a cell and step of the
captured run, launches a step, the longest kernels, and the share of the card's copy rate, if each field were read and
written once: 2 bytes a cell for Life and fire, 8 for diffusion. "padded" is Life with neighbours looked up in a padded
copy, as on a CPU, and not by index.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import _cuda
import torch
from torch import Tensor

import denizen as dz
from denizen.space import Grid, _stencil
from denizen.zoo.forest_fire import forest_fire
from denizen.zoo.life import life

SMALL, FIRST = 300, 40  # side and steps of what is compared with the CPU


class Ground(dz.State):
    """How warm each cell is."""

    heat: Tensor = dz.real("cells")


class Heat(dz.Model):
    """Diffusion alone."""

    grid: Grid
    num_agents: int = 0

    def init(self, rng: dz.rng.Rng) -> Ground:
        """At random."""
        return Ground(heat=rng.on("cells", self.grid.num_cells).uniform("heat"))

    def step(self, now: Ground, rng: dz.rng.Rng) -> Ground:
        """A tenth to each of four neighbours."""
        return now.replace(heat=self.grid.diffuse(now.heat, 0.1, max=1.0))

    @dz.series
    def total(self, now: Ground) -> Tensor:
        """Of all cells; exact, since they hold whole units and a double has room."""
        return now.heat.sum(dtype=torch.float64)


def model(name: str, side: int) -> dz.Model:
    """A model on a square."""
    if name == "heat":
        return Heat(Grid((side, side), neighbours="von_neumann"))
    return forest_fire(rows=side, columns=side) if name == "fire" else life(rows=side, columns=side)


def field(run: dz.run.Run) -> Tensor:
    """What lies on the cells, on the CPU."""
    state: Any = run.state
    (held,) = [getattr(state, name) for name in state.kinds]
    return (held if isinstance(held, Tensor) else held.value).cpu()


def checked(name: str, device: str) -> None:
    """Compare a small run with eager steps of the CPU; raise where they differ."""
    small = model(name, SMALL)
    known = dz.simulate(small, FIRST, seed=1, device="cpu", compile=False)
    found = dz.simulate(small, FIRST, seed=1, device=device, compile=device == "cuda")
    assert torch.equal(field(found), field(known)), f"{name}: cells differ from those of the CPU"
    if name == "heat":
        assert found["total"][:, 1:].unique().numel() == 1, "heat is lost"


def sums(device: str) -> None:
    """Compare sums with those of the graph; raise where they differ."""
    for torus in (True, False):
        for neighbours in ("moore", "von_neumann"):
            grid = Grid((60, 70), torus=torus, neighbours=neighbours, radius=2)
            graph, values = grid.graph().to(device), torch.randn(4200, device=device)
            mask = (values > 0).to(torch.int8)
            assert torch.equal(grid.sum(mask), graph.sum(mask))
            assert torch.equal(grid.sum(values, max=8.0), graph.sum(values, max=8.0))
            assert torch.equal(grid.sum(values), graph.sum(values))


def timed(name: str, side: int, rate: float, padded: bool = False) -> dict[str, Any]:
    """A captured run, measured."""
    look = _stencil.Stencils._look
    if padded:
        _stencil.Stencils._look = _stencil.Stencils._padded  # type: ignore[method-assign]
    try:
        began = time.perf_counter()
        run = _cuda.captured(model(name, side))
        started = time.perf_counter() - began
        ms = _cuda.replay_ms(run, 30, 3)
        launches, _, top = _cuda.kernels(run, steps=8, skip=8)
    finally:
        _stencil.Stencils._look = look  # type: ignore[method-assign]
    floor = (8 if name == "heat" else 2) * side**2 / rate * 1e3
    return {
        "cells": side**2,
        "ms_per_step": round(ms, 4),
        "ns_per_cell_step": round(ms * 1e6 / side**2, 5),
        "share_of_copy_rate": round(floor / ms, 3),
        "launches": round(launches, 1),
        "longest": top,
        "start_s": round(started, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--most", type=int, default=100_000_000, help="cells of the largest grid (default 10^8)")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    args = parser.parse_args()
    began = time.perf_counter()
    result: dict[str, Any] = {**_cuda.facts(args.device)}
    sums(args.device)
    for name in ("life", "fire", "heat"):
        checked(name, args.device)
    result["checks"] = "bits of the CPU and of the graph"
    print(json.dumps(result), flush=True)
    if args.device == "cpu":
        for name in ("life", "fire", "heat"):
            run = dz.simulate(model(name, 1000), 2, device="cpu", compile=False)
            started = time.perf_counter()
            run.extend(5)
            result[name] = {"ns_per_cell_step": round((time.perf_counter() - started) / 5 * 1e3, 2)}
    else:
        rate = _cuda.copy_rate()
        result["copy_rate"] = f"{rate / 1e12:.2f} TB/s"
        large = int(args.most**0.5)
        for name, side, padded in (
            ("life", 1000, False),
            ("life", large, False),
            ("life", large, True),
            ("fire", large, False),
            ("heat", large, False),
        ):
            what = f"{name} {side} x {side}{', padded' if padded else ''}"
            result[what] = timed(name, side, rate, padded)
            print(what, json.dumps(result[what]), flush=True)
            torch.cuda.empty_cache()
    result["seconds"] = round(time.perf_counter() - began, 1)
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
