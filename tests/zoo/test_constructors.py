"""Classes of models check what their functions check."""

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.space import Graph, Grid, Layers, Space
from denizen.space.generators import erdos_renyi
from denizen.zoo import ModelEntry, WorldEntry, entries
from denizen.zoo.asterix import Asterix
from denizen.zoo.boids import Boids
from denizen.zoo.control import control
from denizen.zoo.household_tracing import HouseholdTracing, household_tracing
from denizen.zoo.keydoor import keydoor
from denizen.zoo.life import Life
from denizen.zoo.schelling import Schelling
from denizen.zoo.seir import SEIR
from denizen.zoo.sir import SIR
from denizen.zoo.sir_vaccination import SIRVaccination
from denizen.zoo.strains import strains
from denizen.zoo.sugarscape.config import landscape
from denizen.zoo.sugarscape.model import Sugarscape
from denizen.zoo.traffic import Traffic
from denizen.zoo.wealth import Wealth
from denizen.zoo.wolf_sheep import WolfSheep, wolf_sheep

GRID, CONTACTS = Grid((5, 5)), Graph.from_edges(erdos_renyi(20, mean_degree=3, seed=0))
HOMES = household_tracing(CONTACTS).contacts

WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: WolfSheep(GRID, num_sheep=30, sheep_room=25), "sheep_room=25, expected a whole number, at least 30"),
    (lambda: WolfSheep(GRID, regrow_steps=0), "regrow_steps=0"),
    (lambda: HouseholdTracing(HOMES, isolation_days=200), "isolation_days=200, expected a whole number from 1 to 60"),
    (lambda: HouseholdTracing(Layers({"work": CONTACTS})), "contacts is Layers work, expected"),
    (lambda: Boids(Space(size=(9.0, 9.0)), num_agents=0), "boids: num_agents=0"),
    (lambda: Schelling(GRID, num_agents=26), "num_agents=26, expected a whole number from 2 to 25"),
    (lambda: Schelling(GRID, num_agents=5, need=9), "need=9, expected at most 8"),
    (
        lambda: Sugarscape(GRID, landscape(GRID), num_agents=9, vision=3),
        "vision=3, expected a whole number from 1 to 2",
    ),
    (lambda: Traffic(GRID, max_speed=5), "max_speed=5, expected a whole number from 1 to 4"),
    (lambda: Wealth(num_agents=1), "num_agents=1"),
    (lambda: Life(GRID, born=(9,)), "born=9, expected a whole number from 0 to 8"),
    (lambda: SIR(CONTACTS, infectious_phases=0), "sir: infectious_phases=0, expected a whole number from 1 to 120"),
    (lambda: SEIR(CONTACTS, latent_phases=70, infectious_phases=60), "70 + 60 phases, expected at most 120 together"),
    (lambda: keydoor(levels=2).replace(size=8), "size=8 and rooms=2 do not go with levels of 66 cells"),
    (lambda: Asterix(ramping="no"), "Asterix: ramping='no', expected True or False"),
    (lambda: SIRVaccination(CONTACTS, kind="leeky"), "did you mean 'leaky'"),
]


@pytest.mark.parametrize(("make", "told"), WRONG)
def test_a_class_checks_what_its_function_checks(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        make()


def everything() -> Iterator[Any]:
    """Each model and world of the zoo, as it comes."""
    for one in (*entries(ModelEntry).values(), *entries(WorldEntry).values()):
        takes = inspect.signature(one.build).parameters
        if "population" not in takes:  # covid and control: their fields are of these kinds as well
            yield one.build(CONTACTS) if "contacts" in takes else one.build()


def test_no_model_of_the_zoo_takes_another_kind_of_value() -> None:
    asked = 0
    for model in everything():
        for field in dataclasses.fields(model):
            value, name = getattr(model, field.name), field.name
            wrong: tuple[Any, ...] = ()
            if name in model.params:
                low = model.params[name].low
                wrong = (math.nan, math.inf, "x", *([] if low is None else [low - 1]))
                wrong = tuple(torch.full_like(value, bad) if bad != "x" else bad for bad in wrong)
            elif isinstance(value, bool):
                wrong = (0, "no", None)
            elif isinstance(value, int | float):
                wrong = (math.nan, "3", True, value + 0.5) if isinstance(value, int) else (math.nan, "3", True)
            for bad in wrong:
                asked += 1
                with pytest.raises(InputError, match=rf"(?i){type(model).__name__[:3]}.*{name}"):
                    model.replace(**{name: bad})
    assert asked > 300


def test_numbers_of_other_packages_become_plain() -> None:
    model = SIR(CONTACTS, infectious_phases=np.int64(3))
    assert type(model.infectious_phases) is int


def test_control_takes_no_model_that_asks() -> None:
    env = control(size=1000, weeks=2)
    with pytest.raises(InputError, match="control: the model within has interventions"):
        env.replace(model=env.model.replace(ask=lambda group, day: 0.5))


def test_the_second_strain_arrives_as_interventions_begin() -> None:
    """In the first step that begins on its day or after it."""
    model = strains(CONTACTS, arrival_day=2.2, seed_share=[0.0, 0.5])
    seen = dz.simulate(model, 5, compile=False)["second"][0]
    assert seen[:3].sum() == 0
    assert seen[3] > 0


def test_a_meadow_counts_animals() -> None:
    assert wolf_sheep(side=9, sheep=30, wolves=4).num_agents == 34
