"""Boids in the plane and circles in a box on a GPU: milliseconds a step, launches, and how both grow.

    python benchmarks/space_gpu.py [--agents N …] [--out RESULT.json]

Boids: the density and the rules of the large flock of ABMFrameworksComparison, 12.6 birds within the radius. Circles:
FLAME GPU's, density 1 and radius 2 in three dimensions, 33.5 points within the radius and about 205 read. Set beside
hand-written CUDA on an H100: Boids 0.103, 0.070 and 0.240 ms at 10 thousand, 100 thousand and 1 million, circles 0.825
at 1 million; FLAME GPU 2 publishes 2.12 to 2.91 for the latter.

First the GPU's sums are compared with the CPU's, bit by bit, and with every pair. Then each size is a process of its
own, which compile at once and are timed one after another: the mean of 50 steps from the start, with the sort and all.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import _cuda
import torch
from _turns import turn

from denizen.ops import _cuda_pairs
from denizen.space import Space
from denizen.zoo.boids import boids
from denizen.zoo.boids.model import seen
from denizen.zoo.circles import circles
from denizen.zoo.circles.model import force

MODELS = {"boids": boids, "circles": circles}
GOALS = {("boids", 1_000_000): 0.24, ("circles", 1_000_000): 0.825}
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
STEPS = 50


def check():
    """The bits of the CPU, and the values of every pair, in two and three dimensions, closed and on a torus."""
    torch.manual_seed(0)
    for space, pair in (
        (Space((30.0, 40.0)), seen),
        (Space((9.0, 12.0, 10.0), torus=False), force),
        (Space((5.0, 9.0)), seen),
    ):
        where = torch.rand(3000, space.dims) * torch.tensor(space.size)
        with_them = (torch.randn(3000, 2), torch.tensor(1.0)) if pair is seen else (torch.tensor(0.5),)
        sums = []
        for device in ("cpu", "cuda"):
            near = space.near(where.to(device), 2.0)
            sums.append([t.cpu() for t in (*near.reduce(pair, *(t.to(device) for t in with_them)), near.nearest())])
        for one, other in zip(*sums, strict=True):
            assert torch.equal(one, other), f"{pair.__name__} in {space}: {(one - other).abs().max()}"
        offset = space.offset(where[:, None], where[None])
        close = offset.norm(dim=2) <= 2.0
        close.fill_diagonal_(False)
        differ = (space.near(where.cuda(), 2.0).count().cpu() != close.sum(1)).sum()
        assert differ <= 2, f"{differ} agents have other neighbours than every pair gives"
        print(f"{pair.__name__:>8} in {space.size}: the bits of the CPU, the pairs of a full search", flush=True)


def one(model, agents):
    """Time one size in this process; prints JSON."""
    run = _cuda.captured(MODELS[model](agents))
    ms = _cuda.replay_ms(run, STEPS, 4)
    with turn():
        launches, busy, top = _cuda.kernels(run, STEPS, 10, most=12)
    print(json.dumps({"ms": ms, "launches": launches, "busy_ms": busy, "top": top}))


def tune(agents):
    """Time the parts at one size with other shapes of the kernel that sums; prints."""
    for name, model in (("boids", boids(agents)), ("circles", circles(agents))):
        space, radius, pair = model.space, model.radius, seen if name == "boids" else force
        where = torch.rand(agents, space.dims, device="cuda") * torch.tensor(space.size, device="cuda")
        given = (where, torch.tensor(1.0).cuda()) if name == "boids" else (torch.tensor(0.5).cuda(),)
        for cut in (1, 2, 4):
            counts = [int(side / radius) for side in space.size]
            counts[-1] = int(cut * space.size[-1] / radius)
            object.__setattr__(space, "_cells", lambda radius, num, counts=counts: counts)
            sort = _cuda.event_us(partial(space.near, where, radius))
            near, told = space.near(where, radius), []
            for lanes, warps in ((32, 1), (64, 1), (128, 1), (64, 2), (128, 2), (128, 4)):
                _cuda_pairs._LANES, _cuda_pairs._WARPS = lanes, warps
                told.append(f"{lanes}/{warps}: {_cuda.event_us(partial(near.reduce, pair, *given)):.0f}")
            print(
                f"{name:>8} {agents:,} cut {cut}: near {sort:.0f} us, reduce by lanes/warps {', '.join(told)}",
                flush=True,
            )


def main():
    """Check, time, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.one:
        one(given.one[0], int(given.one[1]))
        return
    began = time.perf_counter()
    result = {**_cuda.facts(), "models": {}}
    print(result["card"], "torch", result["torch"], flush=True)
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready"
        environment = {**os.environ, "DENIZEN_BENCH_LOCK": f"{folder}/lock", "DENIZEN_BENCH_AFTER": str(ready)}
        started = {}
        for model in MODELS:
            for agents in given.agents:
                words = [sys.executable, __file__, "--one", model, str(agents)]
                started[model, agents] = subprocess.Popen(
                    words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
        check()
        ready.touch()
        for (model, agents), process in started.items():
            out, err = process.communicate(timeout=300)
            if process.returncode:
                print(f"{model} {agents:,} failed:\n{err[-3000:]}", flush=True)
                continue
            told = result["models"][f"{model} {agents}"] = json.loads(out.splitlines()[-1])
            goal = GOALS.get((model, agents))
            print(
                f"{model:>8} {agents:>11,} {told['ms']:9.4f} ms/step  {told['ms'] / agents * 1e6:7.4f} ns/agent  "
                f"{told['launches']:.1f} launches, busy {told['busy_ms']:.4f} ms{f'  goal {goal}' if goal else ''}"
            )
            for line in told["top"]:
                print("            ", line)
            print(f"             after {time.perf_counter() - began:.0f} s", flush=True)
    with turn():
        tune(1_000_000)
    print(f"after {time.perf_counter() - began:.0f} s", flush=True)
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
