"""What each part of the device engine brings: one SEIR, from a Python loop over agents to two narrow kernels.

    python benchmarks/stages_gpu.py [--stage NAME …] [--agents N …] [--out RESULT.json]

Each stage gives the same epidemic; that is checked before it is timed. Milliseconds a step over 100 steps (the loop:
one step of 2,000 agents, scaled up).
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import _cuda
import torch
from simulate_gpu import SEIR, STEPS

import denizen as dz
from denizen import ops
from denizen.run import Run, _accumulate


def loop(model: SEIR) -> float:
    """Agents as Python objects, one after another, on the CPU."""
    agents = 2000
    contacts = [[random.randrange(agents) for _ in range(10)] for _ in range(agents)]
    days = [6 if random.random() < 0.05 else 0 for _ in range(agents)]
    began = time.perf_counter()
    new = []
    for agent in range(agents):
        day = days[agent]
        if day == 0:
            ill = sum(6 <= days[other] <= 12 for other in contacts[agent])
            new.append(1 if random.random() < 1 - 0.97**ill else 0)
        else:
            new.append(min(day + 1, 13))
    return (time.perf_counter() - began) * 1e3 * model.num_agents / agents


def eager(model: SEIR) -> Run:
    """Plain steps, launched one by one."""
    return dz.simulate(model, STEPS, seed=1, device="cuda", compile=False)


def tensors(model: SEIR) -> Run:
    """Tensors for all agents, every operation as plain torch."""
    with ops.reference_only():
        return eager(model)


def captured(model: SEIR, way: str, narrow: bool) -> Run:
    """Taken apart, compiled, in CUDA graphs; sums one way, counted in bytes or not."""
    wide = _accumulate._is_mask
    _accumulate._is_mask = wide if narrow else lambda node, masks: False
    try:
        with ops.direction(way):
            return dz.simulate(model, STEPS, seed=1, device="cuda", compile=True)
    finally:
        _accumulate._is_mask = wide


STAGES: dict[str, Callable[[SEIR], Any]] = {
    "loop": loop,
    "tensors": tensors,
    "own kernels": eager,
    "compiled": lambda model: captured(model, "pull", False),
    "captured": lambda model: captured(model, "pull", False),
    "active senders": lambda model: captured(model, "push", False),
    "narrow": lambda model: captured(model, "push", True),
}


def launched(run: Run) -> float:
    """A step of the compiled pieces, launched from Python."""
    assert run._capture is not None
    chunks = run._capture._chunks
    with torch.no_grad(), ops.direction("pull"):
        chunks.load(run._carry)
        torch.cuda.synchronize()
        began = time.perf_counter()
        chunks.steps(64)
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / 64 * 1e3


def milliseconds(run: Run, stage: str) -> float:
    """A step from the start on, without what is done once."""
    if stage == "compiled":
        return launched(run)
    if run._capture is not None:
        with ops.direction("pull" if stage == "captured" else "push"):
            return _cuda.replay_ms(run, STEPS)
    carry, torch_sync = run._stepper.start(), torch.cuda.synchronize
    with torch.no_grad():
        torch_sync()
        began = time.perf_counter()
        for _ in range(STEPS):
            carry.bad = None
            carry, _ = run._stepper.advance(carry, {})
        torch_sync()
    return (time.perf_counter() - began) / STEPS * 1e3


def main() -> None:
    """Check, time, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stage", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--agents", nargs="+", type=int, default=[37_518, 1_000_000])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    result: dict[str, Any] = {**_cuda.facts(), "ms": {}}
    for agents in arguments.agents:
        model = SEIR(_cuda.random_graph(agents, 10))
        expected = eager(model)["susceptible"]
        for stage in arguments.stage:
            made = STAGES[stage](model)
            if isinstance(made, Run):
                assert torch.equal(made["susceptible"], expected), stage
                made = milliseconds(made, stage)
            result["ms"][f"{agents:,} {stage}"] = made
            print(f"{agents:>11,} {stage:16s}{made:12.4f} ms/step", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
