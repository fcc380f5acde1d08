"""The likeliest parameters by iterated filtering: conjugate models, whose posterior is known; what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor
from torch.distributions import Beta, Normal, Uniform

import denizen as dz
from denizen.errors import InputError

SEEN, WIDE = 0.7, 2.0  # standard deviations of the noise and of the prior


class Place(dz.State):
    x: Tensor = dz.real("agents")


class Scattered(dz.Model):
    """One agent, each day somewhere else about a middle that moves by the day: a line with a normal prior."""

    middle: Tensor = dz.param(0.0)
    slope: Tensor = dz.param(0.0)
    num_agents: int = 1

    def init(self, rng: dz.rng.Rng) -> Place:
        return Place(x=rng.normal("start"))

    def step(self, now: Any, rng: dz.rng.Rng) -> Place:
        return now.replace(x=self.middle + self.slope * now.time.value + rng.normal("move"))

    @dz.series
    def place(self, now: Any) -> Tensor:
        return now.x.sum()


def seen(values: Any) -> dict[str, dz.fit.Target]:
    return {"place": dz.fit.Target(values, scale="identity", noise=dz.fit.Normal(SEEN))}


def fitted(values: Any, method: Any, model: dz.Model | None = None, **options: Any) -> dz.fit.Fit:
    given = {"priors": {"middle": Normal(0.0, WIDE), "slope": Normal(0.0, 1.0)}} | options
    return dz.calibrate(model or Scattered(), seen(values), method=method, device="cpu", progress=False, **given)


def line(number: int) -> np.ndarray:
    rng = np.random.default_rng([13, number])
    return 1.5 + 0.3 * np.arange(9) + math.sqrt(1 + SEEN**2) * rng.normal(size=9)


def exact(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the posterior of middle and slope."""
    design = np.stack([np.ones(len(values)), np.arange(len(values))], axis=1)
    precision = np.diag([1 / WIDE**2, 1.0]) + design.T @ design / (1 + SEEN**2)
    return np.linalg.solve(precision, design.T @ values / (1 + SEEN**2)), np.linalg.inv(precision)


@pytest.mark.parametrize("number", [0, 1])
def test_estimate_and_interval_are_those_of_the_posterior(number: int) -> None:
    values = line(number)
    fit = fitted(values, dz.fit.IteratedFilter(particles=200, iterations=15), seed=number)
    mean, covariance = exact(values)
    sd = np.sqrt(np.diag(covariance))
    assert fit.converged
    assert (np.abs(fit._solution.free - mean) < 0.35 * sd).all()
    found = fit._solution.covariance()
    assert np.sqrt(np.diag(found)) == pytest.approx(sd, rel=0.2)
    assert found[0, 1] / math.sqrt(found[0, 0] * found[1, 1]) == pytest.approx(covariance[0, 1] / sd.prod(), abs=0.1)
    ahead = fit.forecast(1, draws=40)["place"]
    assert ahead.mean() == pytest.approx(mean @ [1, 9], abs=1.2)


QUICK = dz.fit.IteratedFilter(particles=40, iterations=3)


def test_the_same_seed_gives_the_same_fit_and_a_folder_serves_its_launches(tmp_path: Path) -> None:
    first, again, other = (fitted(line(0), QUICK, seed=seed) for seed in (3, 3, 4))
    assert first.interval() == again.interval()
    assert first.interval() != other.interval()
    kept = fitted(line(0), QUICK, seed=3, out=tmp_path / "fit")
    loaded = dz.fit.Fit.load(tmp_path / "fit", model=Scattered())
    assert kept.interval() == loaded.interval() == first.interval()
    assert (kept.forecast(1, draws=4)["place"] == loaded.forecast(1, draws=4)["place"]).all()


def test_numbers_that_the_model_refuses_are_left() -> None:
    class Narrow(Scattered):
        def fits(self, dt: float) -> None:
            if float(self.middle) > 1.0:
                raise InputError("middle is too large")

    fit = fitted(line(0), QUICK, Narrow(), priors={"middle": Uniform(-3.0, 3.0)})
    for one in fit.trace:
        assert float(fit._experiment.parameters.values(one.free[None])["middle"][0]) <= 1.0


def test_what_was_found_is_kept_where_the_budget_is_over() -> None:
    fit = fitted(line(0), dz.fit.IteratedFilter(particles=40, iterations=10, runs=100))
    assert len(fit.trace) == 2
    assert not fit.converged
    assert any("The budget was over" in note for note in fit.notes)
    assert any("no room for the 2,880 runs that give an interval" in note for note in fit.notes)
    assert "not computed" in str(fit)
    with pytest.raises(InputError, match="computed no interval"):
        fit.interval()


@pytest.mark.parametrize("runs", [3_100, 2 * 2_880 + 200])
def test_runs_are_those_of_the_passes_and_of_the_end_together(runs: int) -> None:
    """Two numbers: a look at the end takes 72 filters of 40 particles."""
    method = dz.fit.IteratedFilter(particles=40, iterations=6, runs=runs)
    fit = fitted(line(0), method)
    looked = fit._experiment.runs
    assert len(fit.trace) == min(6, (runs - 2_880) // 40)
    assert set(fit.interval()) == {"middle", "slope"}
    solution = method.solve(fit._experiment, 2, lambda iteration: None)
    assert 2_880 < fit._experiment.runs - looked <= runs
    assert (solution.free == fit._solution.free).all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match=r"'place\.report', a number of a target"):
        fitted(line(0), QUICK, priors={"middle": Normal(0.0, 1.0), "place.report": Beta(2, 2)})
    with pytest.raises(InputError, match="goes on from states on the way"):
        fitted(line(0), QUICK, lambda theta, worlds: theta.expand(-1, 9))  # type: ignore[arg-type]  # pyrefly: ignore
    for wrong in ({"particles": 1}, {"iterations": 1}, {"scatter": 0}, {"cooling": 1.5}, {"runs": 0}):
        with pytest.raises(InputError, match=f"IteratedFilter: {next(iter(wrong))}="):
            dz.fit.IteratedFilter(**wrong)  # type: ignore[arg-type]
