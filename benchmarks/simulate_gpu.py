"""The device engine on one GPU: checks against the CPU, then times.

    python benchmarks/simulate_gpu.py [--parts check sizes …] [--out RESULT.json] [--show]

Parts: check (bits), sizes (the goals), scaling (10^4 to 10^8 agents), active (cost against the share that is active),
host (the same work on this machine's CPU), cold (a process from import to the first steps, without and with a cache).
Times are milliseconds a step; SEIR over a whole epidemic of 100 steps, COVID over its first 23 days.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import _cuda
import torch
from torch import Tensor

import denizen as dz
from denizen import ops
from denizen.space.generators import random_in_neighbours
from denizen.zoo.covid import covid
from denizen.zoo.seir import seir
from denizen.zoo.sir import sir

STEPS, DAYS = 100, 23


class People(dz.State):
    """Days since infection."""

    exposed: dz.model.History = dz.history("agents")


class SEIR(dz.Model):
    """The SEIR of the references: latent 5 days, infectious 7, hazard such that a contact infects with 0.03 a day."""

    contacts: dz.Graph
    infect_rate: Tensor = dz.param(0.030459207, low=0.0)
    share: Tensor = dz.param(0.01, low=0.0, high=1.0)

    def init(self, rng: dz.rng.Rng) -> People:
        """A share infectious."""
        seeds = rng.bernoulli("seed", self.share).to(torch.int16)
        return People(exposed=dz.model.History.start(seeds * 6, length=12))

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        """Infection along contacts."""
        pressure = self.contacts.sum(now.exposed.within(6, 12), where=now.exposed.never())
        return now.replace(exposed=now.exposed.record(rng.event("catch", self.infect_rate * pressure)))

    @dz.series
    def susceptible(self, now: People) -> Tensor:
        """Not yet infected."""
        return now.exposed.count_never()


def check(show: bool) -> dict[str, Any]:
    """A captured run equals an eager one on the CPU bit for bit, whichever way its sums go."""
    graph = dz.Graph.from_edges(random_in_neighbours(20_001, 10, seed=2))
    people = dz.population.synthetic("astoria", 5_003)
    models = (SEIR(graph), sir(graph), seir(graph), covid(people, symmetrize=True, sample_deaths=True, isolation=0.2))
    for model in models:
        for worlds, way in ((1, None), (3, "push"), (3, "pull"), (1, 0.3)):
            host = dz.simulate(model, 75, seed=4, replicates=worlds, device="cpu")
            with ops.direction(way):
                device = dz.simulate(model, 75, seed=4, replicates=worlds, device="cuda", compile=True)
            assert device.stats()["path"] == "captured"
            for name in host.series_names:
                assert torch.equal(host[name], device[name].cpu()), (type(model).__name__, worlds, way, name)
    print("captured on CUDA = eager on the CPU, bit for bit, by push and by pull", flush=True)
    return {"models": len(models), "equal": True}


def row(model: dz.Model, steps: int, worlds: int, show: bool) -> dict[str, Any]:
    """One line of the table of sizes."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    run = _cuda.captured(model, worlds)
    ready = time.perf_counter() - began
    peak = torch.cuda.max_memory_allocated() / 2**30
    long = _cuda.replay_ms(run, 512) if steps == DAYS else None
    launches, busy, top = _cuda.kernels(run)
    if show:
        print("\n".join(f"    {line}" for line in top))
    return {
        "ms": _cuda.replay_ms(run, steps), "ms_512": long, "launches": launches, "busy_ms": busy, "ready_s": ready,
        "peak_gib": peak, "before_gib": before / 2**30,
    }  # fmt: skip


def sizes(show: bool) -> dict[str, Any]:
    """The goals of the device engine."""
    rows = {}
    for n in (37_518, 1_000_000, 8_400_000):
        rows[f"SEIR {n:,}"] = row(SEIR(_cuda.random_graph(n, 10)), STEPS, 1, show)
        print(f"SEIR {n:,}", rows[f"SEIR {n:,}"], flush=True)
    for n, worlds in ((37_518, 1), (37_518, 64), (8_400_000, 1)):
        people = dz.population.synthetic("astoria", n, networks=["0"])
        began = time.perf_counter()
        model = covid(people).to("cuda")
        torch.cuda.synchronize()
        init = time.perf_counter() - began
        name = f"COVID {n:,} x {worlds}"
        rows[name] = {**row(model, DAYS, worlds, show), "init_s": init}
        print(name, rows[name], flush=True)
    rows["copy rate TB/s"] = _cuda.copy_rate() / 1e12
    print(f"{'case':24s}{'ms/step':>9s}{'512 steps':>10s}{'launches':>9s}{'busy ms':>9s}{'ready s':>9s}{'GiB':>6s}")
    for name, r in rows.items():
        if isinstance(r, dict):
            long = f"{r['ms_512']:10.4f}" if r["ms_512"] else " " * 10
            print(
                f"{name:24s}{r['ms']:9.4f}{long}{r['launches']:9.2f}{r['busy_ms']:9.4f}{r['ready_s']:9.1f}"
                f"{r['peak_gib']:6.2f}"
            )
    return rows


