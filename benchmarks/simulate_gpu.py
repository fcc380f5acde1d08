"""The device engine on one GPU: checks against the CPU, then times.

    python benchmarks/simulate_gpu.py [--parts check sizes …] [--out RESULT.json] [--show]

Parts: check (bits), sizes (the goals), scaling (10^4 to 10^8 agents), active (cost against the share that is active),
worlds (together, by how many go in a group), host (the same work on this machine's CPU), cold (a process from import to
the first steps, without and with a cache).
Times are milliseconds a step; SEIR over a whole epidemic of 100 steps, COVID over its first 23 days. The last two run
on a machine without a GPU, too.
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
from unittest.mock import patch

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
    told = run.extend(40).stats(count=True)  # in the middle of the epidemic; before the replays, which begin anew
    long = _cuda.replay_ms(run, 512) if steps == DAYS else None
    launches, busy, top = _cuda.kernels(run)
    if show:
        print("\n".join(f"    {line}" for line in top))
    ms = _cuda.replay_ms(run, steps)
    roofline = {
        name: told[name] for name in ("bytes_needed_per_step", "bytes_moved_per_step", "copy_share", "busy_share")
    }
    return {
        "ms": ms,
        "ms_512": long,
        "launches": launches,
        "busy_ms": busy,
        "ready_s": ready,
        "peak_gib": peak,
        "before_gib": before / 2**30,
        **roofline,
    }


def sizes(show: bool) -> dict[str, Any]:
    """The goals of the device engine."""
    rows = {}
    for n in (37_518, 1_000_000, 8_400_000):
        rows[f"SEIR {n:,}"] = row(SEIR(_cuda.random_graph(n, 10)), STEPS, 1, show)
        print(f"SEIR {n:,}", rows[f"SEIR {n:,}"], flush=True)
    for n, worlds in ((37_518, 1), (37_518, 64), (8_400_000, 1)):
        people = dz.population.synthetic("astoria", n, networks=["0"])
        began = time.perf_counter()
        model = covid(people, device="cuda")
        torch.cuda.synchronize()
        init = time.perf_counter() - began  # of arrays on the host
        ends = [torch.from_numpy(array).to("cuda") for array in people.edges()[:2]]
        torch.cuda.synchronize()
        began = time.perf_counter()
        dz.Graph.from_edges(*ends, n)
        torch.cuda.synchronize()
        graph = time.perf_counter() - began  # of tensors on the device
        del ends
        name = f"COVID {n:,} x {worlds}"
        rows[name] = {**row(model, DAYS, worlds, show), "init_s": init, "graph_s": graph}
        print(name, rows[name], flush=True)
    rows["copy rate TB/s"] = _cuda.copy_rate() / 1e12
    print(
        f"{'case':24s}{'ms/step':>9s}{'512 steps':>10s}{'launches':>9s}{'busy ms':>9s}{'ready s':>9s}{'GiB':>6s}"
        f"{'needed MB':>11s}{'moved MB':>10s}{'of copy':>8s}"
    )
    for name, r in rows.items():
        if isinstance(r, dict):
            long = f"{r['ms_512']:10.4f}" if r["ms_512"] else " " * 10
            print(
                f"{name:24s}{r['ms']:9.4f}{long}{r['launches']:9.2f}{r['busy_ms']:9.4f}{r['ready_s']:9.1f}"
                f"{r['peak_gib']:6.2f}{r['bytes_needed_per_step'] / 1e6:11.2f}{r['bytes_moved_per_step'] / 1e6:10.2f}"
                f"{r['copy_share']:8.2f}"
            )
    return rows


def scaling(show: bool) -> dict[str, Any]:
    """SEIR from 10^4 to 10^8 agents: milliseconds a step, nanoseconds an agent-step, memory of the run at its peak."""
    rows = {}
    for n in (10_000, 100_000, 1_000_000, 10_000_000, 30_000_000, 100_000_000):
        torch.cuda.empty_cache()
        try:
            graph = _cuda.random_graph(n, 10)  # 45 bytes an edge at its peak
            torch.cuda.reset_peak_memory_stats()
            run = _cuda.captured(SEIR(graph))
            ms = _cuda.replay_ms(run, STEPS, times=2)
        except (torch.OutOfMemoryError, dz.errors.DenizenError) as error:  # a smaller card: until memory ends
            print(f"{n:>12,} {error}", flush=True)
            break
        rows[f"{n:,}"] = {"ms": ms, "ns_per_agent": ms * 1e6 / n, "gib": torch.cuda.max_memory_allocated() / 2**30}
        print(f"{n:>12,} {ms:9.4f} ms/step {ms * 1e6 / n:8.4f} ns/agent {rows[f'{n:,}']['gib']:6.2f} GiB", flush=True)
        del run, graph
    return rows


class Mask(dz.State):
    """Who is ill."""

    ill: Tensor = dz.mask("agents")


class Still(dz.Model):
    """As many are ill in each step: hazards are drawn for all who meet them, and nothing comes of it."""

    contacts: dz.Graph
    share: Tensor = dz.param(0.01, low=0.0, high=1.0)

    def init(self, rng: dz.rng.Rng) -> Mask:
        """A share ill."""
        return Mask(ill=rng.bernoulli("ill", self.share))

    def step(self, now: Mask, rng: dz.rng.Rng) -> Mask:
        """Who would be infected is counted alone."""
        caught = rng.event("catch", 1e-9 * self.contacts.sum(now.ill, where=1 - now.ill))
        return now.replace(ill=now.ill * (1 - caught))

    @dz.series
    def ill(self, now: Mask) -> Tensor:
        """How many are ill."""
        return now.ill.sum()


def active(show: bool) -> dict[str, Any]:
    """A step, and one sum over neighbours each way, 10 each, against the share of agents that is active."""
    rows: dict[str, Any] = {}
    n = 8_400_000
    graph = _cuda.random_graph(n, 10)
    arrays = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx)
    total, wide = (torch.zeros(1, n, dtype=dtype, device="cuda") for dtype in (torch.uint8, torch.int64))
    bad, none = torch.zeros(1, dtype=torch.int32, device="cuda"), graph.out_edge
    for share in (0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 1.0):
        values = (torch.rand(1, n, device="cuda") < share).to(torch.int8)
        where = (torch.rand(1, n, device="cuda") < 0.5).to(torch.int8)
        times = {}
        for way in ("push", "pull"):
            with ops.direction(way):
                call = lambda: ops.add_counts(total, None, values, where, None, *arrays)  # noqa: E731, B023
                call()
                times[way] = _cuda.event_us(call, 5)
                real = values * 0.7
                call = lambda: ops.add_fixed(wide, None, bad, real, None, None, *arrays, none, 40, 1.0)  # noqa: E731, B023
                call()
                times[f"{way}, fixed point"] = _cuda.event_us(call, 5)
        run = _cuda.captured(Still(graph, share=share))
        times["step"] = _cuda.replay_ms(run, 64, times=2) * 1e3
        rows[f"{share:g}"] = times
        print(
            f"active {share:6.1%}: a step {times['step']:8.1f} us; half eligible: push {times['push']:8.1f} us, "
            f"pull {times['pull']:8.1f} us; in fixed point, all eligible: push {times['push, fixed point']:8.1f} us, "
            f"pull {times['pull, fixed point']:8.1f} us",
            flush=True,
        )
    rows["switch"] = [one.switch for one in run._capture._chunks._program.sums]
    print(f"switch measured: {rows['switch']} active senders for each eligible receiver")
    return rows


def worlds(show: bool) -> dict[str, Any]:
    """Worlds together: a sum over neighbours and a SEIR step, microseconds a world, by how many go in a group.

    Bits are compared with groups of one.
    """
    from denizen.ops import _cuda_neighbours

    rows: dict[str, Any] = {}
    cases = ((8_400_000, 4), (1_000_000, 16), (37_518, 64))

    def note(name: str, chosen: int, times: dict[Any, float]) -> None:
        rows[name] = times
        told = "  ".join(f"{size}: {us:.2f}" for size, us in times.items())
        print(f"{name:32s} by default {chosen:2d};  {told}", flush=True)

    for n, count in cases:
        graph, chosen = _cuda.random_graph(n, 10), 0
        arrays = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx)
        sizes = [1 << k for k in range(count.bit_length()) if 1 << k <= count]
        where = (torch.rand(count, n, device="cuda") < 0.5).to(torch.int8)
        for share, way in ((0.01, "push"), (0.1, "push"), (0.3, "push"), (0.3, "pull")):
            values = (torch.rand(count, n, device="cuda") < share).to(torch.int8)
            total, first, times = torch.zeros(count, n, dtype=torch.uint8, device="cuda"), None, {}
            chosen = _cuda_neighbours._group(total, values)
            for size in sizes:
                call = lambda: ops.add_counts(total, None, values, where, None, *arrays)  # noqa: E731, B023
                with ops.direction(way), patch.object(_cuda_neighbours, "_group", lambda *_, size=size: size):
                    total.zero_()
                    call()
                    first = total.clone() if first is None else first
                    assert torch.equal(total, first), (n, share, way, size)
                    times[size] = _cuda.event_us(call) / count
            note(f"{way} of {share:.0%}, {n:,} x {count}", chosen, times)
    for n, count in cases:
        model, first, times = SEIR(_cuda.random_graph(n, 10)), None, {}
        chosen = _cuda_neighbours._group(torch.empty(count, n, dtype=torch.uint8, device="cuda"))
        for size in (1, chosen):
            with patch.object(_cuda_neighbours, "_group", lambda *_, size=size: size):
                run = _cuda.captured(model, count).extend(STEPS - 6)
                first = run["susceptible"] if first is None else first
                assert torch.equal(run["susceptible"], first), (n, size)
                times[size] = _cuda.replay_ms(run, STEPS, times=3) * 1e3 / count
            del run
        note(f"SEIR, {n:,} x {count}", chosen, times)
    return rows


HERE = Path(__file__).resolve().parent
PATHS = f"import sys; sys.path[:0] = {[str(HERE.parent / 'src'), str(HERE)]}"

HOST = f"""
{PATHS}
import json, time, torch
device, threads, sizes = sys.argv[1], int(sys.argv[2]), [int(size) for size in sys.argv[3:]]
torch.set_num_threads(threads)
import denizen as dz
from denizen.zoo.covid import covid
cuda, rows = device == "cuda", {{}}
for size in sizes:
    model = covid(dz.population.synthetic("astoria", size, networks=["0"]))
    run = dz.simulate(model, 6, seed=1, device=device, compile=cuda)
    if size > 100_000 and run.stats()["ops"] == "reference":
        break  # minutes
    run, began, row = None, time.perf_counter(), {{}}
    if size < 100_000:
        run = dz.simulate(model, 180, seed=1, device=device, compile=cuda)
        float(run["infected"].sum())
        row["run_s"] = time.perf_counter() - began
    run = run or dz.simulate(model, 6, seed=1, device=device, compile=cuda)
    run.extend(512 if cuda else 1)
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < 1.5:
        count = 512 if cuda else 8
        float(run.extend(count)["infected"][0, -1])
        steps += count
    row["step_ms"] = (time.perf_counter() - began) / steps * 1e3
    rows[f"{{size:,}}"] = {{**row, "ops": run.stats()["ops"]}}
