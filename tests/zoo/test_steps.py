"""Steps of other lengths: every model of the zoo comes to the same limit as they get short, or refuses them by name."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import denizen as dz
from denizen import zoo
from denizen.errors import InputError
from denizen.population import synthetic
from denizen.relax import StraightThrough
from denizen.space.generators import random_in_neighbours
from denizen.zoo.covid import covid
from denizen.zoo.dotgat.opinions import Learnt, Opinions
from denizen.zoo.seir import seir
from denizen.zoo.sir import sir

AGENTS, WORLDS, DAYS, LIMIT = 500, 48, 12, 1 / 8
OFF = 0.06  # share of the infections of the limit by which a step of a day may be off, half a day by half of it
CONTACTS = dz.Graph.from_edges(random_in_neighbours(AGENTS, 8, seed=0))
RATES = {"infect_rate": 0.07, "infectious_days": 6.0, "seed_share": 0.1}
CONVERTS = {
    "sir": sir(CONTACTS, **RATES),
    "sir in phases": sir(CONTACTS, infectious_phases=3, **RATES),
    "seir": seir(CONTACTS, latent_days=3.0, **RATES),
    "seir in phases": seir(CONTACTS, latent_days=4.0, latent_phases=2, infectious_phases=3, **RATES),
}
SCHEDULED = dz.space.Layers({"home": CONTACTS, "school": CONTACTS}, {"school": [1.0, 0.0]})
CITY = covid(synthetic("astoria", size=400))
REFUSES = {
    "covid": (CITY, "kernel, stages, exposure history and weeks of R"),
    "sir by a schedule": (sir(SCHEDULED, **RATES), "'school' is a schedule"),
    "seir by a schedule": (seir(SCHEDULED, **RATES), "'school' is a schedule"),
    "opinions": (Opinions(contacts=CONTACTS), "a whole round"),
    "learnt opinions": (Learnt(network=torch.nn.Identity(), num_agents=5), "a whole round"),
}


def infections(model: dz.Model, dt: float) -> torch.Tensor:
    """Share infected within the days, by world."""
    run = dz.simulate(model, round(DAYS / dt), replicates=WORLDS, dt=dt, seed=1)
    return run["cases"].sum(dim=1).double() / AGENTS


@pytest.mark.parametrize("name", CONVERTS)
def test_short_steps_come_to_one_limit(name: str) -> None:
    limit = infections(CONVERTS[name], LIMIT)
    assert 0.3 < limit.mean() < 0.8  # in the middle of the epidemic, where its speed shows
    for dt in (2.0, 1.0, 0.5, 0.25):
        found = infections(CONVERTS[name], dt)
        noise = ((found.var() + limit.var()) / WORLDS).sqrt()
        assert abs(found.mean() - limit.mean()) < OFF * dt * limit.mean() + 3 * noise, (dt, found.mean(), limit.mean())
        assert noise < 0.04 * limit.mean()  # or else nothing would be tested


@pytest.mark.parametrize("dt", [2.0, 0.5, 0.25])
@pytest.mark.parametrize("name", REFUSES)
def test_what_counts_steps_refuses_other_ones(name: str, dt: float) -> None:
    model, why = REFUSES[name]
    with pytest.raises(InputError, match=rf"dt={dt:g}.*{why}.*(dt=1|leave dt out)"):
        dz.simulate(model, 3, dt=dt)
    model.fits(1.0)


def test_every_way_to_run_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relax: Any = StraightThrough()
    ways: list[Callable[[], Any]] = [
        lambda: dz.run.Gradient(CITY, lambda series: series["dead"].sum(), 2, wrt=["R"], relax=relax, dt=0.5),
        lambda: dz.run.check_precision(CITY, {"exposed": torch.bfloat16}, 2, replicates=2, relax=relax, dt=0.5),
        lambda: dz.run.resume(tmp_path / "run", CITY),
    ]
    with monkeypatch.context() as earlier:  # a folder of a version that took any dt
        earlier.setattr("denizen.zoo.covid.model.check_whole", lambda *_: None)
        dz.simulate(CITY, 2, dt=0.5, out=tmp_path / "run")
    for way in ways:
        with pytest.raises(InputError, match=r"covid: dt=0.5, expected 1"):
            way()


def test_no_model_of_the_zoo_is_left_out() -> None:
    sources = [path.read_text() for path in Path(zoo.__file__).parent.rglob("*.py")]
    found = {name for text in sources for name in re.findall(r"^class (\w+)\((?:dz\.)?Model\):", text, re.MULTILINE)}
    tested = [*CONVERTS.values(), *(model for model, _ in REFUSES.values())]
    assert found == {type(model).__name__ for model in tested}
