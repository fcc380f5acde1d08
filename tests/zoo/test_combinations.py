"""Models with kinds of agents, space, cells and ties through everything that runs models."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import denizen as dz
from denizen.run import EventLog, Run, Snapshots
from denizen.zoo.boids import boids
from denizen.zoo.circles import circles
from denizen.zoo.hiv import HIV
from denizen.zoo.schelling import schelling
from denizen.zoo.sugarscape import sugarscape
from denizen.zoo.wolf_sheep import wolf_sheep

STEPS = 4
# model, a parameter with three values, a series, events that are logged
MODELS: dict[str, tuple[Callable[[], Any], tuple[str, list[float]] | None, str, list[str]]] = {
    "kinds": (
        lambda: wolf_sheep(side=9, sheep=20, wolves=6),
        ("sheep_birth", [0.1, 0.2, 0.4]),
        "sheep",
        ["graze/ate", "hunt/eaten"],
    ),
    "space": (lambda: boids(30), ("cohere", [0.01, 0.03, 0.09]), "order", []),
    "plane": (lambda: circles(30, dims=2), ("push", [0.02, 0.05, 0.1]), "drift", []),
    "grid": (lambda: schelling(9, 9, num_agents=60), None, "segregation", ["unhappy"]),
    "fields": (lambda: sugarscape(15, 15, num_agents=30, vision=3), None, "population", ["gathered"]),
    "ties": (lambda: HIV(num_agents=120, seed_share=0.1), ("infect_rate", [0.01, 0.1, 0.5]), "infected", ["caught"]),
}


def same(one: Run, other: Run, rows: slice = slice(None)) -> bool:
    """Whether series and snapshots are those of some replicates of another run."""
    pairs = [(one[name], other[name][rows]) for name in one.series_names]
    for step in range(2, STEPS + 1, 2):
        ours, theirs = one.snapshots.at(step), other.snapshots.at(step)
        pairs += [(ours[name], theirs[name][rows]) for name in ours]
    return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


@pytest.mark.parametrize("what", MODELS)
def test_every_way_to_run_a_model_gives_the_same(what: str, tmp_path: Path) -> None:
    make, parameter, series, events = MODELS[what]
    model, options = make(), {"seed": 5, "compile": False, "snapshots": Snapshots(every=2)}

    def log() -> EventLog | None:
        return EventLog(events) if events else None

    run = dz.simulate(model, STEPS, replicates=3, log=log(), **options)
    assert same(dz.simulate(model, STEPS, worlds=[2], log=log(), **options), run, slice(2, 3))

    dz.simulate(model, 3, replicates=3, log=log(), out=tmp_path / "run", **options)
    resumed = dz.run.resume(tmp_path / "run", make(), STEPS - 3, log=log(), compile=False)
    assert same(resumed, run)
    for event in events:
        ours, theirs = resumed.events(event).columns, run.events(event).columns
        assert all((ours[name] == theirs[name]).all() for name in theirs)
    assert str(run.compare(resumed))

    noise = dz.fit.Normal(max(0.05, float(run[series].double().std())))
    watched = {series: dz.fit.Target(run[series].double().mean(0).numpy(), noise=noise)}
    assert math.isfinite(dz.fit.filter(model, watched, particles=8, compile=False).log_likelihood)
    if parameter is None:
        return
    name, values = parameter
    alone = [dz.simulate(model.replace(**{name: value}), STEPS, replicates=2, **options) for value in values]
    beside = dz.simulate(model, STEPS, replicates=3, params={name: torch.tensor(values)}, **options)
    for k, one in enumerate(alone[:2]):  # replicate k of a run is world k
        assert torch.equal(one[series][k], beside[series][k])
    design = dz.sweeps.Grid({name: values})
    swept = dz.sweeps.sweep(model, design, steps=STEPS, replicates=2, seed=5, compile=False, progress=False)
    assert torch.equal(torch.as_tensor(swept[series]).double(), torch.stack([one[series] for one in alone]).double())
    prior = {name: torch.distributions.Uniform(min(values), max(values))}
    fit = dz.calibrate(model, watched, priors=prior, method=dz.fit.CMAES(runs=16), replicates=2, progress=False)
    assert min(values) <= float(fit.params[name]) <= max(values)
