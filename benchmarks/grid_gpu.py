"""Agents in cells on a card: Schelling at a million cells, and its parts; checks first, then times, under 40 s.

    python benchmarks/grid_gpu.py [--device cpu] [--side 1000] [--out RESULT.json]

Checked: six captured steps give the cells of eager steps on the CPU, bit for bit; no cell holds two agents; groups keep
their size; of 8 who want one free cell each wins an eighth of the time. Timed: milliseconds a step of the captured run
(need 8 of 24, four fifths of the cells taken, from a random start and later), launches a step, the longest kernels; and
microseconds of `settle`, `to_empty` and `best_visible` on their own, launched one by one.
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

import denizen as dz
from denizen.rng import Rng
from denizen.space import Grid
from denizen.zoo.schelling import schelling

FIRST = 6  # steps that are compared with the CPU's
SHARE = 0.8  # of the cells that are taken


def fairness(device: str) -> float:
    """Chi-square over its degrees of freedom of who of 8 wins a free cell, over 20,000 worlds."""
    grid, keys = Grid((4, 4)), torch.stack([torch.zeros(20_000).long(), torch.arange(20_000)], 1).to(device)
    cell, goal = torch.arange(8, device=device), torch.full((8,), 15, device=device)
    step = torch.zeros((), dtype=torch.int64, device=device)
    after = torch.vmap(lambda key: grid.settle(cell, goal, Rng(key, step, num=8)))(keys)
    won = (after == 15).sum(0).double()
    assert int(won.sum()) == 20_000
    return float(((won - 2500) ** 2 / 2500).sum()) / 7


def checked(run: Any, model: Any, device: str) -> dict[str, Any]:
    """Compare the first steps with eager ones of the CPU; raise where they differ."""
    known = dz.simulate(model, FIRST, seed=1, device="cpu", compile=False)
    assert torch.equal(run.state.cell.cpu(), known.state.cell), "cells differ from those of the CPU"
    assert torch.equal(run["unhappy"].cpu(), known["unhappy"]), "who is unhappy differs from the CPU"
    cells = run.state.cell[0]
    assert int(model.grid.occupants(cells).max()) == 1, "a cell holds two agents"
    assert int(run.state.second.sum()) == model.num_agents // 2, "a group has lost somebody"
    chi = fairness(device)
    assert chi < 4, f"winners are not equally likely: chi-square / 7 = {chi:.2f}"
    return {"bits": "equal to the CPU's", "fairness": round(chi, 2), "unhappy": known["unhappy"][0].tolist()}


def parts(model: Any, device: str) -> dict[str, float]:
    """Microseconds of single calls, launched one by one."""
    grid, agents = model.grid, model.num_agents
    key, step = torch.zeros(2, dtype=torch.int64, device=device), torch.zeros((), dtype=torch.int64, device=device)
    cell = torch.randperm(grid.num_cells, device=device)[:agents]
    target, who = torch.randint(0, grid.num_cells, (agents,), device=device), torch.rand(agents, device=device) < 0.2
    sugar = torch.randint(0, 5, (grid.num_cells,), device=device)
    lone = Grid(grid.shape, neighbours="von_neumann")

    def rng() -> Rng:
        return Rng(key, step, num=agents)

    calls = {
        "occupants": lambda: grid.occupants(cell),
        "settle": lambda: grid.settle(cell, target, rng()),
        "settle, 3 rounds": lambda: grid.settle(cell, target, rng(), rounds=3),
        "settle, capacity 2": lambda: grid.settle(cell, target, rng(), capacity=2),
        "to_empty": lambda: grid.to_empty(cell, who, rng()),
        "random_neighbour": lambda: grid.random_neighbour(cell, rng()),
        "best_visible, 6 far": lambda: lone.best_visible(sugar, cell, rng(), vision=6, most=6),
    }
    found = {}
    for name, call in calls.items():
        call()
        if device == "cuda":
            found[name] = round(_cuda.event_us(call, 5), 1)
        else:
            began = time.perf_counter()
            call()
            found[name] = round((time.perf_counter() - began) * 1e6, 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--side", type=int, default=1000, help="cells along a side (default 1000)")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    args = parser.parse_args()
    began = time.perf_counter()
    agents = int(args.side**2 * SHARE)
    model = schelling(args.side, args.side, num_agents=agents, radius=2, need=8)
    result: dict[str, Any] = {**_cuda.facts(args.device), "cells": args.side**2, "agents": agents}
    if args.device == "cuda":
        run = _cuda.captured(model)
    else:
        run = dz.simulate(model, FIRST, seed=1, device="cpu", compile=False)
    result["checks"] = checked(run, model, args.device)
    print(json.dumps(result), flush=True)
    if args.device == "cuda":
        result["ms_per_step"] = {f"first {steps}": round(_cuda.replay_ms(run, steps, 3), 4) for steps in (20, 100)}
        launches, busy, top = _cuda.kernels(run)
        result |= {"launches": round(launches, 1), "busy_ms": round(busy, 4), "longest": top}
        result["ns_per_agent_step"] = round(result["ms_per_step"]["first 100"] * 1e6 / agents, 3)
    else:
        started = time.perf_counter()
        run.extend(3)
        result["ms_per_step"] = round((time.perf_counter() - started) / 3 * 1e3, 2)
    result["us_of_parts"] = parts(model, args.device)
    result["seconds"] = round(time.perf_counter() - began, 1)
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
