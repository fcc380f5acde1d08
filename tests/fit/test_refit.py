"""Profiles and the bootstrap, on a linear model whose answer is known."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, Uniform

import denizen as dz
from denizen.errors import InputError

TIMES = torch.arange(12) / 12
DESIGN = np.stack([np.ones(12), TIMES.numpy()], axis=1)
NOISE = 0.3


def line(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    noise = torch.as_tensor(np.stack([np.random.default_rng([5, world]).normal(size=12) for world in worlds]))
    return theta[:, :1] + theta[:, 1:] * TIMES + NOISE * noise


@pytest.fixture(scope="module")
def fit() -> dz.fit.Fit:
    values = line(torch.tensor([[1.0, 2.0]]), [999])[0]
    priors = {"level": Normal(0.0, 100.0), "slope": Normal(0.0, 100.0)}
    targets = {"y": dz.fit.Target(values, scale="identity")}
    return dz.calibrate(line, targets, priors=priors, replicates=64, progress=False)


SD = np.sqrt(np.diag(np.linalg.inv(DESIGN.T @ DESIGN))) * NOISE  # of least squares


def test_a_profile_is_that_of_the_closed_form(fit: dz.fit.Fit) -> None:
    """Deviance (x - estimate)² / variance; the others follow by the slope of the ridge."""
    for k, name in enumerate(("level", "slope")):
        found = fit.profile(name, worlds=200)
        low, high = found.interval(0.9)
        assert (high - low) / 2 == pytest.approx(1.645 * SD[k], rel=0.12)
        assert (high + low) / 2 == pytest.approx(fit.params[name], abs=0.3 * SD[k])
        assert found.deviance[[0, -1]] == pytest.approx(2.5**2, rel=0.35)
    other = found.free[:, 0]
    covariance = np.linalg.inv(DESIGN.T @ DESIGN)
    ridge = np.polyfit(found.values, other, 1)[0]
    assert ridge == pytest.approx(covariance[0, 1] / covariance[1, 1], rel=0.1)


def test_a_profile_that_ends_too_early_is_open(fit: dz.fit.Fit) -> None:
    low, high = fit.profile("level", width=0.5).interval(0.99)
    assert (low, high) == (-np.inf, np.inf)


@pytest.mark.slow
def test_the_bootstrap_scatters_as_estimates_do(fit: dz.fit.Fit) -> None:
    again = fit.bootstrap(300, worlds=16)
    draws = again.samples(300)
    for k, name in enumerate(("level", "slope")):
        # Of 32 worlds the mean adds 3 % to the variance; of 300 draws a standard deviation is known to 4 %.
        assert draws[name].std() == pytest.approx(SD[k], rel=0.15)
        assert draws[name].mean() == pytest.approx(fit.params[name], abs=0.3 * SD[k])
        low, high = again.interval()[name]
        assert (high - low) / 2 == pytest.approx(1.645 * SD[k], rel=0.2)
    assert any("parametric bootstrap of 300" in note for note in again.notes)
    assert again.params == fit.params


def test_a_share_near_its_bound() -> None:
    """A share near its bound: 4 of 100."""

    def counts(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        uniform = np.stack([np.random.default_rng([6, world]).random((20, 5)) for world in worlds])
        return torch.as_tensor((uniform < theta.numpy()[:, :1, None]).sum(1).astype(float))

    targets = {"y": dz.fit.Target([1.0, 0.0, 2.0, 1.0, 0.0], scale="identity")}
    fit = dz.calibrate(counts, targets, priors={"share": Uniform(0.0, 1.0)}, replicates=64, progress=False)
    low, high = fit.profile("share", points=21, width=5.0, worlds=64).interval()
    assert (low, high) == pytest.approx((0.020, 0.089), abs=0.014)  # quantiles of Beta(5, 97), the exact posterior


def test_wrong_arguments_are_told(fit: dz.fit.Fit) -> None:
    with pytest.raises(InputError, match="did you mean 'level'"):
        fit.profile("levl")
    with pytest.raises(InputError, match="points=2"):
        fit.profile("level", points=2)
    with pytest.raises(InputError, match="num=1"):
        fit.bootstrap(1)