def scaling(show: bool) -> dict[str, Any]:
    """SEIR from 10^4 to 10^8 agents: milliseconds a step, nanoseconds an agent-step, memory at the peak."""
    rows = {}
    for n in (10_000, 100_000, 1_000_000, 10_000_000, 30_000_000, 100_000_000):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        run = _cuda.captured(SEIR(_cuda.random_graph(n, 10)))
        ms = _cuda.replay_ms(run, STEPS, times=2)
        rows[f"{n:,}"] = {"ms": ms, "ns_per_agent": ms * 1e6 / n, "gib": torch.cuda.max_memory_allocated() / 2**30}
        print(f"{n:>12,} {ms:9.4f} ms/step {ms * 1e6 / n:8.4f} ns/agent", flush=True)
        del run
    return rows


def active(show: bool) -> dict[str, Any]:
    """One sum over neighbours, 10 each, against the share that is active and the share that is eligible."""
    rows: dict[str, Any] = {}
    n = 8_400_000
    graph = _cuda.random_graph(n, 10)
    arrays = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx)
    total = torch.zeros(1, n, dtype=torch.uint8, device="cuda")
    for share in (0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 1.0):
        values = (torch.rand(1, n, device="cuda") < share).to(torch.int8)
        where = (torch.rand(1, n, device="cuda") < 0.5).to(torch.int8)
        times = {}
        for way in ("push", "pull"):
            with ops.direction(way):
                call = lambda: ops.add_counts(total, values, where, None, *arrays)  # noqa: E731, B023
                call()
                times[way] = _cuda.event_us(call, 5)
        rows[f"{share:g}"] = times
        print(
            f"active {share:6.1%}, half eligible: push {times['push']:8.1f} us, pull {times['pull']:8.1f} us",
            flush=True,
        )
    rows["switch"] = [one.switch for one in _cuda.captured(SEIR(graph))._capture._chunks._program.sums]
    print(f"switch measured: {rows['switch']} active senders for each eligible receiver")
    return rows


def host(show: bool) -> dict[str, Any]:
    """COVID on a population of Astoria's size: this machine's CPU against its GPU, a step and 180 days."""
    rows = {}
    model = covid(dz.population.synthetic("astoria", 37_518, networks=["0"]))
    for device, threads in (("cpu", 2), ("cpu", os.cpu_count() or 1), ("cuda", 1)):
        torch.set_num_threads(threads)
        dz.simulate(model, 20, seed=1, device=device, compile=device == "cuda")
        began = time.perf_counter()
        run = dz.simulate(model, 180, seed=1, device=device, compile=device == "cuda")
        float(run["infected"].sum())
        whole = time.perf_counter() - began
        began = time.perf_counter()
        float(run.extend(1000)["infected"].sum())
        step = (time.perf_counter() - began) / 1000
        rows[f"{device} x {threads}"] = {"run_s": whole, "step_ms": step * 1e3}
        print(f"{device} {threads:3d} threads: 180 days {whole:.3f} s, a step {step * 1e3:.4f} ms", flush=True)
    return rows


COLD = """
import sys, time, torch
began = time.perf_counter()
sys.path[:0] = ["src", "benchmarks"]
import denizen as dz
from simulate_gpu import SEIR
from denizen.zoo.covid import covid
import _cuda
model = SEIR(_cuda.random_graph(37_518, 10)) if sys.argv[1] == "seir" else covid(
    dz.population.synthetic("astoria", 37_518, networks=["0"]))
run = dz.simulate(model, 1, device="cuda")
torch.cuda.synchronize()
first = time.perf_counter() - began
run = dz.simulate(model, 10, device="cuda", compile=True)
torch.cuda.synchronize()
print(first, time.perf_counter() - began)
"""


def cold(show: bool) -> dict[str, Any]:
    """Seconds from `import torch` on to the first step and to ten captured ones, by empty and by warm cache."""
    rows = {}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
        for case in ("seir", "covid"):
            for state in ("fresh", "warm"):
                command = [sys.executable, "-c", COLD, case]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                first, ready = map(float, done.stdout.split()[-2:])
                rows[f"{case} {state}"] = {"first_step_s": first, "captured_s": ready}
                print(
                    f"{case}, {state} cache: first step after {first:.1f} s, captured after {ready:.1f} s", flush=True
                )
    return rows


PARTS = {"check": check, "sizes": sizes, "scaling": scaling, "active": active, "host": host, "cold": cold}


def main() -> None:
    """Run the parts, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", action="store_true", help="kernels and their times")
    arguments = parser.parse_args()
    result: dict[str, Any] = _cuda.facts()
    for part in arguments.parts:
        print(f"--- {part}", flush=True)
        result[part] = PARTS[part](arguments.show)
        if arguments.out:
            arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
