"""Classes of models check what their functions check."""

import re
from collections.abc import Callable
from typing import Any

import pytest

import denizen as dz
from denizen.errors import InputError
from denizen.space import Graph, Grid, Layers, Space
from denizen.space.generators import erdos_renyi
from denizen.zoo.boids import Boids
from denizen.zoo.control import control
from denizen.zoo.household_tracing import HouseholdTracing, household_tracing
from denizen.zoo.life import Life
from denizen.zoo.schelling import Schelling
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
    (lambda: SIRVaccination(CONTACTS, kind="leeky"), "did you mean 'leaky'"),
]


@pytest.mark.parametrize(("make", "told"), WRONG)
def test_a_class_checks_what_its_function_checks(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        make()


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