print(json.dumps(rows))
"""


def host(show: bool) -> dict[str, Any]:
    """COVID, this machine's CPU against its GPU: 180 days of Astoria as a whole, a step of it, of a million and of 8.4.

    Each in a process of its own. Up to 500,000 agents denizen takes one thread, however many there are.
    """
    rows = {}
    cores = len(os.sched_getaffinity(0))
    cases = [("cpu", 2), ("cpu", cores), *([("cuda", 1)] if torch.cuda.is_available() else [])]
    for device, threads in dict.fromkeys(cases):
        several = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")}
        command = [sys.executable, "-c", HOST, device, str(threads), "37518", "1000000", "8400000"]
        done = subprocess.run(command, env={**os.environ, **several}, capture_output=True, text=True, check=True)
        for size, row in json.loads(done.stdout.splitlines()[-1]).items():
            rows[f"{device} x {threads}, {size}"] = row
            whole = f"180 days {row['run_s']:.3f} s, " if "run_s" in row else ""
            print(f"{device} {threads:3d} threads, {size} agents ({row['ops']}): {whole}a step {row['step_ms']:.4f} ms")
    return rows


COLD = f"""
import time, torch
began = time.perf_counter()
{PATHS}
import denizen as dz
from simulate_gpu import SEIR
from denizen.zoo.covid import covid
import _cuda
device = sys.argv[2]
model = SEIR(_cuda.random_graph(37_518, 10, device=device)) if sys.argv[1] == "seir" else covid(
    dz.population.synthetic("astoria", 37_518, networks=["0"]))
