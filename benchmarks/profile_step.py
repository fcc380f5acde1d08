"""Where the time of a denizen step goes: a table of operators and the interpreter's share, for SEIR and COVID.

    python benchmarks/profile_step.py [seir|seir_zoo|covid] [--agents 100000] [--steps 60] [--compile] [--functions]

Not part of the benchmark: it helps whoever makes a step faster. One thread, so that the numbers add up.
"""

import argparse
import cProfile
import pstats
import tempfile
import time
from pathlib import Path

import denizen_worker as cases
import torch
from _graphs import random_graph
from torch.profiler import ProfilerActivity, profile

import denizen as dz

ASTORIA = Path(__file__).resolve().parents[2] / "shared" / "data" / "astoria"


def build(case, agents):
    """The model of a case at a size."""
    if case == "covid":
        if agents == 37_518 and ASTORIA.is_dir():
            return cases.covid_on(ASTORIA, 0, reference=True)
        return cases.covid_on("astoria", agents, reference=True)
    path = random_graph(Path(tempfile.gettempdir()) / "denizen-benchmark" / f"{agents}-0.npz", agents, 10, seed=0)
    return cases.CASES[case](path, agents, b=0.03, latent=5, infectious=7, seeds=0.01)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=["seir", "covid"], help="seir, seir_zoo, covid")
    parser.add_argument("--agents", type=int, nargs="+", default=[37_518, 100_000])
    parser.add_argument("--steps", type=int, default=60, help="steps to average over")
    parser.add_argument("--compile", action="store_true", help="compile the step")
    parser.add_argument("--functions", action="store_true", help="also the table of Python functions")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for case in args.cases:
        for agents in args.agents:
            report(case, build(case, agents), args)


def report(case, model, args):
    """Print both tables of one case."""
    run = dz.simulate(model, steps=3, compile=args.compile or None).extend(2)  # compiled by now, where asked
    began = time.process_time()
    run.extend(args.steps)
    plain = 1e3 * (time.process_time() - began) / args.steps
    run = dz.simulate(model, steps=3, compile=args.compile or None).extend(2)
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        run.extend(args.steps)
    events = sorted(prof.key_averages(), key=lambda e: -e.self_cpu_time_total)
    busy = sum(e.self_cpu_time_total for e in events) / 1e3 / args.steps
    kernels = [e for e in events if e.key.startswith("denizen::")]
    own = sum(e.self_cpu_time_total for e in kernels) / 1e3 / args.steps
    calls = sum(e.count for e in events) / args.steps
    print(
        f"\n{case}, {model.num_agents:,} agents, {run.stats()['path']}: {plain:.3f} CPU-ms/step unprofiled; under the "
        f"profiler {busy:.3f} in operators, of which denizen's own {own:.3f}; {calls:.0f} operator calls a step"
    )
    print(f"{'operator':40s} {'us/step':>9s} {'calls/step':>10s}")
    for e in events[:22]:
        print(f"{e.key[:40]:40s} {e.self_cpu_time_total / args.steps:9.1f} {e.count / args.steps:10.1f}")
    if args.functions:
        run = dz.simulate(model, steps=3, compile=args.compile or None).extend(2)
        python = cProfile.Profile()
        python.runcall(run.extend, args.steps)
        pstats.Stats(python).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
