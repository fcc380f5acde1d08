"""SEIR and COVID on one GPU: checks against the CPU, then times, several sizes in one call.

    python benchmarks/simulate_gpu.py [--out RESULT.json]

Times are milliseconds a step of captured chunks, over a whole SEIR epidemic of 100 steps (start to end, as the CPU
benchmark has it) and over 23 days of COVID; the best of five. Kernels are counted with torch's profiler.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import denizen as dz
from denizen.run import Run
from denizen.space.generators import random_in_neighbours
from denizen.zoo.covid import covid

STEPS = 100
SHOW = False


class People(dz.State):
    """Days since infection."""

    exposed: dz.model.History = dz.history("agents")


class SEIR(dz.Model):
    """The SEIR of the references: latent 5 days, infectious 7, hazard such that a contact infects with 0.03 a day."""

    contacts: dz.Graph
    infect_rate: Tensor = dz.param(0.030459207, low=0.0)

    def init(self, rng: dz.rng.Rng) -> People:
        """1 % infectious."""
        seeds = rng.bernoulli("seed", 0.01).to(torch.int16)
        return People(exposed=dz.model.History.start(seeds * 6, length=12))

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        """Infection along contacts."""
        pressure = self.contacts.sum(now.exposed.within(6, 12), where=now.exposed.never())
        return now.replace(exposed=now.exposed.record(rng.event("catch", self.infect_rate * pressure)))

    @dz.series
    def susceptible(self, now: People) -> Tensor:
        """Not yet infected."""
        return now.exposed.count_never()


def captured(model: dz.Model, worlds: int) -> Run:
    """A run that has made its first step and is compiled and captured."""
    return dz.simulate(model, 6, seed=1, replicates=worlds, device="cuda", compile=True)


def measure(model: dz.Model, steps: int, worlds: int = 1) -> dict[str, float]:
    """Milliseconds a step over `steps` steps from the start, kernels a step, GiB at the peak."""
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    run = captured(model, worlds)
    assert run.stats()["path"] == "captured", run.stats()
    ready = time.perf_counter() - began
    capture, start = run._capture, run._stepper.start()
    assert capture is not None
    start.bad = torch.zeros_like(run._carry.bad)
    times = []
    for _ in range(6):
        capture._chunks.forget()
        capture._chunks.load(start)
        torch.cuda.synchronize()
        began = time.perf_counter()
        capture.run(start, steps)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) / steps * 1e3)
    later, _ = capture.run(start, 64)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        capture.run(later, 64)
        torch.cuda.synchronize()
    events = [e for e in seen.key_averages() if e.device_time_total > 0]
    if SHOW:
        for e in sorted(events, key=lambda e: -e.device_time_total)[:9]:
            print(f"    {e.key[:70]:70s} {e.count / 64:6.2f} {e.device_time_total / 64:9.2f} us")
    kernels = sum(e.count for e in events) / 64
    busy = sum(e.device_time_total for e in events) / 64e3
    return {
        "ms_per_step": min(times[1:]), "kernels_per_step": kernels, "kernel_ms_per_step": busy,
        "seconds_to_ready": ready, "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
    }  # fmt: skip


def check() -> None:
    """A captured run equals an eager one on the CPU bit for bit."""
    graph = dz.Graph.from_edges(random_in_neighbours(20_001, 10, seed=2))
    people = dz.population.synthetic("astoria", 5_003)
    for model in (SEIR(graph), covid(people, symmetrize=True, sample_deaths=True, isolation=0.2)):
        for worlds in (1, 3):
            host = dz.simulate(model, 75, seed=4, replicates=worlds, device="cpu")
            device = dz.simulate(model, 75, seed=4, replicates=worlds, device="cuda", compile=True)
            assert device.stats()["path"] == "captured"
            for name in host.series_names:
                assert torch.equal(host[name], device[name].cpu()), (type(model).__name__, worlds, name)
    print("captured on CUDA = eager on the CPU, bit for bit")


def main() -> None:
    """Check, time, print, save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", action="store_true", help="kernels and their times")
    parser.add_argument("--sizes", type=int, nargs="*", default=[37_518, 1_000_000, 8_400_000])
    arguments = parser.parse_args()
    global SHOW
    SHOW = arguments.show
    check()
    rows = {}
    for n in arguments.sizes:
        graph = dz.Graph.from_edges(random_in_neighbours(n, 10, seed=1)).to("cuda")
        rows[f"SEIR {n:,}"] = measure(SEIR(graph), STEPS)
        print(f"SEIR {n:,}", rows[f"SEIR {n:,}"], flush=True)
    for n, worlds in ((37_518, 1), (37_518, 64), (8_400_000, 1)):
        people = dz.population.synthetic("astoria", n, networks=["0"])
        name = f"COVID {n:,} x {worlds}"
        rows[name] = measure(covid(people), 23, worlds)
        print(name, rows[name], flush=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    result = {
        "card": torch.cuda.get_device_name(), "torch": torch.__version__, "commit": commit.strip(), "rows": rows,
    }  # fmt: skip
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1))
    print(f"{'case':26s}{'ms/step':>10s}{'kernels':>9s}{'busy ms':>9s}{'ready s':>9s}{'GiB':>7s}")
    for name, row in rows.items():
        print(
            f"{name:26s}{row['ms_per_step']:10.4f}{row['kernels_per_step']:9.1f}{row['kernel_ms_per_step']:9.4f}"
            f"{row['seconds_to_ready']:9.1f}{row['peak_gib']:7.2f}"
        )


if __name__ == "__main__":
    main()
