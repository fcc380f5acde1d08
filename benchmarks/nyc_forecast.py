"""Forecasts of weekly COVID cases in New York City and its five boroughs, beside persistence and ARIMA.

    python benchmarks/nyc_forecast.py [--places bronx queens] [--agents 4000] [--out RESULT.json]

27 weeks of reported cases (../shared/data/nyc, or $DENIZEN_DATA_ROOT); the last four are held out of everything. A SEIR
model on a random graph is fitted to the others: an infection rate for every three weeks (a random walk), the seeds, and
the scatter of the counts. What cases alone do not tell is fixed: one in ten infections is reported, 5 days latent and 7
infectious, and every day one in 20,000 is infected elsewhere. Each agent stands for the people of the place over the
number of agents, so chance is overstated where agents are few, and low weeks are less than an agent. ARIMA
is refitted to the same weeks, on log(1 + cases), its orders chosen by AIC (needs statsmodels: `pip install
denizen[bench]`). Losing to either is a result like any other.

A forecast "from the start" simulates from the first week on; "filtered" goes on from states that the weeks lead to.
"""

import argparse
import itertools
import json
import os
import subprocess
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributions import Beta, LogNormal

import denizen as dz
from denizen.errors import need
from denizen.fit._scores import Scores, scores
from denizen.model import Act, During
from denizen.space import generators
from denizen.zoo.seir import SEIR, seir

PEOPLE = {  # census of 2020
    "city": 8_804_190,
    "bronx": 1_472_654,
    "brooklyn": 2_736_074,
    "manhattan": 1_694_251,
    "queens": 2_405_464,
    "staten_island": 495_747,
}
HELD_OUT, DRAWS, REPORT, IMPORTED = 4, 200, 0.1, 5e-5


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--places", nargs="+", default=list(PEOPLE), choices=list(PEOPLE))
    options.add_argument("--agents", type=int, default=4_000)
    options.add_argument("--particles", type=int, default=64, help="of a filtered forecast; 0: none")
    options.add_argument("--device")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    graph = dz.Graph.from_edges(generators.erdos_renyi(given.agents, 10.0, seed=0))
    found = {}
    for place in given.places:
        found[place] = measure(place, graph, given.particles, given.device)
        show(place, found[place])
        if given.out:
            head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
            card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
            told = {"card": card, "torch": torch.__version__, "commit": head.stdout.strip(), "agents": given.agents}
            given.out.write_text(json.dumps(told | {"places": found}, indent=1) + "\n")


def cases(place: str) -> np.ndarray:
    root = Path(os.environ.get("DENIZEN_DATA_ROOT", Path(__file__).parents[2] / "shared" / "data"))
    name = "nyc_cases.csv" if place == "city" else f"processed_{place}_covid_cases.csv"
    return np.loadtxt(root / "nyc" / name, skiprows=1)


def measure(place: str, graph: dz.Graph, particles: int, device: str | None) -> dict:
    values = cases(place)
    began = time.process_time()
    target = dz.fit.Target(
        values,
        every=7,
        report=REPORT,
        people=PEOPLE[place] / graph.num_agents,
        noise=dz.fit.NegativeBinomial(4),
    )
    priors = {
        "infect_rate": dz.fit.Steps(every=21, prior=dz.fit.Walk(sd=0.4, first=LogNormal(-3.0, 0.5))),
        "seed_share": Beta(1.0, 1_000.0),
        "cases.size": LogNormal(1.4, 1.0),
    }
    model = seir(graph, infect_rate=0.03, latent_days=5.0, infectious_days=7.0, seed_share=0.002)
    elsewhere = Act(change=imported, when=During(0), name="elsewhere")
    fit = dz.calibrate(
        model,
        {"cases": target},
        priors=priors,
        holdout=HELD_OUT,
        interventions=[elsewhere],
        device=device,
        progress=False,
    )
    held, last = values[-HELD_OUT:], values[-HELD_OUT - 1]
    rows = {"SEIR from the start": scores(fit.forecast(draws=DRAWS)["cases"], held, last)}
    if particles:
        rows["SEIR filtered"] = scores(fit.forecast(draws=64, particles=particles)["cases"], held, last)
    rows["ARIMA"] = scores(arima(values[:-HELD_OUT]), held, last)
    return {
        "scores": {name: asdict(row) for name, row in rows.items()},
        "held_out": held.tolist(),
        "fit": {name: np.round(value, 5).tolist() for name, value in fit.params.items()},
        "notes": [*fit.notes],
        "converged": fit.converged,
        "runs": fit.runs,
        "cpu_s": round(time.process_time() - began, 1),
    }


def imported(model: SEIR, now: Any, rng: dz.rng.Rng) -> Any:
    caught = rng.bernoulli("caught", IMPORTED)
    return now.replace(stage=now.stage.move(caught, "exposed", source="susceptible"))


def arima(before: np.ndarray) -> np.ndarray:
    """Paths of the ARIMA with the least AIC, `[2000, HELD_OUT]`."""
    model = need("statsmodels.tsa.arima.model", "bench", "forecast by ARIMA").ARIMA
    best = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of orders that fit badly, which AIC refuses
        for order in itertools.product(range(3), range(2), range(3)):
            one = model(np.log1p(before), order=order).fit()
            if best is None or one.aic < best.aic:
                best = one
        paths = best.simulate(HELD_OUT, repetitions=2_000, anchor="end", rng=np.random.default_rng(0))
    return np.expm1(np.asarray(paths).reshape(HELD_OUT, -1).T).clip(min=0)


def show(place: str, found: dict) -> None:
    held = ", ".join(f"{value:.0f}" for value in found["held_out"])
    print(f"{place}: held out {held}; {found['runs']} runs, {found['cpu_s']} CPU s")
    head = ("crps", "wis", "deviation", "coverage_50", "coverage_90")
    print(f"  {'':<20}" + "".join(f"{name:>14}" for name in head))
    for name, row in found["scores"].items():
        print(f"  {name:<20}" + "".join(f"{row[one]:>14.3g}" for one in head))
    row = Scores(**found["scores"]["ARIMA"])
    kept = (row.persistence_crps, row.persistence_crps, row.persistence_deviation)  # of a point, WIS is CRPS
    print(f"  {'persistence':<20}" + "".join(f"{one:>14.3g}" for one in kept))
    for note in found["notes"]:
        print(f"  {note}")


if __name__ == "__main__":
    main()
