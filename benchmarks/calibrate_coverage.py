"""How often the intervals of `dz.calibrate` hold the truth: many true values, one observed world each.

    python benchmarks/calibrate_coverage.py [--cases sir seir] [--truths 100] [--out RESULT.json]

SIR: 10,000 agents, 100 days, rate and days of infection, from daily cases. SEIR: 10,000 agents, 100 days, rate, latent
and infectious days, from daily cases and the number of the infectious. True values scatter by 15 % (sd of the
logarithm) around the models' defaults; the search begins at 0.7 times them.
"""

import argparse
import json
import subprocess
import time
from pathlib import Path

import numpy as np
import torch

import denizen as dz
from denizen.space import generators
from denizen.zoo.seir import seir
from denizen.zoo.sir import sir

AGENTS, DAYS, SPREAD, BEGIN = 10_000, 100, 0.15, 0.7
CASES = {
    "sir": (sir, {"infect_rate": 0.05, "infectious_days": 7.0}, ("cases",)),
    "seir": (seir, {"infect_rate": 0.05, "latent_days": 3.0, "infectious_days": 7.0}, ("cases", "infectious")),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    options.add_argument("--truths", type=int, default=100)
    options.add_argument("--first", type=int, default=0, help="number of the first truth")
    options.add_argument("--device")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    graph = dz.Graph.from_edges(generators.erdos_renyi(AGENTS, 10.0, seed=0))
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    rows = {name: measure(name, graph, given.truths, given.first, given.device) for name in given.cases}
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    for name, row in rows.items():
        print(f"{name}: {row['truths']} truths, {row['runs']:.0f} runs and {row['cpu_s']:.1f} CPU s a fit ({card})")
        for parameter, one in row["parameters"].items():
            print(
                f"  {parameter:<16} 90 % interval holds {one['held']} of {row['truths']}, error {one['rms']:.1%} rms, "
                f"stated {one['sd']:.1%}"
            )
    if given.out:
        found = {"card": card, "torch": torch.__version__, "commit": head, "rows": rows}
        given.out.write_text(json.dumps(found, indent=1) + "\n")


def measure(name: str, graph: dz.Graph, truths: int, first: int, device: str | None) -> dict:
    make, middle, series = CASES[name]
    held, errors, sds, runs, cpu = dict.fromkeys(middle, 0), [], [], [], time.process_time()
    start = make(graph, **{key: BEGIN * value for key, value in middle.items()})
    for number in range(first, first + truths):
        scatter = np.exp(SPREAD * np.random.default_rng(number).normal(size=len(middle)))
        truth = {key: float(value * factor) for (key, value), factor in zip(middle.items(), scatter, strict=True)}
        seen = dz.simulate(start.replace(**truth), DAYS, seed=10_000 + number, device=device)
        targets = {one: seen[one][0] for one in series}
        fit = dz.calibrate(start, targets, priors=list(middle), seed=number, device=device, progress=False)
        interval = fit.interval(0.9)
        for key, value in truth.items():
            held[key] += interval[key][0] <= value <= interval[key][1]
        errors.append([np.log(fit.params[key] / value) for key, value in truth.items()])
        sds.append([np.log(high / low) / 2 / 1.645 for low, high in interval.values()])
        runs.append(fit.runs)
    rms, stated = np.sqrt(np.mean(np.square(errors), axis=0)), np.sqrt(np.mean(np.square(sds), axis=0))
    parameters = {
        key: {"held": held[key], "rms": float(rms[k]), "sd": float(stated[k])} for k, key in enumerate(middle)
    }
    spent = (time.process_time() - cpu) / truths
    return {"truths": truths, "runs": float(np.mean(runs)), "cpu_s": spent, "parameters": parameters}


if __name__ == "__main__":
    main()
