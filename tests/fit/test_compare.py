"""Scenarios of fits beside each other: the same worlds, paired differences."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

import denizen as dz
from denizen.errors import InputError
from denizen.space import generators
from denizen.zoo.sir import SIR, sir

TIMES = torch.arange(12) / 12


def line(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    noise = torch.as_tensor(np.stack([np.random.default_rng([5, world]).normal(size=12) for world in worlds]))
    return theta[:, :1] + theta[:, 1:] * TIMES + 3 * noise


@pytest.fixture(scope="module")
def of_line() -> dz.fit.Fit:
    values = line(torch.tensor([[1.0, 2.0]]), [999])[0]
    priors = {"level": Normal(0.0, 10.0), "slope": Normal(0.0, 10.0)}
    return dz.calibrate(line, {"y": dz.fit.Target(values, scale="identity")}, priors=priors, progress=False)


def test_a_difference_is_exact_where_all_else_is_the_same(of_line: dz.fit.Fit) -> None:
    """Two levels, 1 apart: totals of twelve values are 12 apart in every world, whatever noise and slope are."""
    first, second = of_line.scenario({"level": 1.0}), of_line.scenario({"level": 2.0})
    row = dz.fit.compare(first, second, draws=10)["y"]
    assert (row.difference, row.low, row.high) == pytest.approx((12, 12, 12))
    assert row.less == 0
    assert of_line.compare(of_line, draws=10)["y"].difference == 0


def test_an_interval_holds_its_share(of_line: dz.fit.Fit) -> None:
    """Level fixed on one side: what differs is its scatter in the fit, normal with a known standard deviation."""
    row = of_line.compare(of_line.scenario({"level": of_line.params["level"]}), draws=2_000)["y"]
    reach = 12 * 1.645 * of_line._sd()[0]
    assert row.low == pytest.approx(-reach, rel=0.1)
    assert row.high == pytest.approx(reach, rel=0.1)
    assert row.less == pytest.approx(0.5, abs=0.04)


@pytest.fixture(scope="module")
def model() -> SIR:
    return sir(generators.erdos_renyi(500, 10.0, seed=0), infect_rate=0.05)


@pytest.fixture(scope="module")
def fit(model: SIR) -> dz.fit.Fit:
    values = dz.simulate(model, 35, seed=9, device="cpu")["cases"][0].reshape(-1, 7).sum(1)
    target = dz.fit.Target(values, every=7)
    return dz.calibrate(model, {"cases": target}, priors=["infect_rate"], replicates=4, device="cpu", progress=False)


def test_scenarios_of_a_model(fit: dz.fit.Fit, model: SIR) -> None:
    found = fit.compare(fit.scenario({"infect_rate": 0.01}), draws=8, steps=20)
    assert [(row.name, row.measure) for row in found.rows][:3] == [
        ("cases", "total"), ("infected", "peak"), ("infected", "end")
    ]  # fmt: skip
    row = found["cases"]
    assert row.less > 0.9  # one dies out on both sides
    assert row.high < 0
    worlds = list(range(fit._solution.worlds, fit._solution.worlds + 8))
    alone = dz.simulate(model.replace(infect_rate=0.01), 20, worlds=worlds, device="cpu")["cases"]
    assert row.b == pytest.approx(float(alone.sum(1).double().mean()))
    assert "a: as fitted\nb: infect_rate=0.01\n8 worlds" in str(found)


def test_interventions_and_parameters_that_were_not_fitted(fit: dz.fit.Fit) -> None:
    half = dz.model.Scale(target="infect_rate", factor=0.2, when=dz.model.During(5))
    assert fit.compare(fit.scenario(interventions=[half]), draws=8)["cases"].high < 0
    assert fit.compare(fit.scenario({"infectious_days": 3.0}, name="shorter"), draws=8)["cases"].high < 0


def test_what_cannot_be_compared_is_told(fit: dz.fit.Fit, of_line: dz.fit.Fit) -> None:
    with pytest.raises(InputError, match="did you mean 'infect_rate'"):
        fit.scenario({"infect_rat": 1.0})
    with pytest.raises(InputError, match="expected values by name"):
        fit.scenario(["infect_rate"])  # pyrefly: ignore
    with pytest.raises(InputError, match="interventions are for a model"):
        of_line.scenario(interventions=[dz.model.Scale(target="a", factor=1.0, when=dz.model.During(0))])
    with pytest.raises(InputError, match="expected a Fit"):
        fit.compare(0.01)  # pyrefly: ignore
    with pytest.raises(InputError, match=r"no series in common: cases, .* and y"):
        fit.compare(of_line, draws=2)
    with pytest.raises(InputError, match="expected numbers of shape"):
        fit.compare(fit.scenario({"infect_rate": [0.1, 0.2]}), draws=2)
    with pytest.raises(InputError, match="at least 0"):
        fit.compare(fit.scenario({"infect_rate": -1.0}), draws=2)
    with pytest.raises(InputError, match="no such series; did you mean 'cases'"):
        fit.compare(fit, draws=2)["case"]
