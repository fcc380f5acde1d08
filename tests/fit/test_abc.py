"""Approximate Bayesian computation: closed forms, ranks, budgets, and what is refused before anything is searched."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal, Uniform

import denizen as dz
import posteriors
from denizen.errors import InputError
from denizen.space import generators
from denizen.zoo.sir import sir
from models_to_fit import fenced

QUICK = dz.fit.ABCSMC(runs=1_600, particles=400, keep=200)
Y = np.array([0.3, -0.2, 0.5, 0.1, 0.4, -0.1, 0.2, 0.0])


@pytest.mark.parametrize("which", posteriors.CONJUGATE)
def test_posteriors_are_those_of_closed_forms(which: str) -> None:
    errors, ratios = posteriors.against_exact(which, QUICK, 6)
    assert np.abs(errors).max() < 0.5
    assert np.sqrt((errors**2).mean()) < 0.25
    assert np.exp(np.log(ratios).mean()) == pytest.approx(1, abs=0.1)


def test_true_values_have_uniform_ranks() -> None:
    found = posteriors.ranks("normal", QUICK, 36, 99)
    assert posteriors.outside_band(found, 99) < 1


@pytest.mark.slow
@pytest.mark.parametrize("which", posteriors.CONJUGATE)
def test_ranks_of_many(which: str) -> None:
    found = posteriors.ranks(which, QUICK, 200, 99)
    if which == "beta-binomial":  # of one count, draws take few values near its exact posterior's: a rougher grid
        assert posteriors.outside_band(found // 10, 9) < 1
    else:
        assert posteriors.outside_band(found, 99) < 1


def test_the_same_seed_gives_the_same_bits() -> None:
    one, again, other = (posteriors.fitted("normal", Y, QUICK, seed=seed) for seed in (3, 3, 4))
    assert (one.samples(50)["theta"] == again.samples(50)["theta"]).all()
    assert one.interval() == again.interval()
    assert one.params != other.params


def test_what_is_shown_on_the_way() -> None:
    fit = posteriors.fitted("normal", Y, QUICK)
    assert fit.trace[0].shown.endswith("effective, distance " + fit.trace[0].shown.split()[-1])
    assert any("effective curves" in note for note in fit.notes)
    assert fit.runs <= QUICK.runs + 16


@pytest.mark.parametrize(
    "short",
    [
        dz.fit.ABCSMC(runs=401, particles=400, keep=200),
        dz.fit.ABCSMC(runs=500, particles=400, keep=200),
        dz.fit.ABCSMC(particles=400, keep=200, seconds=1e-9),
    ],
    ids=["one-more", "part-of-a-generation", "seconds"],
)
def test_a_budget_ends_a_search_within_a_generation_and_keeps_the_result(short: Any) -> None:
    fit = posteriors.fitted("normal", Y, short)
    assert not fit.converged
    assert any("budget was over" in note for note in fit.notes)
    assert not any("more iterations" in note for note in fit.notes)
    assert fit.runs <= short.runs + 2 * 16  # a look at the mean and the predictive checks come on top
    low, high = fit.interval(0.9)["theta"]
    assert low < Y.mean() < high


def test_a_distance_of_nothing_does_not_hang() -> None:
    """A function without noise: curves come as near as can be, and the search still ends."""

    def exact(theta: torch.Tensor, worlds: Any) -> torch.Tensor:
        return theta.round().expand(-1, 8)

    targets = {"y": dz.fit.Target(np.full(8, 2.0), scale="identity")}
    fit = dz.calibrate(exact, targets, priors={"theta": Normal(0.0, 3.0)}, method=QUICK, progress=False)
    low, high = fit.interval(0.9)["theta"]
    assert 1.4 < low < high < 2.6


def test_a_flat_prior_is_refused() -> None:
    model = sir(generators.erdos_renyi(100, mean_degree=4, seed=0))
    with pytest.raises(InputError, match="ABCSMC: 'infect_rate' has no prior, which a posterior needs"):
        dz.calibrate(model, {"cases": [1.0, 2.0]}, priors=["infect_rate"], method=QUICK, device="cpu", progress=False)


def test_data_far_from_all_curves_are_refused_before_the_search() -> None:
    with pytest.raises(InputError, match=r"nearest of 400 curves .* away .*worst is y\[\d\]=40, .* beyond all curves"):
        posteriors.fitted("normal", np.full(8, 40.0), QUICK)


def test_a_value_outside_of_the_curves_is_told() -> None:
    values = Y.copy()
    values[5] = 14.0
    fit = posteriors.fitted("normal", values, QUICK)
    assert any("1 of 8 observed numbers lie outside" in note and "y[5]=14" in note for note in fit.notes)
    assert not any("lie outside" in note for note in posteriors.fitted("normal", Y, QUICK).notes)


def test_constant_curves_are_told() -> None:
    def constant(theta: torch.Tensor, worlds: Any) -> torch.Tensor:
        return torch.ones(len(theta), 8)

    def half(theta: torch.Tensor, worlds: Any) -> torch.Tensor:
        return torch.cat([posteriors.normal_mean(theta, worlds)[:, :4], torch.ones(len(theta), 4)], dim=1)

    targets = {"y": dz.fit.Target(Y, scale="identity")}
    given: dict[str, Any] = {"priors": {"theta": Normal(0.0, 2.0)}, "method": QUICK, "progress": False}
    with pytest.raises(InputError, match=r"all 400 curves from the priors are the same .* that depend on theta"):
        dz.calibrate(constant, targets, **given)
    fit = dz.calibrate(half, targets, **given)
    assert any("4 observed numbers are the same in all 400 curves" in note for note in fit.notes)


def test_an_epidemic_with_places_that_the_model_refuses() -> None:
    contacts = dz.Graph.from_edges(generators.erdos_renyi(300, 10.0, seed=0))
    start = fenced(4)(contacts, infect_rate=0.05, infectious_days=7.0, seed_share=0.05)
    values = dz.simulate(start, 28, seed=9, device="cpu")["cases"][0].reshape(-1, 7).sum(1)
    fit = dz.calibrate(
        start,
        {"cases": dz.fit.Target(values, every=7)},
        priors={"infect_rate": Uniform(0.01, 0.15), "infectious_days": Uniform(2.0, 15.0)},
        method=dz.fit.ABCSMC(runs=300, particles=200, keep=100),
        device="cpu",
        progress=False,
    )
    assert any("The model refuses 1" in note for note in fit.notes)
    assert fit.samples(200)["infectious_days"].min() > 3.5
    low, high = fit.interval(0.99)["infect_rate"]
    assert 0.01 < low < 0.05 < high < 0.15


def test_priors_that_the_model_refuses_altogether() -> None:
    start = sir(generators.erdos_renyi(100, mean_degree=4, seed=0))
    with pytest.raises(
        InputError, match=r"ABCSMC: priors: the model refuses .* choose priors within what it can stand"
    ):
        dz.calibrate(
            start.replace(infectious_days=0.5),
            {"cases": [1.0, 2.0]},
            priors={"infectious_days": Uniform(0.2, 0.8)},
            method=QUICK,
            device="cpu",
            progress=False,
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dz.fit.ABCSMC(runs=100), "runs=100, expected at least particles=500"),
        (lambda: dz.fit.ABCSMC(keep=5), "keep=5"),
        (lambda: dz.fit.ABCSMC(keep=600), "keep=600, expected at most particles=500"),
        (lambda: dz.fit.ABCSMC(particles=2), "particles=2"),
        (lambda: dz.fit.ABCSMC(seconds=-1), "seconds=-1"),
    ],
)
def test_wrong_settings_are_told(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
