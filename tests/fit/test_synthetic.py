"""Synthetic likelihood: closed forms, ranks, the density without bias, budgets, bad input."""

from typing import Any

import numpy as np
import pytest
from torch.distributions import Uniform

import denizen as dz
import posteriors
from denizen.errors import InputError
from denizen.space import generators
from denizen.zoo.sir import sir

QUICK = dz.fit.SyntheticLikelihood(burn_in=40, iterations=80)
SLICE = dz.fit.SyntheticLikelihood(burn_in=20, iterations=60, moves="slice")
Y = np.array([0.3, -0.2, 0.5, 0.1, 0.4, -0.1, 0.2, 0.0])


@pytest.mark.parametrize("which", posteriors.CONJUGATE)
@pytest.mark.parametrize("method", [QUICK, SLICE], ids=["walk", "slice"])
def test_posteriors_are_those_of_closed_forms(which: str, method: Any) -> None:
    errors, ratios = posteriors.against_exact(which, method, 4)
    assert np.sqrt((errors**2).mean()) < 0.4
    assert np.exp(np.log(ratios).mean()) == pytest.approx(1, abs=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["normal", "gamma-poisson"])
def test_true_values_have_uniform_ranks(which: str) -> None:
    """Draws are worth some 100 independent ones: 19 of them, by sixes, are nearly so."""
    found = posteriors.ranks(which, QUICK, 100, 19)
    assert posteriors.outside_band(found, 19) < 1


@pytest.mark.parametrize("method", [QUICK, SLICE], ids=["walk", "slice"])
def test_the_same_seed_gives_the_same_bits(method: Any) -> None:
    one, again, other = (posteriors.fitted("normal", Y, method, seed=seed) for seed in (3, 3, 4))
    assert (one.samples(50)["theta"] == again.samples(50)["theta"]).all()
    assert one.params != other.params


@pytest.mark.parametrize("runs", [400, 700, 6_000])
@pytest.mark.parametrize("moves", ["walk", "slice"])
def test_a_budget_that_is_over_keeps_what_was_found(runs: int, moves: Any) -> None:
    fit = posteriors.fitted("normal", Y, dz.fit.SyntheticLikelihood(runs=runs, moves=moves, iterations=500))
    assert not fit.converged
    assert any("budget was over" in note for note in fit.notes)
    assert fit.runs <= runs + 2 * 16  # a look at the mean and the predictive checks come on top
    low, high = fit.interval(0.99)["theta"]
    assert low < Y.mean() + 1 < high + 2


def test_seconds_end_a_search() -> None:
    fit = posteriors.fitted("normal", Y, dz.fit.SyntheticLikelihood(seconds=1e-9))
    assert any("budget was over" in note for note in fit.notes)


def test_what_is_shown() -> None:
    fit = posteriors.fitted("normal", Y, QUICK)
    assert "accepted" in fit.trace[0].shown
    assert fit.trace[0].shown.startswith("burn-in")
    assert fit.trace[-1].shown.startswith("draws")
    assert any("8 chains of 80 draws, worth" in note for note in fit.notes)


def test_an_epidemic() -> None:
    contacts = dz.Graph.from_edges(generators.erdos_renyi(300, 10.0, seed=0))
    start = sir(contacts, infect_rate=0.05, infectious_days=7.0, seed_share=0.05)
    values = dz.simulate(start, 28, seed=9, device="cpu")["cases"][0].reshape(-1, 7).sum(1)
    fit = dz.calibrate(
        start,
        {"cases": dz.fit.Target(values, every=7)},
        priors={"infect_rate": Uniform(0.01, 0.15), "infectious_days": Uniform(0.5, 15.0)},
        method=dz.fit.SyntheticLikelihood(chains=4, burn_in=6, iterations=10, tried=100),
        replicates=8,
        device="cpu",
        progress=False,
    )
    low, high = fit.interval(0.99)["infect_rate"]
    assert 0.01 < low < 0.05 < high < 0.15


def test_a_flat_prior_and_far_data_are_refused() -> None:
    model = sir(generators.erdos_renyi(100, mean_degree=4, seed=0))
    with pytest.raises(InputError, match="SyntheticLikelihood: 'infect_rate' has no prior"):
        dz.calibrate(model, {"cases": [1.0, 2.0]}, priors=["infect_rate"], method=QUICK, device="cpu", progress=False)
    with pytest.raises(InputError, match="SyntheticLikelihood: the nearest of 400 curves"):
        posteriors.fitted("normal", np.full(8, 40.0), QUICK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chains": 1}, "chains=1"),
        ({"burn_in": 0}, "burn_in=0"),
        ({"iterations": 1}, "iterations=1"),
        ({"tried": 3}, "tried=3"),
        ({"moves": "jump"}, "valid: slice, walk"),
        ({"runs": 0}, "runs=0"),
        ({"runs": 300}, "runs=300, expected at least tried=400"),
    ],
)
def test_wrong_settings_are_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dz.fit.SyntheticLikelihood(**options)
