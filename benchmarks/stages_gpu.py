"""What each part of the device engine brings: one SEIR, from a Python loop over agents to two narrow kernels.

    python benchmarks/stages_gpu.py [--stage NAME …] [--agents N …] [--device cpu] [--out RESULT.json]

    loop        agents as Python objects, one after another, on the CPU
    tensors     all agents at once, every operation plain torch, launched one by one
    kernels     draws and sums over neighbours as denizen's own kernels
    fused       taken apart and compiled: one pass over the agents and one sum over all edges; 32-bit state and counters
    captured    the same in CUDA graphs
    active      sums go over the lists of active senders
    narrow      state, and the counters of sums, in bytes

Each stage gives the same epidemic, bit for bit but for the loop; that is checked before it is timed. Milliseconds a
step over 100 steps from the start (the loop: one step of 2,000 agents, scaled up). On a CPU the first four stages run.
"""

import argparse
import contextlib
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import _cuda
import torch
from _turns import turn
from simulate_gpu import SEIR, STEPS
from torch import Tensor

import denizen as dz
from denizen import ops
from denizen.run import Run, _neighbour_sums

STAGES = ("loop", "tensors", "kernels", "fused", "captured", "active", "narrow")
# What is compiled and captured: (which way sums go, whether state and counters are bytes).
FORMS = {"fused": ("pull", False), "captured": ("pull", False), "active": ("push", False), "narrow": ("push", True)}


class WidePeople(dz.State):
    """Days since infection, in 32 bits."""

    day: Tensor = dz.count("agents")


class WideSEIR(SEIR):
    """The same epidemic without bytes."""

    def init(self, rng: dz.rng.Rng) -> WidePeople:  # type: ignore[override]
        """A share infectious."""
        return WidePeople(day=6 * rng.bernoulli("seed", self.share).to(torch.int32))

    def step(self, now: WidePeople, rng: dz.rng.Rng) -> WidePeople:  # type: ignore[override]
        """Infection along contacts."""
        never, sick = (now.day == 0).to(torch.int8), ((now.day >= 6) & (now.day <= 12)).to(torch.int8)
        caught = rng.event("catch", self.infect_rate * self.contacts.sum(sick, where=never))
        return now.replace(day=torch.where(now.day > 0, (now.day + 1).clamp(max=13), caught.to(torch.int32)))

    @dz.series
    def susceptible(self, now: WidePeople) -> Tensor:  # type: ignore[override]
        """Not yet infected."""
        return (now.day == 0).sum()


def loop(agents: int) -> float:
    """Milliseconds of a step of agents as Python objects."""
    few = 2000
    contacts = [[random.randrange(few) for _ in range(10)] for _ in range(few)]
    days = [6 if random.random() < 0.05 else 0 for _ in range(few)]
    best = float("inf")
    for _ in range(3):
        began, new = time.perf_counter(), []
        for agent in range(few):
            day = days[agent]
            if day == 0:
                ill = sum(6 <= days[other] <= 12 for other in contacts[agent])
                new.append(1 if random.random() < 1 - 0.97**ill else 0)
            else:
                new.append(min(day + 1, 13))
        best = min(best, time.perf_counter() - began)
    return best * 1e3 * agents / few


def eager(model: SEIR, device: str) -> Run:
    """Plain steps, launched one by one."""
    return dz.simulate(model, STEPS, seed=1, device=device, compile=False)


def compiled(graph: dz.Graph, device: str, way: str, narrow: bool) -> Run:
    """Taken apart and compiled, on a GPU in CUDA graphs; sums one way, all of it in bytes or in 32 bits."""
    known = _neighbour_sums._is_mask
    _neighbour_sums._is_mask = known if narrow else lambda node, masks: False
    try:
        with ops.direction(way):
            return dz.simulate((SEIR if narrow else WideSEIR)(graph), STEPS, seed=1, device=device, compile=True)
    finally:
        _neighbour_sums._is_mask = known


def stepped(run: Run) -> float:
    """Milliseconds of a step by plain calls, from the start on."""
    run_state = run._stepper.start()
    with torch.no_grad(), turn():
        run._stepper.advance(run_state, {})  # what is done once
        synchronize(run)
        began = time.perf_counter()
        for _ in range(STEPS):
            run_state.bad = None
            run_state, _ = run._stepper.advance(run_state, {})
        synchronize(run)
    return (time.perf_counter() - began) / STEPS * 1e3


def launched(run: Run) -> float:
    """Milliseconds of a step of the compiled pieces, launched from Python."""
    assert run._capture is not None
    chunks, start = run._capture._chunks, run._stepper.start()
    start.bad = torch.zeros_like(run._run_state.bad)
    with torch.no_grad(), turn():
        chunks.forget()
        chunks.load(start)
        synchronize(run)
        began = time.perf_counter()
        for count in (chunks.longest, STEPS - chunks.longest):
            chunks.steps(count)
        synchronize(run)
        seconds = time.perf_counter() - began
        chunks.forget()
    return seconds / STEPS * 1e3


def synchronize(run: Run) -> None:
    """Wait for the device."""
    if run.device.type == "cuda":
        torch.cuda.synchronize()


def measured(stage: str, graph: dz.Graph, device: str, expected: Tensor, made: dict[Any, Run]) -> float:
    """Milliseconds of a step of a stage, checked first; `made` keeps what two stages share."""
    if stage == "loop":
        return loop(graph.num_agents)
    if stage in FORMS:
        form = FORMS[stage]
        run = made.get(form) or compiled(graph, device, *form)
        made[form] = run
    elif stage == "tensors":
        with ops.reference_only():
            run = eager(WideSEIR(graph), device)
    else:
        run = eager(WideSEIR(graph), device)
    assert torch.equal(run["susceptible"], expected), stage
    if stage not in FORMS or run._capture is None:
        with ops.reference_only() if stage == "tensors" else contextlib.nullcontext():
            return stepped(run)
    with ops.direction(FORMS[stage][0]):
        return launched(run) if stage == "fused" else _cuda.replay_ms(run, STEPS)


def main() -> None:
    """Check, time, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--agents", nargs="+", type=int, default=[37_518, 1_000_000, 8_400_000])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    result: dict[str, Any] = {**_cuda.facts(given.device), "ms": {}}
    began = time.perf_counter()
    for agents in given.agents:
        graph = _cuda.random_graph(agents, 10, device=given.device)
        expected, made = eager(SEIR(graph), given.device)["susceptible"], dict[Any, Run]()
        for stage in given.stage:
            if given.device == "cpu" and STAGES.index(stage) > STAGES.index("fused"):
                print(f"{agents:>11,} {stage:9s} needs a GPU", flush=True)
                continue
            ms = result["ms"][f"{agents:,} {stage}"] = measured(stage, graph, given.device, expected, made)
            print(f"{agents:>11,} {stage:9s}{ms:14.4f} ms/step{time.perf_counter() - began:8.1f} s", flush=True)
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
