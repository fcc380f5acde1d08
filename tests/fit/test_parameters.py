"""Priors in the numbers that a search moves on, and the densities of noise."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch.distributions import Beta, Distribution, ExpTransform, LogNormal, Normal, TransformedDistribution, Uniform

import denizen as dz
from denizen.errors import InputError
from denizen.space import generators
from denizen.zoo.sir import sir

LOG_UNIFORM = TransformedDistribution(Uniform(math.log(0.01), math.log(0.15)), [ExpTransform()])
CONTACTS = generators.erdos_renyi(100, 4.0, seed=0)
PRIORS = [Normal(1.0, 2.0), LogNormal(0.3, 0.5), Uniform(-1.0, 3.0), Beta(2.0, 3.0), LOG_UNIFORM]


@pytest.mark.parametrize("noise", [dz.fit.Poisson(), dz.fit.NegativeBinomial(5)], ids=["poisson", "negative-binomial"])
def test_counts_have_the_density_that_they_are_drawn_from(noise: dz.fit.Noise) -> None:
    values, mean = np.arange(400.0), np.full(400, 30.0)
    density = np.exp(noise.log_prob(values, mean))
    uniform = (np.arange(100_000) + 0.5) / 100_000
    drawn = noise.draw(np.full(100_000, 30.0), uniform)
    assert density.sum() == pytest.approx(1, abs=1e-6)
    assert drawn.mean() == pytest.approx((values * density).sum(), rel=1e-3)
    assert drawn.var() == pytest.approx((values**2 * density).sum() - (values * density).sum() ** 2, rel=5e-3)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: LogNormal(0.0, -1.0), r"LogNormal\(loc=0, scale=-1\); expected scale"),
        (lambda: Normal(0.0, 0.0), "expected scale"),
        (lambda: Normal(float("nan"), 1.0), "expected loc Real"),
        (lambda: Uniform(0.5, 0.1), r"Uniform\(low=0.5, high=0.1\); expected low LessThan"),
        (lambda: TransformedDistribution(Normal(0.0, -1.0), [ExpTransform()]), "expected scale"),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        lambda prior: dz.fit.Target(np.ones(9), delay=prior),
        lambda prior: dz.fit.Steps(prior=prior),
        lambda prior: dz.calibrate(lambda a, worlds: a, {"y": np.ones(9)}, priors={"a": prior}, progress=False),
        lambda prior: dz.calibrate(sir(CONTACTS), {"cases": np.ones(9)}, priors={"infect_rate": prior}),
    ],
    ids=["delay", "steps", "function", "model"],
)
def test_arguments_of_a_distribution_are_checked_where_torch_no_longer_does(
    make: Callable[[], Distribution], told: str, use: Callable[[Distribution], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any torch.compile turns torch's checks off for the process."""
    monkeypatch.setattr(Distribution, "_validate_args", False)
    prior = make()
    with pytest.raises(InputError, match=told):
        use(prior)
