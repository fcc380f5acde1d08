"""Units: what users give becomes numbers of the parameter's unit; what does not fit is one line."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen import _units
from denizen.errors import InputError, ModelError
from denizen.model import Course
from denizen.zoo.sir import SIR

PAIR = dz.Graph.from_edges([0, 1], [1, 0], 2)
YEAR = 365.25


class Still(dz.State):
    seen: Tensor = dz.mask("agents")


class Trade(dz.Model):
    time_unit = "week"
    num_agents: int = 2
    income: Tensor = dz.param("52.1785714286 EUR/year", unit="EUR/week")
    way: Tensor = dz.param("3 km", unit="m")
    age: Tensor = dz.param(65, unit="years of age")
    share: Tensor = dz.param(0.5)

    def init(self, rng: dz.rng.Rng) -> Still:
        return Still(seen=rng.bernoulli("seen", 0.5))

    def step(self, now: Still, rng: dz.rng.Rng) -> Still:
        return now

    @dz.series
    def earned(self, now: Still) -> Tensor:
        return self.income * 1

    @dz.series
    def gone(self, now: Still) -> Tensor:
        return self.way * 1


@pytest.mark.parametrize(
    ("given", "unit", "number"),
    [
        ("0.35/week", "1/day", 0.05),
        ("0.35 per week", "1/day", 0.05),
        ("1/2/week", "1/day", 1 / 14),
        ("2 weeks", "day", 14),
        ("+1e1 h", "day", 10 / 24),
        ("1 year", "day", YEAR),
        ("7 contacts/week", "contact/day", 1),
        ("1e-3 / contact / week", "1/contact/day", 1e-3 / 7),
        ("4 day**-2", "1/week^2", 4 * 49),
        ("3 people", "people", 3),
        ("5 doses", "dose", 5),
        ("20 km/h", "m/s", 20 / 3.6),  # by pint
        ("20 degC", "kelvin", 293.15),
    ],
)
def test_quantities_become_numbers(given: str, unit: str, number: float) -> None:
    assert _units.number(given, unit) == pytest.approx(number)


def test_quantities_go_in_where_values_do() -> None:
    assert [float(getattr(Trade(), name)) for name in ("income", "way", "age")] == pytest.approx([1.0, 3000.0, 65.0])
    assert float(Trade(income="1 EUR/day").replace(way="1 m").income) == 7
    pint = pytest.importorskip("pint")
    units = pint.UnitRegistry()
    assert float(SIR(PAIR, infectious_days=units.Quantity(2, "weeks")).infectious_days) == 14
    run = dz.simulate(Trade(), 1, replicates=2, params={"way": units.Quantity([1.0, 2.0], "km")})
    assert run["gone"].tolist() == [[1000], [2000]]
    swept = dz.sweeps.sweep(Trade(), {"way": ["1 km", units.Quantity(2.0, "km"), "3"]}, steps=1, replicates=1)
    assert [float(row["way"]) for row in swept.sets] == [1000, 2000, 3]
    course = Course(target="income", values=["1 EUR/day", 3.0], every=1)
    assert dz.simulate(Trade(), 2, interventions=[course])["earned"].tolist() == [[7, 3]]


def declared(unit: str, time_unit: str) -> type[dz.Model]:
    return type(
        "Made",
        (dz.Model,),
        {"time_unit": time_unit, "rate": dz.param(1.0, unit=unit), "__annotations__": {"rate": Tensor}},
    )


@pytest.mark.parametrize(
    ("unit", "time_unit", "instead"),
    [("1/week", "day", "1/day"), ("1/contact/day", "week", "1/contact/week"), ("years", "day", "day")],
)
def test_a_unit_of_another_time_is_refused_where_it_is_declared(unit: str, time_unit: str, instead: str) -> None:
    told = f"Made.rate: unit={unit!r}, and the model's time_unit is {time_unit!r}"
    with pytest.raises(ModelError, match=f"{re.escape(told)}.*write unit={re.escape(repr(instead))}") as caught:
        declared(unit, time_unit)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("unit", "time_unit"), [("1/d", "day"), ("days", "day"), ("1/week", "step"), ("years of age", "day"), ("", "day")]
)
def test_other_units_are_not(unit: str, time_unit: str) -> None:
    assert declared(unit, time_unit).params["rate"].unit == unit


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: SIR(PAIR, infect_rate="0.35/week"), "SIR.infect_rate = '0.35/week': '/week' cannot be converted"),
    (lambda: SIR(PAIR, infect_rate="0.35"), "SIR.infect_rate = '0.35': no unit follows the number"),
    (lambda: SIR(PAIR, infect_rate="much"), "SIR.infect_rate = 'much': no number begins it; expected a number, or"),
    (lambda: SIR(PAIR, seed_share="3/day"), "SIR.seed_share = '3/day': the parameter has no unit"),
    (lambda: SIR(PAIR, infectious_days="-2 weeks"), "SIR.infectious_days = -14: expected at least 0.01 day"),
    (lambda: Trade(way="5 ms"), "Trade.way = '5 ms': 'ms' cannot be converted to 'm'"),
    (lambda: SIR(PAIR, infectious_days="3 parsecs"), "'parsecs' cannot be converted to 'day'"),
    (lambda: Trade(age="65 years"), "Trade.age = '65 years': the parameter has no unit that could be converted to"),
    (lambda: dz.param("3/0/day", unit="1/day"), "param: default = '3/0/day': '/0/day' is no unit"),
    (lambda: dz.simulate(SIR(PAIR), 1, params={"infect_rate": "1/week"}), "simulate: params['infect_rate'] = '1/week'"),
]


@pytest.mark.parametrize(("wrong", "told"), WRONG)
def test_what_does_not_fit_is_one_line(wrong: Callable[[], Any], told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)) as caught:
        wrong()
    assert "\n" not in str(caught.value)


def test_numbers_are_as_exact_as_they_were() -> None:
    assert torch.equal(SIR(PAIR, infectious_days="0.1 days").infectious_days, torch.tensor(0.1))
