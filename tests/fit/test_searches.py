"""Searches without slopes: closed forms, races, budgets, and Optuna and cmaes kept to themselves."""

import dataclasses
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

import denizen as dz
from denizen.errors import InputError, MissingExtra
from denizen.space import generators
from models_to_fit import fenced

TIMES = torch.arange(12) / 12
WIDE = {"level": Normal(0.0, 2.0), "slope": Normal(0.0, 2.0)}
NOISE = torch.as_tensor(np.random.default_rng(5).normal(size=(4_000, 13)))  # of the worlds
SEARCHES = [dz.fit.CMAES(runs=600), dz.fit.TPE(trials=60)]
BOTH = pytest.mark.parametrize("method", SEARCHES, ids=["cmaes", "tpe"])


def line(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    """A level and a slope, with noise of each value and a shift of each world."""
    noise = NOISE[torch.as_tensor(worlds)]
    return theta[:, :1] + theta[:, 1:] * TIMES + 0.3 * noise[:, :12] + 0.2 * noise[:, 12:]


def observed(level: float, slope: float, number: int) -> np.ndarray:
    rng = np.random.default_rng([7, number])
    return level + slope * TIMES.numpy() + 0.3 * rng.normal(size=12) + 0.2 * rng.normal()


def fitted(method: Any, values: Any, priors: Any = WIDE, function: Any = line, **options: Any) -> dz.fit.Fit:
    targets = {"y": dz.fit.Target(values, scale="identity")}
    return dz.calibrate(function, targets, priors=priors, method=method, progress=False, **options)


@BOTH
def test_estimates_scatter_as_the_intervals_say(method: Any) -> None:
    """Eight observations: errors over stated deviations have mean square 1, within 3.5 standard errors of chi²."""
    z = []
    for number in range(8):
        truth = np.random.default_rng([8, number]).normal(size=2)
        fit = fitted(method, observed(*truth, number), seed=number)
        z.append((np.array(list(fit.params.values())) - truth) / fit._sd())
    assert np.mean(np.square(z)) == pytest.approx(1, abs=3.5 * np.sqrt(2 / 16))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_search_that_ended_far_off_goes_on_until_it_rests(seed: int) -> None:
    """One generation is no search: four last iterations of a length of at most 1 end 3 to 5 away from the truth."""
    wide = {"level": Normal(0.0, 4.0), "slope": Normal(0.0, 4.0)}
    fit = fitted(dz.fit.CMAES(runs=30), observed(8.0, -5.0, 1), wide, seed=seed)
    assert fit.interval(0.99)["level"][0] < 8.0 < fit.interval(0.99)["level"][1]
    assert fit.interval(0.99)["slope"][0] < -5.0 < fit.interval(0.99)["slope"][1]
    assert not fit.converged  # the budget was over


@pytest.mark.slow
@BOTH
def test_intervals_cover_as_they_say(method: Any) -> None:
    """150 observations: 90 % intervals cover 0.90 ± 3 standard errors."""
    covered = np.zeros(2)
    for number in range(150):
        truth = np.random.default_rng([8, number]).normal(size=2)
        interval = fitted(method, observed(*truth, number), seed=number).interval()
        covered += [low <= value <= high for value, (low, high) in zip(truth, interval.values(), strict=True)]
    assert (abs(covered / 150 - 0.9) < 0.075).all(), covered


@BOTH
def test_the_same_seed_gives_the_same_bits(method: Any) -> None:
    one, again, other = (fitted(method, observed(1.0, 0.0, 1), seed=seed) for seed in (3, 3, 4))
    assert one.params == again.params
    assert one.interval() == again.interval()
    assert [line.loss for line in one.trace] == [line.loss for line in again.trace]
    assert one.params != other.params


def test_a_hill_on_the_way() -> None:
    """Slopes lead from 0 to the top at 0.85, where the curve is too low by 14 deviations, and no farther."""

    def hills(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        height = theta + 4 * torch.sin(2 * theta)
        return line(torch.cat([height, torch.zeros_like(height)], dim=1), worlds)

    values = observed(3.6 + 4 * np.sin(7.2), 0.0, 2)
    place = {"place": Normal(0.0, 3.0)}
    slopes = fitted(None, values, place, hills)
    assert any("cannot give this curve" in note for note in slopes.notes)
    for method in (dz.fit.CMAES(population=12, scatter=1.0), dz.fit.TPE(trials=60)):
        fit = fitted(method, values, place, hills)
        assert fit.params["place"] + 4 * np.sin(2 * fit.params["place"]) == pytest.approx(values.mean(), abs=0.2)


@BOTH
def test_a_budget_that_is_over_keeps_what_was_found(method: Any) -> None:
    for short in (dataclasses.replace(method, runs=90), dataclasses.replace(method, seconds=1e-9)):
        fit = fitted(short, observed(1.0, 0.0, 1))
        assert not fit.converged
        assert any("budget was over before the search was done" in note for note in fit.notes)
        low, high = fit.interval(0.99)["level"]
        assert low < 1 < high


@BOTH
def test_curves_that_depend_on_nothing_are_told(method: Any) -> None:
    def constant(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        return torch.ones(len(theta), 12)

    with pytest.raises(InputError, match=r"all \d+ simulated curves are the same .*depend on level, slope"):
        fitted(method, observed(1.0, 0.0, 1), function=constant)


@BOTH
def test_the_best_is_looked_at_again(method: Any) -> None:
    fit = fitted(method, observed(1.0, 0.0, 1))
    assert any("in 16 fresh worlds" in note for note in fit.notes)
    assert "±" in fit.trace[0].shown
    assert [one.runs for one in fit.trace] == sorted({one.runs for one in fit.trace})


@BOTH
def test_an_epidemic_whose_model_refuses_some_places(method: Any) -> None:
    method = dataclasses.replace(method, runs=60)
    contacts = dz.Graph.from_edges(generators.erdos_renyi(500, 10.0, seed=0))
    start = fenced(4.5)(contacts, infect_rate=0.03, infectious_days=5.0)
    values = dz.simulate(start.replace(infect_rate=0.05, infectious_days=7.0), 28, seed=9, device="cpu")["cases"][0]
    targets = {"cases": dz.fit.Target(values.reshape(-1, 7).sum(1), every=7)}
    fit = dz.calibrate(start, targets, device="cpu", method=method, replicates=4, progress=False)
    low, high = fit.interval(0.99)["infect_rate"]
    assert low < 0.05 < high
    assert fit.params["infectious_days"] >= 4.5


def test_optuna_is_not_heard(capfd: pytest.CaptureFixture, caplog: pytest.LogCaptureFixture) -> None:
    level = optuna.logging.get_verbosity()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted(dz.fit.TPE(trials=20), observed(1.0, 0.0, 1))
    assert not caught
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == level


@pytest.mark.parametrize("sampler", [optuna.samplers.RandomSampler, optuna.samplers.CmaEsSampler])
def test_other_samplers(sampler: Any) -> None:
    fit = fitted(dz.fit.TPE(trials=40, sampler=sampler), observed(1.0, 0.0, 1))
    assert fit.params["level"] == pytest.approx(1, abs=0.6)


def test_one_search_object_fits_twice_alike() -> None:
    method = dz.fit.TPE(trials=20, sampler=optuna.samplers.TPESampler)
    one, again = (fitted(method, observed(1.0, 0.0, 1)) for _ in range(2))
    assert one.params == again.params


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dz.fit.CMAES(runs=0), "CMAES: runs=0, expected a whole number, at least 1"),
        (lambda: dz.fit.CMAES(seconds=0), "CMAES: seconds=0, expected a number above 0, or None"),
        (lambda: dz.fit.CMAES(population=2), "population=2"),
        (lambda: dz.fit.CMAES(scatter=0), "scatter=0"),
        (lambda: dz.fit.TPE(trials=0), "TPE: trials=0"),
        (lambda: dz.fit.TPE(together=0), "together=0"),
        (lambda: dz.fit.TPE(runs=1.5), "runs=1.5"),  # pyrefly: ignore
        (lambda: dz.fit.TPE(sampler=optuna.samplers.RandomSampler()), "would go on where its last fit ended"),
        (lambda: dz.fit.TPE(sampler=lambda: None), "expected a function of"),
        (
            lambda: fitted(dz.fit.TPE(sampler=lambda seed: 5), observed(1.0, 0.0, 1)),
            "sampler made 5, expected a sampler of Optuna",
        ),
        (lambda: fitted(dz.fit.CMAES, observed(1.0, 0.0, 1)), r"expected an object such as"),
    ],
)
def test_wrong_settings_are_told(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(("method", "package"), [(dz.fit.CMAES(), "cmaes"), (dz.fit.TPE(), "optuna")])
def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, method: Any, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"{package} is needed .* pip install 'denizen\[fit\]'"):
        fitted(method, observed(1.0, 0.0, 1))
