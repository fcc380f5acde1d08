"""COVID at Astoria's size, fitted on one card: twenty weekly R, runs a second over parameter sets, a step of slopes.

    python benchmarks/calibrate_city.py [--device cuda] [--agents 37518] [--weeks 20] [--out RESULT.json]

Check: the fitted curve's mean lies within a quarter of the observed total, the 90 % intervals hold most of the truth.
Times: the fit as a user starts it (model built, nothing compiled), the same fit again in the process, runs a second of
a batch of parameter sets, and one gradient step of 64 worlds. Goals on one H200: 60 s for the fit, 500 runs a second.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import _cuda
import numpy as np
import torch

import denizen as dz
from denizen.zoo.covid import covid

SERIES = "daily_infected"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--agents", type=int, default=37_518)
    parser.add_argument("--weeks", type=int, default=20)
    parser.add_argument("--days", type=int, default=130, help="of the batch of parameter sets and of the slopes")
    parser.add_argument("--sets", type=int, default=256)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    people = dz.population.synthetic("astoria", given.agents, networks=["0"])
    truth = 1.0 + 0.2 * np.sin(np.arange(given.weeks) / 2.5)  # an epidemic that lasts
    model = covid(people, symmetrize=True, R=[1.0] * given.weeks)
    days = 7 * given.weeks
    true = model.replace(R=truth.tolist())
    observed = dz.simulate(true, days, seed=77, device=given.device)[SERIES][0].double().cpu().numpy()
    found: dict[str, Any] = _cuda.facts(given.device)
    for turn in ("first", "again"):
        began = time.perf_counter()
        fit = dz.calibrate(
            model, {SERIES: observed}, priors=["R"], device=given.device, seed=1 + (turn == "again"), progress=False
        )
        spent = time.perf_counter() - began
        low, high = (np.asarray(end) for end in fit.interval(0.9)["R"])
        held = int(((low <= truth) & (truth <= high)).sum())
        total = float(fit.curve()[SERIES].mean(0).sum() / observed.sum())
        assert held >= 0.6 * given.weeks, held
        assert 0.8 < total < 1.25, total
        found[f"fit, {turn}"] = {
            "seconds": spent,
            "runs": fit.trace[-1].runs,
            "runs_per_second": fit.trace[-1].runs / spent,
            "held": held,
            "rms": float(np.sqrt(np.mean((np.asarray(fit.params["R"]) - truth) ** 2))),
            "total": total,
        }
        print(turn, found[f"fit, {turn}"], flush=True)
    sets = torch.linspace(0.8, 1.4, given.sets)[:, None].expand(-1, given.weeks).contiguous()
    run = dz.simulate(model, 0, worlds=[0] * given.sets, params={"R": sets}, device=given.device, compile=True)
    run.extend(given.days)  # compiles and captures
    wait(given.device)
    best = np.inf
    for _ in range(3):
        began = time.perf_counter()
        run.extend(given.days)
        wait(given.device)
        best = min(best, time.perf_counter() - began)
    found["sets"] = {"number": given.sets, "ms": best * 1e3, "runs_per_second": given.sets / best}
    print(found["sets"], flush=True)
    goal = torch.tensor(observed[: given.days], dtype=torch.float32, device=given.device)
    slopes = dz.run.Gradient(
        model,
        lambda series: ((series[SERIES].mean(0) - goal) ** 2).mean(),
        given.days,
        wrt=["R"],
        relax=dz.relax.StraightThrough(),
        replicates=64,
        device=given.device,
    )
    slopes()
    slopes()
    wait(given.device)
    began = time.perf_counter()
    for _ in range(3):
        slopes()
    wait(given.device)
    found["gradient of 64 worlds"] = {"ms": (time.perf_counter() - began) / 3 * 1e3}
    if given.device == "cuda":
        found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))


def wait(device: str) -> None:
    """For what was launched."""
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
