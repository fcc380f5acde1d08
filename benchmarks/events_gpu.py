"""What a log of events costs a captured SEIR step: none, who caught it when, and by whom; runs on CUDA.

    python benchmarks/events_gpu.py [--parts check time] [--agents 1000000 8400000] [--steps 160] [--out RESULT.json]

First it checks: rows of a captured run on the card equal those of an eager run on the CPU, for one graph and three
worlds, and for two layers. Then it times whole epidemics, from the start to the end of the curve, by replays
of captured graphs; runs without a log and with one take turns, and the ratio is of the best of each. The rows' way to
the host is timed apart: it comes once for a chunk of steps. Goal: less than 10 % with infectors.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import _cuda
import numpy as np
import torch
from _turns import turn

import denizen as dz
from denizen.run import EventLog, Run
from denizen.zoo.seir import infections, seir

LOGS = {"none": None, "when": EventLog("caught"), "by whom": EventLog({"caught": infections})}
GOAL = 10.0


def check() -> None:
    """Rows of the card are those of the CPU."""
    graphs = [dz.space.generators.erdos_renyi(20_000, 8.0, seed=seed) for seed in (1, 2)]
    layers = dz.space.Layers({"home": graphs[0], "work": graphs[1]}, {"work": 0.5})
    for contacts, worlds in ((graphs[0], 3), (layers, 1)):
        made = {
            device: dz.simulate(
                seir(contacts), 80, replicates=worlds, seed=3, device=device, compile=compile, log=LOGS["by whom"]
            )
            for device, compile in (("cpu", False), ("cuda", True))
        }
        assert made["cuda"].stats()["path"] == "captured", made["cuda"].stats()["path"]
        here, there = (made[device].events("caught") for device in ("cpu", "cuda"))
        assert len(here) > 10_000
        for column in here:
            assert np.array_equal(here[column], there[column]), (type(contacts).__name__, worlds, column)
        print(f"{type(contacts).__name__}, {worlds} worlds: {len(here):,} rows, the same on both", flush=True)


def epidemic(run: Run, steps: int) -> float:
    """Seconds of the steps of a whole epidemic."""
    capture, start = run._capture, run._stepper.start()
    assert capture is not None
    start.bad = torch.zeros_like(run._run_state.bad)
    if run._log is not None:
        run._log.begin()
    capture._chunks.load(start)
    torch.cuda.synchronize()
    began = time.perf_counter()
    capture.run(start, steps)
    torch.cuda.synchronize()
    return time.perf_counter() - began


def measured(agents: int, steps: int, rounds: int) -> dict[str, Any]:
    """Milliseconds a step by log, and what the rows' way to the host takes."""
    model = seir(_cuda.random_graph(agents, 10))
    runs = {}
    for name, log in LOGS.items():
        runs[name] = dz.simulate(model, 6, seed=1, device="cuda", compile=True, log=log)
        assert runs[name].stats()["path"] == "captured", runs[name].stats()
        epidemic(runs[name], steps)
    best = dict.fromkeys(runs, float("inf"))
    with turn():
        for _ in range(rounds):
            for name, run in runs.items():
                best[name] = min(best[name], epidemic(run, steps) / steps * 1e3)
    log = runs["by whom"]._log
    assert log is not None
    began = time.perf_counter()
    rows = log.take()["caught"]
    found: dict[str, Any] = {
        "agents": agents,
        **best,
        "rows": len(rows["id"]),
        "to_host_ms": (time.perf_counter() - began) * 1e3,
    }
    for name in list(LOGS)[1:]:
        found[f"{name} %"] = (best[name] / best["none"] - 1) * 100
    with turn():
        found["kernels"] = _cuda.kernels(runs["by whom"])[2]
    return found


def main() -> None:
    """Check, time, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="+", choices=("check", "time"), default=["check", "time"])
    parser.add_argument("--agents", type=int, nargs="+", default=[1_000_000, 8_400_000])
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if "check" in options.parts:
        check()
    results = []
    for agents in options.agents if "time" in options.parts else ():
        found = measured(agents, options.steps, options.rounds)
        results.append(found)
        told = ", ".join(f"{name} {found[name]:.4f}" for name in LOGS)
        costs = ", ".join(f"{name} +{found[f'{name} %']:.1f} %" for name in list(LOGS)[1:])
        good = "goal" if found["by whom %"] < GOAL else "above the goal"
        rows = f"{found['rows']:,} rows in {found['to_host_ms']:.0f} ms to the host"
        print(f"{agents:>10,} agents, ms a step: {told}; {costs} ({good}); {rows}", flush=True)
        print("\n".join(f"             {line}" for line in found["kernels"]), flush=True)
    if options.out:
        card = torch.cuda.get_device_name()
        options.out.write_text(json.dumps({"card": card, "torch": torch.__version__, "results": results}, indent=1))


if __name__ == "__main__":
    main()
