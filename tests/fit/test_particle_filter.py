"""Posteriors by particle filters: conjugate models, whose posterior is known; forecasts; what is refused."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor
from torch.distributions import Normal

import denizen as dz
import posteriors
from denizen.errors import InputError, ModelError

SEEN, WIDE = 0.7, 1.0  # standard deviations of the noise and of the prior


class Place(dz.State):
    x: Tensor = dz.real("agents")


class Scattered(dz.Model):
    """One agent at an unknown middle, each day somewhere else about it: a normal mean with a normal prior."""

    middle: Tensor = dz.param(0.0)
    kept: Tensor = dz.param(0.0, low=-1.0, high=1.0, learnable=False)
    num_agents: int = 1

    def init(self, rng: dz.rng.Rng) -> Place:
        return Place(x=rng.normal("start"))

    def step(self, now: Any, rng: dz.rng.Rng) -> Place:
        return now.replace(x=self.middle + self.kept * (now.x - self.middle) + rng.normal("move"))

    @dz.series
    def place(self, now: Any) -> Tensor:
        return now.x.sum()


def observed(steps: int, middle: float, number: int) -> np.ndarray:
    return middle + math.sqrt(1 + SEEN**2) * np.random.default_rng([11, number]).normal(size=steps)


def exact(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of the posterior."""
    precision = 1 / WIDE**2 + len(values) / (1 + SEEN**2)
    return values.sum() / (1 + SEEN**2) / precision, precision**-0.5


def fitted(
    values: np.ndarray, method: dz.fit.ParticleFilter, model: dz.Model | None = None, **options: Any
) -> dz.fit.Fit:
    target = dz.fit.Target(values, scale="identity", noise=dz.fit.Normal(SEEN))
    return dz.calibrate(
        model or Scattered(),
        {"place": target},
        priors={"middle": Normal(0.0, WIDE)},
        method=method,
        device="cpu",
        progress=False,
        **options,
    )


SHORT = dz.fit.ParticleFilter(particles=32, chains=16, burn_in=40, iterations=80, tried=4)


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    return observed(5, 0.8, 0)


@pytest.fixture(scope="module")
def fit(values: np.ndarray) -> dz.fit.Fit:
    return fitted(values, SHORT)


def test_the_posterior_is_the_exact_one(values: np.ndarray, fit: dz.fit.Fit) -> None:
    mean, sd = exact(values)
    draws = fit._solution.draws
    assert draws is not None
    worth = posteriors.worth(draws.reshape(16, 80, 1))[0]
    assert worth > 150
    assert abs(draws.mean() - mean) < 4 * sd / math.sqrt(worth)
    assert draws.std() == pytest.approx(sd, rel=4 / math.sqrt(2 * worth))
    assert fit.converged
    low, high = fit.interval(0.9)["middle"]
    assert (low, high) == pytest.approx((mean - 1.645 * sd, mean + 1.645 * sd), abs=0.4 * sd)
    assert any("16 chains of 80 draws" in note for note in fit.notes)
    assert any("of the proposals were accepted" in note for note in fit.notes)
    assert fit.runs > 120 * 16 * 32


def test_the_same_seed_gives_the_same_draws(values: np.ndarray) -> None:
    quick = dz.fit.ParticleFilter(particles=8, chains=4, burn_in=10, iterations=10, tried=2)
    first, again, other = (fitted(values, quick, seed=seed)._solution.draws for seed in (3, 3, 4))
    assert np.array_equal(first, again)  # type: ignore[arg-type]  # pyrefly: ignore
    assert not np.array_equal(first, other)  # type: ignore[arg-type]  # pyrefly: ignore


def test_a_saved_fit_forecasts_as_before_and_a_folder_serves_its_launches(values: np.ndarray, tmp_path: Path) -> None:
    quick = dz.fit.ParticleFilter(particles=8, chains=4, burn_in=10, iterations=10, tried=2)
    fit = fitted(values, quick, out=tmp_path / "fit")
    loaded = dz.fit.Fit.load(tmp_path / "fit", model=Scattered())
    for one in (loaded, fitted(values, quick, out=tmp_path / "fit")):
        assert one.interval() == fit.interval()
        assert (one.forecast(2, draws=6)["place"] == fit.forecast(2, draws=6)["place"]).all()


def test_a_forecast_goes_on_from_where_the_data_lead() -> None:
    """A walker that keeps 0.8 of its distance, last seen far from the middle: it is there tomorrow, too."""
    far = np.array([0.0, 3.0, 5.0, 6.0])
    quick = dz.fit.ParticleFilter(particles=64, chains=4, burn_in=20, iterations=30, tried=4)
    fit = fitted(far, quick, Scattered(kept=0.8))
    ahead = fit.forecast(2, draws=200)["place"]
    assert ahead.shape == (200, 2)
    assert 2.5 < ahead[:, 0].mean() < 5.5
    assert ahead[:, 1].mean() < ahead[:, 0].mean()
    assert 1.0 < ahead[:, 0].std() < 2.2
    assert fit.curve(4)["place"].shape == (4, 4)


