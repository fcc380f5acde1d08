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


def two_scales(theta: Tensor, worlds: Sequence[int]) -> dict[str, Tensor]:
    """The line, and its level in units a hundred thousand times smaller, which says a hundredth as much."""
    noise = torch.as_tensor(np.stack([np.random.default_rng([6, world]).normal(size=12) for world in worlds]))
    return {"y": line(theta, worlds), "z": 1e5 * (theta[:, :1] + 10 * NOISE * noise)}


def scaled(offset: float = 0.0, weight: float = 1.0) -> dz.fit.Fit:
    values = {name: one[0] for name, one in two_scales(torch.tensor([[1.0, 2.0]]), [999]).items()}
    targets = {
        "y": dz.fit.Target(values["y"], scale="identity"),
        "z": dz.fit.Target(values["z"] + offset, scale="identity", weight=weight),
    }
    priors = {"level": Normal(0.0, 100.0), "slope": Normal(0.0, 100.0)}
    return dz.calibrate(two_scales, targets, priors=priors, replicates=64, progress=False)


def test_a_target_in_other_units_takes_no_weight_from_another() -> None:
    fit = scaled()
    both = np.concatenate([DESIGN, [[0.1, 0.0]] * 12])
    sd = np.sqrt(np.diag(np.linalg.inv(both.T @ both))) * NOISE
    again = fit.bootstrap(100, worlds=16).samples(100)
    for k, name in enumerate(("level", "slope")):
        low, high = fit.interval(0.9)[name]
        assert (high - low) / 2 == pytest.approx(1.645 * sd[k], rel=0.25)
        low, high = fit.profile(name, worlds=100).interval(0.9)
        assert (high - low) / 2 == pytest.approx(1.645 * sd[k], rel=0.2)
        assert (high + low) / 2 == pytest.approx(fit.params[name], abs=0.5 * sd[k])
        assert again[name].std() == pytest.approx(sd[k], rel=0.3)
        assert again[name].mean() == pytest.approx(fit.params[name], abs=0.5 * sd[k])


def test_a_target_of_hardly_any_weight_is_as_one_that_is_left_out(fit: dz.fit.Fit) -> None:
    found = scaled(offset=1e5, weight=1e-12)
    assert found.converged
    for k, name in enumerate(("level", "slope")):
        assert found.params[name] == pytest.approx(fit.params[name], abs=0.4 * SD[k])
        low, high = found.interval(0.9)[name]
        assert (high - low) / 2 == pytest.approx(1.645 * SD[k], rel=0.25)


def test_a_search_that_weighing_leads_far_off_goes_on_or_says_so() -> None:
    """All numbers alike, the large and rough ones lead to 3; weighed, the small and fine ones to 1."""

    def function(theta: Tensor, worlds: Sequence[int]) -> dict[str, Tensor]:
        rest = np.stack([np.random.default_rng([7, world]).normal(size=(2, 12)) for world in worlds])
        fine, rough = torch.as_tensor(rest).unbind(1)
        return {"fine": torch.exp(theta) + 0.05 * fine, "rough": 1e4 * theta + 3e4 * rough}

    values = function(torch.tensor([[1.0]]), [999])
    for offset in (1e4, 2e4, 8e4):
        targets = {
            "fine": dz.fit.Target(values["fine"][0], scale="identity"),
            "rough": dz.fit.Target(values["rough"][0] + offset, scale="identity"),
        }
        fit = dz.calibrate(function, targets, priors={"x": Normal(0.0, 10.0)}, progress=False)
        assert abs(fit.params["x"] - 1) < 0.02 or not fit.converged
    assert len(fit.trace) <= 32


def test_wrong_arguments_are_told(fit: dz.fit.Fit) -> None:
    with pytest.raises(InputError, match="did you mean 'level'"):
        fit.profile("levl")
    with pytest.raises(InputError, match="points=2"):
        fit.profile("level", points=2)
    with pytest.raises(InputError, match="num=1"):
        fit.bootstrap(1)
