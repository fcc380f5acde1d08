"""The influenza of a boarding school, January 1978: 763 boys, in bed on days 1 to 14 (R package outbreaks).

Known answers: least squares and the posterior under negative-binomial counts (Grinsztajn et al. 2021, doi
10.1002/sim.9164, and the solution of both by quadrature and optimisation that the calibration sheet reports).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Exponential, LogNormal, Normal, Uniform

import denizen as dz

IN_BED = [3, 8, 26, 76, 225, 298, 258, 233, 189, 128, 68, 29, 14, 4]
BOYS = 763
PARTS = 10  # of a day, for the method of Runge and Kutta


def in_bed(beta: Tensor, gamma: Tensor, ill: float = 1.0, days: int = 14) -> Tensor:
    """I of S' = -beta S I / N, I' = beta S I / N - gamma I, after each day: `[…, days]`."""
    h = 1 / PARTS
    state = torch.stack([torch.full_like(beta, BOYS - ill), torch.full_like(beta, ill)])
    found = []

    def slope(now: Tensor) -> Tensor:
        caught, healed = beta * now[0] * now[1] / BOYS, gamma * now[1]
        return torch.stack([-caught, caught - healed])

    for _ in range(days):
        for _ in range(PARTS):
            a = slope(state)
            b = slope(state + h / 2 * a)
            c = slope(state + h / 2 * b)
            d = slope(state + h * c)
            state = state + h / 6 * (a + 2 * b + 2 * c + d)
        found.append(state[1])
    return torch.stack(found, dim=-1)


def ode(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    return in_bed(theta[:, 0].double(), theta[:, 1].double())


FLAT = {"beta": Uniform(0.5, 5.0), "gamma": Uniform(0.05, 2.0)}


def test_least_squares() -> None:
    """Errors of one size for all days; those drawn scatter the estimate by a hundredth of its own standard error."""
    target = dz.fit.Target(IN_BED, kind="level", scale="identity", noise=dz.fit.Normal(20))
    fit = dz.calibrate(ode, {"in_bed": target}, priors=FLAT, replicates=2_000, progress=False)
    assert fit.params["beta"] == pytest.approx(1.669, abs=4e-3)
    assert fit.params["gamma"] == pytest.approx(0.443, abs=3e-3)
    assert fit.params["beta"] / fit.params["gamma"] == pytest.approx(3.76, abs=0.03)


def test_posterior_by_quadrature() -> None:
    """Priors beta N(2, 1) and gamma N(0.4, 0.5), both above 0, 1 / size Exp(5); weights on a grid of the three."""
    beta, gamma = torch.linspace(1.35, 2.25, 61).double(), torch.linspace(0.25, 0.9, 61).double()
    over = np.linspace(0.01, 0.8, 60)
    both = torch.cartesian_prod(beta, gamma)
    mean = in_bed(both[:, 0], both[:, 1]).numpy()
    prior = Normal(2.0, 1.0).log_prob(both[:, 0]) + Normal(0.4, 0.5).log_prob(both[:, 1])
    values = np.array(IN_BED, dtype=float)
    log = np.stack(
        [
            dz.fit.NegativeBinomial(1 / one).log_prob(values, mean).sum(1)
            + prior.numpy()
            + float(Exponential(5.0).log_prob(torch.tensor(one)))
            for one in over
        ],
        axis=1,
    )
    weights = np.exp(log - log.max())
    expected = {
        "beta": (both[:, 0].numpy()[:, None], 1.74, 1.64, 1.84),
        "gamma": (both[:, 1].numpy()[:, None], 0.544, 0.458, 0.638),
        "R0": ((both[:, 0] / both[:, 1]).numpy()[:, None], 3.21, 2.75, 3.84),
        "1/size": (over[None], 0.137, 0.040, 0.334),
    }
    for name, (at, mean_, low, high) in expected.items():
        at = np.broadcast_to(at, weights.shape).reshape(-1)
        order = np.argsort(at)
        share = np.cumsum(weights.reshape(-1)[order]) / weights.sum()
        found = [float((at * weights.reshape(-1)).sum() / weights.sum())]
        found += [float(at[order][np.searchsorted(share, q)]) for q in (0.025, 0.975)]
        assert found == pytest.approx([mean_, low, high], abs=0.02, rel=0.02), name


def counts(size: float | None = None) -> dz.fit.Target:
    return dz.fit.Target(IN_BED, kind="level", noise=dz.fit.NegativeBinomial(size or 7.0))


def test_the_scatter_is_fitted_with_the_rates() -> None:
    """The default method comes near the posterior; it takes scatter from how rough the values are, of 14 of them."""
    priors = {"beta": LogNormal(0.6, 0.4), "gamma": LogNormal(-0.8, 0.6), "in_bed.size": LogNormal(2.0, 1.0)}
    fit = dz.calibrate(ode, {"in_bed": counts()}, priors=priors, replicates=200, progress=False)
    low, high = fit.interval(0.95)["in_bed.size"]
    assert low < 1 / 0.04
    assert high > 1 / 0.334
    for name, mean, sd in (("beta", 1.74, 0.05), ("gamma", 0.544, 0.046)):
        assert abs(fit.params[name] - mean) < 2 * sd
        low, high = fit.interval(0.95)[name]
        assert 0.4 * 4 * sd < high - low < 2.5 * 4 * sd


class Boys(dz.State):
    stage: dz.model.Stage = dz.stage("agents", levels=("well", "ill", "over"))


class School(dz.Model):
    """The same with 763 boys who all meet, in steps of an eighth of a day, from the three who lie in bed on day 1."""

    num_agents: int = BOYS
    beta: Tensor = dz.param(1.7, low=0.0, unit="1/day")
    gamma: Tensor = dz.param(0.5, low=0.0, unit="1/day")

    def init(self, rng: dz.rng.Rng) -> Boys:
        well = torch.zeros(BOYS, dtype=torch.int8)
        return Boys(stage=dz.model.Stage((torch.arange(BOYS) < 3).to(well), ("well", "ill", "over")))

    def step(self, now: Boys, rng: dz.rng.Rng) -> Boys:
        ill = now.stage.is_("ill").sum()
        caught = rng.event("catch", (self.beta / 8 * ill / BOYS).expand(BOYS), where=now.stage.is_("well"))
        healed = rng.event("heal", (self.gamma / 8).expand(BOYS), where=now.stage.is_("ill"))
        return now.replace(stage=now.stage.move(healed, "over", source="ill").move(caught, "ill", source="well"))

    @dz.series
    def in_bed(self, now: Boys) -> Tensor:
        return now.stage.is_("ill").sum()


def mixed(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    """The equation from the same three boys on."""
    return in_bed(theta[:, 0].double(), theta[:, 1].double(), ill=3.0, days=13)


@pytest.mark.slow
def test_the_agents_say_less() -> None:
    """Agents add chance to the equation: their estimates agree with its own, with wider intervals."""
    priors = {"beta": LogNormal(0.6, 0.4), "gamma": LogNormal(-0.8, 0.6)}
    noise = dz.fit.NegativeBinomial(1 / 0.137)
    options: dict[str, Any] = {"priors": priors, "replicates": 128, "progress": False}
    daily = dz.fit.Target(IN_BED[1:], kind="level", noise=noise)
    parts = dz.fit.Target(IN_BED[1:], every=8, kind="level", noise=noise)
    equation = dz.calibrate(mixed, {"in_bed": daily}, **options)
    agents = dz.calibrate(School(), {"in_bed": parts}, device="cpu", **options)
    widths = []
    for fit in (equation, agents):
        low, high = fit.interval()["beta"]
        widths.append(math.log(high / low))
    assert widths[1] > 1.2 * widths[0]
    low, high = agents.interval(0.95)["beta"]
    assert low < 1.74 < high
    low, high = agents.interval(0.95)["gamma"]
    assert low < 0.544 < high