run = dz.simulate(model, 1, device=device)
float(run.state.time.value)
first = time.perf_counter() - began
run = dz.simulate(model, 10, device=device, compile=device == "cuda")
float(run.state.time.value)
print(first, time.perf_counter() - began)
"""


def cold(show: bool) -> dict[str, Any]:
    """Seconds from `import torch` on to the first step and to ten captured ones, by empty and by warm cache."""
    rows: dict[str, Any] = {}
    began = time.perf_counter()
    for case in ("seir", "covid"):
        if time.perf_counter() - began > 30:
            print(f"{case} left out: starts are slow here", flush=True)
            break
        with tempfile.TemporaryDirectory() as cache:  # of its own: what both compile would be warm for the second
            caches = {
                "TORCHINDUCTOR_CACHE_DIR": cache,
                "TRITON_CACHE_DIR": f"{cache}/triton",
                "NUMBA_CACHE_DIR": f"{cache}/numba",
            }
            for state in ("fresh", "warm"):
                command = [sys.executable, "-c", COLD, case, "cuda" if torch.cuda.is_available() else "cpu"]
                done = subprocess.run(command, env={**os.environ, **caches}, capture_output=True, text=True, check=True)
                first, ready = map(float, done.stdout.split()[-2:])
                rows[f"{case} {state}"] = {"first_step_s": first, "captured_s": ready}
                print(
                    f"{case}, {state} cache: first step after {first:.1f} s, captured after {ready:.1f} s", flush=True
                )
    return rows


PARTS = {part.__name__: part for part in (check, sizes, scaling, active, worlds, host, cold)}


def main() -> None:
    """Run the parts, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", action="store_true", help="kernels and their times")
    arguments = parser.parse_args()
    result: dict[str, Any] = _cuda.facts("cuda" if torch.cuda.is_available() else "cpu")
    for part in arguments.parts:
        print(f"--- {part}", flush=True)
        began = time.perf_counter()
        result[part] = PARTS[part](arguments.show)
        print(f"--- {time.perf_counter() - began:.0f} s", flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
