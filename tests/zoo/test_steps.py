"""Steps of other lengths: every model of the zoo comes to the same limit as they get short, or refuses them by name."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import denizen as dz
from denizen import zoo
from denizen.disease import Vaccine, Waning
from denizen.errors import InputError
from denizen.population import synthetic
from denizen.relax import StraightThrough
from denizen.space.generators import random_in_neighbours
from denizen.zoo import ModelEntry, entries
from denizen.zoo.covid import covid
from denizen.zoo.dotgat.opinions import Learnt, Opinions
from denizen.zoo.hiv.model import HIV
from denizen.zoo.household_tracing import HouseholdTracing
from denizen.zoo.seir import SEIR, seir
from denizen.zoo.sir import SIR, sir
from denizen.zoo.sir_vaccination.model import SIRVaccination
from denizen.zoo.sirs.model import SIRS
from denizen.zoo.sis.model import SIS
from denizen.zoo.strains.model import Strains
from denizen.zoo.voter.model import Voter

AGENTS, WORLDS, DAYS, LIMIT = 500, 48, 12, 1 / 8
# Share of the infections of the limit by which a step of a day may be off, half a day by half of it.
OFF, OFF_IN_GENERATIONS = 0.06, 0.08  # the latter where cases transmit from the step after
CONTACTS = dz.Graph.from_edges(random_in_neighbours(AGENTS, 8, seed=0))
RATES = {"infect_rate": 0.07, "infectious_days": 6.0, "seed_share": 0.1}
CONVERTS = {
    "sir": sir(CONTACTS, **RATES),
    "sir in phases": sir(CONTACTS, infectious_phases=3, **RATES),
    "seir": seir(CONTACTS, latent_days=3.0, **RATES),
    "seir in phases": seir(CONTACTS, latent_days=4.0, latent_phases=2, infectious_phases=3, **RATES),
}
TOWN = synthetic("astoria", size=AGENTS)
SEEDED = np.where(np.arange(AGENTS) % 10 == 0, np.arange(AGENTS) // 10 % 2 + 1, 0)
TOWN = dataclasses.replace(TOWN, columns={**TOWN.columns, "disease_stages": SEEDED.astype(np.uint8)})
CITY = covid(TOWN, symmetrize=True, R=[5.0])
CONVERTS["covid"] = CITY
CASES = {"covid": "daily_infected"}
SCHEDULED = dz.space.Layers({"home": CONTACTS, "school": CONTACTS}, {"school": [1.0, 0.0]})
REFUSES = {
    "opinions on contacts": (Opinions(contacts=CONTACTS), "a whole round"),
    "learnt opinions": (Learnt(network=torch.nn.Identity(), num_agents=5), "a whole round"),
}
BY_SCHEDULE = {"covid": CITY.replace(contacts=SCHEDULED)}
BY_SCHEDULE |= {made.__name__: made(SCHEDULED) for made in (SIR, SEIR, SIS, SIRS, Strains, SIRVaccination)}
REFUSES |= {f"{name} by a schedule": (model, "'school' is a schedule") for name, model in BY_SCHEDULE.items()}
GRIDS = ("ants", "boids", "circles", "forest_fire", "life", "opinions", "schelling", "sugarscape", "traffic", "wealth")
REFUSES |= {name: (entries(ModelEntry)[name].build(), "expected 1: ") for name in (*GRIDS, "wolf_sheep")}
HOMES = dz.space.Layers({"home": CONTACTS, "outside": CONTACTS})
REFUSES["household_tracing"] = (HouseholdTracing(HOMES), "infections and isolation are counted in days")
SMALL = dz.Graph.from_edges(random_in_neighbours(150, 8, seed=0))
# Those for which there is no one number of infections; `dz.check` looks at all of their series.
CHECKED = {
    "sis": lambda: SIS(SMALL, turnover=0.01),
    "sirs": lambda: SIRS(SMALL, immune_days=10.0, turnover=0.01),
    "strains": lambda: Strains(SMALL, arrival_day=3.0),
    "sir_vaccination": lambda: SIRVaccination(SMALL, first_day=3.0, waning_days=20.0),
    "covid with a vaccine": lambda: covid(TOWN, symmetrize=True, vaccine=Vaccine(0.9, "all_or_nothing", Waning(20.0))),
    "voter": lambda: Voter(SMALL),
    "hiv": lambda: HIV(num_agents=100, seed_share=0.2),
}


def infections(name: str, dt: float) -> torch.Tensor:
    """Share infected within the days, by world."""
    run = dz.simulate(CONVERTS[name], round(DAYS / dt), replicates=WORLDS, dt=dt, seed=1)
    return run[CASES.get(name, "cases")].sum(dim=1).double() / AGENTS


@pytest.mark.parametrize("name", CONVERTS)
def test_short_steps_come_to_one_limit(name: str) -> None:
    limit, off = infections(name, LIMIT), OFF_IN_GENERATIONS if name == "covid" else OFF
    assert 0.3 < limit.mean() < 0.8  # in the middle of the epidemic, where its speed shows
    for dt in (2.0, 1.0, 0.5, 0.25):
        found = infections(name, dt)
        noise = ((found.var() + limit.var()) / WORLDS).sqrt()
        assert abs(found.mean() - limit.mean()) < off * dt * limit.mean() + 3 * noise, (dt, found.mean(), limit.mean())
        assert noise < 0.04 * limit.mean()  # or else nothing would be tested


@pytest.mark.parametrize("dt", [2.0, 0.5, 0.25])
@pytest.mark.parametrize("name", REFUSES)
def test_what_counts_steps_refuses_other_ones(name: str, dt: float) -> None:
    model, why = REFUSES[name]
    with pytest.raises(InputError, match=rf"dt={dt:g}.*{why}.*(dt=1|leave dt out)"):
        dz.simulate(model, 3, dt=dt)
    model.fits(1.0)


@pytest.mark.parametrize("dt", [0.25, 2.0])
def test_a_course_of_covid_lasts_as_many_days(dt: float) -> None:
    still = covid(TOWN, R=0.0, mortality=0.5)  # only seeds, whose course holds no chance
    daily, run = (dz.simulate(still, round(24 / size), dt=size) for size in (1.0, dt))
    for name in daily.series_names:
        each, now = daily[name][0].double(), run[name][0].double()
        if daily.kinds[name] == "flow":
            each, now = each.cumsum(0), now.cumsum(0)
        ends = round(max(dt, 1)) - 1, round(max(1 / dt, 1)) - 1  # the ends of days, or of steps of two
        assert torch.equal(each[ends[0] :: round(max(dt, 1))], now[ends[1] :: round(max(1 / dt, 1))]), name
    tables = [dz.model.by_step(still.infector[still.stage] * still.kernel, size) * size for size in (1.0, dt)]
    assert torch.allclose(tables[0].sum(1), tables[1].sum(1), rtol=1e-6)  # hazard along a contact, per R


def test_covid_asks_once_a_day_and_goes_through_its_weeks() -> None:
    asked: list[int] = []

    def answer(group: str, day: int) -> float:
        asked.append(day)
        return 0.0

    dz.simulate(covid(TOWN, isolation=answer), 12, dt=0.25)
    assert asked == [day for day in range(3) for _ in range(6)]
    weeks = CITY.replace(R=[0.0, 5.0, 0.0])
    for dt in (0.5, 2.0):
        new = dz.simulate(weeks, round(28 / dt), dt=dt)["daily_infected"][0]
        first, last = int((new > 0).nonzero()[0]), int((new > 0).nonzero()[-1])
        assert (first, last) == (round(7 / dt + 0.1), round(14 / dt + 0.1) - 1)


@pytest.mark.parametrize("dt", [0.3, 0.7, 1.5, 13.0])
def test_covid_refuses_what_does_not_fit_its_days(dt: float) -> None:
    with pytest.raises(InputError, match=rf"covid: dt={dt:g}, expected (a part of a day|no more than the shortest)"):
        dz.simulate(CITY, 3, dt=dt)


def test_every_way_to_run_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relax: Any = StraightThrough()
    ways: list[Callable[[], Any]] = [
        lambda: dz.run.Gradient(CITY, lambda series: series["dead"].sum(), 2, wrt=["R"], relax=relax, dt=0.3),
        lambda: dz.run.check_precision(CITY, {"exposed": torch.bfloat16}, 2, replicates=2, relax=relax, dt=0.3),
        lambda: dz.run.resume(tmp_path / "run", CITY),
    ]
    with monkeypatch.context() as earlier:  # a folder of a version that took any dt
        earlier.setattr("denizen.zoo.covid.model.check_days", lambda *_: None)
        dz.simulate(CITY, 2, dt=0.3, out=tmp_path / "run")
    for way in ways:
        with pytest.raises(InputError, match=r"covid: dt=0.3, expected a part of a day"):
            way()


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKED)
def test_all_series_come_to_a_limit(name: str) -> None:
    report = dz.check(CHECKED[name](), dt=True, until=8.0, steps=2, gradient=False)
    assert report.ok, report
    assert any("series come to one limit as steps get short" in sentence for sentence in report.proved), report


def test_no_model_of_the_zoo_is_left_out() -> None:
    sources = [path.read_text() for path in Path(zoo.__file__).parent.rglob("*.py")]
    found = {name for text in sources for name in re.findall(r"^class (\w+)\((?:dz\.)?Model\):", text, re.MULTILINE)}
    found |= {entry.model.__name__ for entry in zoo.entries(zoo.ModelEntry).values()}  # one may take over another
    found |= {type(CHECKED["covid with a vaccine"]()).__name__}
    tested = [*CONVERTS.values(), *(model for model, _ in REFUSES.values()), *(make() for make in CHECKED.values())]
    assert found == {type(model).__name__ for model in tested}
