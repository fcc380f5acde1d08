"""`relax.measure`: what it calls biased is biased, what it recommends, what it refuses."""

import math
import re
from typing import Any

import pytest
from torch import Tensor

import denizen as dz
from denizen.errors import InputError
from denizen.relax import Logistic, MeanField, StraightThrough, measure
from denizen.zoo.sir import SIR

AGAIN = ("differences", "Logistic(tau=0.5)")


class Coins(dz.State):
    heads: Tensor = dz.mask("agents")


class Squares(dz.Model):
    """(x - 0.3)² of Bernoulli x, 100 coins a world: the slope of a coin's mean is 0.4 at every p."""

    p: Tensor = dz.param(0.1, low=0.0, high=1.0)
    other: Tensor = dz.param(0.5, low=0.0)
    fixed: Tensor = dz.param(0.0, low=-1.0)
    num_agents: int = 100

    def init(self, rng: dz.rng.Rng) -> Coins:
        return Coins(heads=rng.bernoulli("none", 0.0))

    def step(self, now: Coins, rng: dz.rng.Rng) -> Coins:
        rng.bernoulli("noise", 0.5 + 0 * self.other)
        return now.replace(heads=rng.bernoulli("toss", self.p))

    @dz.series
    def square(self, now: Coins) -> Tensor:
        return ((now.heads - 0.3) ** 2).mean()


def test_known_slopes_and_biases_are_told() -> None:
    found = measure(
        Squares(), 20, worlds=64, change=0.5, wrt=["p", "other"], relaxations=[StraightThrough(), MeanField()]
    )
    assert (found.model, found.steps, found.series, found.worlds) == ("Squares", 20, "square", 64)
    rows = {(row.param, row.by): row for row in found.slopes}
    exact = rows["p", "differences"]
    assert exact.slope == pytest.approx(20 * 0.4 * 0.1, abs=4 * exact.error)
    assert exact.ratio == 1.0
    through = rows["p", "StraightThrough()"]
    assert through.slope == pytest.approx(20 * -0.4 * 0.1, abs=4 * through.error)
    assert through.ratio == pytest.approx(-1.0, abs=0.2)
    assert rows["p", "MeanField()"].slope == pytest.approx(20 * 2 * (0.1 - 0.3) * 0.1, rel=1e-4)
    assert all(math.isnan(row.ratio) for row in found.slopes if row.param == "other")  # which moves nothing
    assert found.errors()["StraightThrough()"] == pytest.approx(2.0, abs=0.2)
    assert found.best is None  # (x - 0.3)² has its slope from draws that come out otherwise, as none of these see
    text = str(found)
    assert "Squares: slopes of all square of 20 steps, 64 worlds" in text
    assert re.search(r"│ p +│ StraightThrough\(\) +│ -0.8.* │ -1.0", text)
    assert "take none of them here: differences under common random numbers" in text


def test_it_says_which_to_take() -> None:
    graph = dz.Graph.from_edges(dz.space.generators.erdos_renyi(300, 10.0, seed=1))
    model = SIR(graph, infect_rate=0.05, infectious_days=7.0, seed_share=0.05)
    found = measure(model, 20, worlds=48, relaxations=[StraightThrough(), Logistic()])
    assert [row.by for row in found.slopes] == 2 * ["differences", "StraightThrough()", "Logistic(tau=0.5)"]
    errors = found.errors()
    assert errors["Logistic(tau=0.5)"] < errors["StraightThrough()"]
    assert found.best == "Logistic(tau=0.5)"
    assert "take Logistic(tau=0.5)" in str(found)
    again = measure(model, 20, worlds=48, relaxations=[Logistic()])
    assert [row.slope for row in again.slopes] == [row.slope for row in found.slopes if row.by in AGAIN]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": Squares}, "measure: model=.*expected an instance of a dz.Model"),
        ({"steps": 0}, "measure: steps=0"),
        ({"worlds": 4}, "measure: worlds=4, expected a whole number, at least 8"),
        ({"change": 1.5}, "measure: change=1.5, expected a share of the parameter below 1"),
        ({"series": "squares"}, "measure: series='squares'; did you mean 'square'"),
        ({"wrt": ["q"]}, "measure: wrt has 'q'"),
        ({"wrt": "p"}, "measure: wrt='p', expected names"),
        ({"wrt": ["fixed"]}, "measure: fixed is 0, and a relative change leaves it there"),
        ({"model": Squares(p=1.0)}, "measure: p ± 5% leaves its bounds"),
        ({"relaxations": []}, "measure: relaxations is empty"),
        ({"relaxations": [MeanField]}, "relax=<class .*expected an object"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        measure(**{"model": Squares(), "steps": 2, "worlds": 8, **arguments})