def test_a_fit_by_another_method_can_be_filtered_to_forecast() -> None:
    target = {"place": dz.fit.Target([0.0, 3.0, 5.0, 6.0], scale="identity", noise=dz.fit.Normal(SEEN))}
    fit = dz.calibrate(Scattered(kept=0.8), target, priors={"middle": Normal(0.0, 0.1)}, device="cpu", progress=False)
    assert fit.forecast(1, draws=60)["place"].mean() < 1.5
    filtered = fit.forecast(1, draws=60, particles=50)["place"]
    assert 2.5 < filtered.mean() < 5.5
    assert (filtered == fit.forecast(1, draws=60, particles=50)["place"]).all()
    with pytest.raises(InputError, match="particles=1"):
        fit.forecast(1, particles=1)


def test_chains_that_stick_and_chains_that_have_not_mixed_are_told(values: np.ndarray) -> None:
    sharp = {"place": dz.fit.Target(values * 3, scale="identity", noise=dz.fit.Normal(0.02))}
    few = dz.fit.ParticleFilter(particles=4, chains=3, burn_in=10, iterations=10, tried=1)
    fit = dz.calibrate(
        Scattered(), sharp, priors={"middle": Normal(0.0, 1.0)}, method=few, device="cpu", progress=False
    )
    assert any("raise particles" in note for note in fit.notes)
    assert any("have not mixed" in note for note in fit.notes) == (not fit.converged)


def test_what_was_found_is_kept_where_the_budget_is_over(values: np.ndarray) -> None:
    for runs, draws in ((5_000, 14), (2_500, 2)):
        method = dz.fit.ParticleFilter(particles=32, chains=4, burn_in=20, iterations=50, tried=4, runs=runs)
        fit = fitted(values, method)
        assert fit._solution.draws is not None
        assert not fit.converged
        assert any("The budget was over" in note for note in fit.notes)
        assert fit.runs < runs + 3 * 4 * 32
        assert len(fit._solution.draws) >= draws
    with pytest.raises(InputError, match=r"runs=100, expected at least 640"):
        dz.fit.ParticleFilter(particles=32, chains=4, tried=4, runs=100)


def test_what_does_not_fit_is_refused(values: np.ndarray) -> None:
    seen = {"place": dz.fit.Target(values, scale="identity", noise=dz.fit.Normal(SEEN))}
    priors = {"middle": Normal(0.0, 1.0)}
    options: dict[str, Any] = {"method": SHORT, "device": "cpu", "progress": False}

    def function(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        return theta.expand(-1, 5)

    cases: list[tuple[Any, Any, Any, str]] = [
        (function, seen, priors, "give a dz.Model"),
        (Scattered(), {"place": values}, priors, "has no noise"),
        (Scattered(), seen, ["middle"], "'middle' has no prior"),
    ]
    for model, targets, given, words in cases:
        with pytest.raises(InputError, match=words):
            dz.calibrate(model, targets, priors=given, **options)
    for wrong in ({"particles": 1}, {"chains": 1}, {"burn_in": 0}, {"iterations": 2.5}, {"tried": 0}):
        with pytest.raises(InputError, match=f"ParticleFilter: {next(iter(wrong))}="):
            dz.fit.ParticleFilter(**wrong)  # type: ignore[arg-type]
    none = {"place": dz.fit.Target([1.0, 2.0], scale="identity", noise=dz.fit.Poisson())}
    with pytest.raises(ModelError, match="at none of"):
        dz.calibrate(Scattered(middle=-50.0), none, priors={"middle": Normal(-50.0, 0.1)}, **options)


@pytest.mark.slow
def test_ranks_of_the_truth_are_uniform() -> None:
    """Simulation-based calibration: 60 truths from the prior; the ECDF of ranks stays within its 99 % band."""
    method = dz.fit.ParticleFilter(particles=24, chains=32, burn_in=20, iterations=20, tried=2)
    ranks = []
    for number in range(60):
        truth = np.random.default_rng([12, number]).normal() * WIDE
        draws = fitted(observed(4, truth, number), method, seed=number)._solution.draws
        assert draws is not None
        ranks.append((draws.reshape(32, 20)[:, [9, 19]] < truth).mean())
    apart = np.abs(np.sort(ranks) - (np.arange(60) + 0.5) / 60).max()
    assert apart < 1.63 / math.sqrt(60)  # Kolmogorov and Smirnov
