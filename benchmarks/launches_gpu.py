"""What a step of each model and world of the zoo launches on a GPU; that it waits for nothing and allocates nothing.

    python benchmarks/launches_gpu.py [--names sir cartpole …] [--out RESULT.json]

Models run as `dz.simulate` captures them, worlds as `dz.train` does: the step with auto-reset compiled, 16 of them in a
CUDA graph. Counts are asserted, launches are printed; nothing is timed, so other work on the card does no harm. Most of
a row's seconds is its compilation.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import _cuda
import torch
from torch.profiler import ProfilerActivity, profile

import denizen as dz
from denizen.ops import fuse_draws
from denizen.perf.watch import allocations, graphs_compiled, sync_warnings
from denizen.run._stats import step_kernels
from denizen.zoo.covid import covid
from denizen.zoo.seir import seir
from denizen.zoo.sir import sir

STEPS = 16


def _graph() -> dz.Graph:
    return dz.Graph.from_edges(dz.space.generators.erdos_renyi(20_001, 10.0, seed=1))


def _city(**options: Any) -> dz.Model:
    return covid(dz.population.synthetic("astoria", 20_001, networks=["0"]), **options)


MODELS: dict[str, Callable[[], dz.Model]] = {
    "sir": lambda: sir(_graph()),
    "seir": lambda: seir(_graph()),
    "covid": _city,
    "covid, sampled deaths, isolation": lambda: _city(sample_deaths=True, isolation=0.2),
}


def model(name: str) -> dict[str, Any]:
    """Counts of a captured run."""
    run = dz.simulate(MODELS[name](), 80, seed=1, device="cuda", compile=True)
    told = run.stats(count=True)
    assert told["path"] == "captured", told
    found = {
        "launches": told["launches_per_step"],
        "host reads": told["host_reads"],
        "graphs": told["graphs"],
        "recompiles": told["recompiles"],
        "allocations": told["allocations_per_step"],
    }
    return {**found, "kernels": [kernel for kernel, *_ in step_kernels(run)]}


def actions(env: dz.Env, count: int, device: str, steps: int) -> Any:
    """Random actions of `steps` steps, each with a leading axis of them; of roles by name."""
    space = env.action_space
    if env.roles is not None:
        choices = {name: (role.count, role.action_space.n) for name, role in env.roles.items()}
        return [
            {name: torch.randint(0, n, (count, many), device=device) for name, (many, n) in choices.items()}
            for _ in range(steps)
        ]
    shape = (steps, count, *(() if env.num_actors is None else (env.num_actors,)), *space.shape)
    if isinstance(space, dz.rl.Discrete):
        return torch.randint(0, space.n, shape, device=device)
    return space.low + (space.high - space.low) * torch.rand(shape, device=device)


def world(name: str, count: int = 4096) -> dict[str, Any]:
    """Counts of captured steps of many worlds."""
    env = dz.zoo.entry(name).build()
    count = 64 if name == "control" else count  # a city each
    worlds = dz.rl.Worlds(env, count, device="cuda")
    worlds.reset()
    given, buffers = actions(env, count, "cuda", STEPS), worlds.run_state.clone().tensors()
    fuse_draws()
    before = graphs_compiled()
    worlds._advance.compile("inductor")

    def plain(tensors: list[torch.Tensor], action: torch.Tensor) -> tuple[list[torch.Tensor], Any]:
        run_state, step = worlds.advance(worlds.run_state_of(tensors), action)
        return run_state.tensors(), step

    advance = worlds.next_in_place if worlds.in_place else plain

    def chunk() -> None:
        tensors = buffers
        for action in given:
            tensors, _ = advance(tensors, action)
        pairs = [(old, new) for old, new in zip(buffers, tensors, strict=True) if old is not new]
        if pairs:
            torch._foreach_copy_(*[list(side) for side in zip(*pairs, strict=True)])

    with torch.no_grad():
        for _ in range(2):
            chunk()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            chunk()
    graph.replay()
    with sync_warnings() as waits, allocations(torch.device("cuda")) as memory:
        graph.replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        graph.replay()
        torch.cuda.synchronize()
    events = [event for event in seen.key_averages() if event.device_time_total]
    worlds.check(worlds.run_state_of(buffers))
    return {
        "launches": sum(event.count for event in events) / STEPS,
        "host reads": len(waits),
        "graphs": graphs_compiled() - before,
        "recompiles": 0,
        "allocations": memory.count / STEPS,
        "kernels": [event.key for event in events],
    }


def counted(name: str) -> dict[str, Any]:
    """Counts of one, asserted."""
    found = model(name) if name in MODELS else world(name)
    for what, most in (("host reads", 0), ("recompiles", 0), ("allocations", 0), ("graphs", 2)):
        assert found[what] <= most, (name, what, found)
    return found


def main() -> None:
    """Count, print, save."""
    names = [*MODELS, *dz.zoo.entries(dz.zoo.WorldEntry)]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", nargs="+", choices=names, default=names)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    result: dict[str, Any] = {**_cuda.facts(), "counts": {}}
    for name in given.names:
        began = time.perf_counter()
        try:
            found = result["counts"][name] = counted(name)
        except Exception as error:  # the others are worth having all the same
            result["counts"][name] = {"failed": repr(error)[:500]}
            print(f"{name:34s} FAILED {error!r}"[:300], flush=True)
            continue
        told = "  ".join(f"{what} {value:g}" for what, value in found.items() if what != "kernels")
        print(f"{name:34s} {told}  ({time.perf_counter() - began:.0f} s)", flush=True)
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
