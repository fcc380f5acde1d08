"""Parameters that change in time, and priors of vectors."""

from typing import Any

import numpy as np
import pytest
from torch.distributions import LogNormal, Normal

import denizen as dz
from denizen.errors import InputError
from denizen.fit import PerGroup, Shared, Steps, Walk
from denizen.model import Course
from denizen.space import generators
from denizen.zoo.sir import SIR, sir
from models_to_fit import Rain

TRUTH = [0.06, 0.02, 0.04, 0.03]


@pytest.fixture(scope="module")
def model() -> SIR:
    return sir(generators.erdos_renyi(3_000, 10.0, seed=0), infect_rate=0.04, infectious_days=6.0)


@pytest.fixture(scope="module")
def daily(model: SIR) -> Any:
    course = Course(target="infect_rate", values=TRUTH)
    return dz.simulate(model, 28, seed=99, device="cpu", interventions=[course])["cases"][0].numpy()


@pytest.fixture(scope="module")
def fit(model: SIR, daily: Any) -> dz.fit.Fit:
    priors = {"infect_rate": Steps(every=7, prior=LogNormal(-3.2, 0.7))}
    return dz.calibrate(model, {"cases": daily}, priors=priors, replicates=8, device="cpu", progress=False)


def test_a_rate_of_each_week_is_recovered(fit: dz.fit.Fit) -> None:
    low, high = fit.interval(0.99)["infect_rate"]
    assert low.shape == (4,)
    assert ((low < TRUTH) & (high > TRUTH)).all(), (low, high)
    assert (high / low < 2.5).all()
    assert fit._experiment.parameters.labels[2] == "infect_rate[2]"


def test_what_was_fitted_runs_again(fit: dz.fit.Fit, model: SIR) -> None:
    assert fit.model is not None
    assert float(fit.model.infect_rate) == pytest.approx(fit.params["infect_rate"][-1])
    found = dz.simulate(fit.model, 28, worlds=fit._fresh(5), device="cpu", interventions=fit.interventions)["cases"]
    assert (found.numpy() == fit.curve(5)["cases"]).all()
    ahead = fit.forecast(10, draws=4)["cases"]
    assert ahead.shape == (4, 10)


def test_a_walk_holds_neighbours_together(model: SIR, daily: Any, fit: dz.fit.Fit) -> None:
    priors = {"infect_rate": Steps(every=7, prior=Walk(sd=0.3, first=LogNormal(-3.2, 0.7)))}
    walk = dz.calibrate(model, {"cases": daily}, priors=priors, replicates=8, device="cpu", progress=False)
    free, held = np.log(fit.params["infect_rate"]), np.log(walk.params["infect_rate"])
    assert np.abs(np.diff(held)).sum() < np.abs(np.diff(free)).sum()


def test_what_is_held_out_walks_on(model: SIR, daily: Any) -> None:
    """A value that begins after the last day that is fitted has its prior, and a forecast its spread."""
    few = sir(generators.erdos_renyi(500, 10.0, seed=0), infect_rate=0.04, infectious_days=6.0, seed_share=0.02)
    priors = {"infect_rate": Steps(every=7, prior=Walk(sd=0.3, first=LogNormal(-3.2, 0.7)))}
    options: dict[str, Any] = {"priors": priors, "replicates": 4, "device": "cpu", "progress": False}
    fit = dz.calibrate(few, {"cases": daily / 6}, holdout=7, **options)
    low, high = np.log(fit.interval(0.9)["infect_rate"])
    widths = high - low
    assert widths[3] > np.sqrt(widths[2] ** 2 + (2 * 1.645 * 0.3) ** 2) * 0.99
    with pytest.raises(InputError, match=r"nothing observed depends on 'infect_rate\[3\]'"):
        dz.calibrate(few, {"cases": daily / 6}, holdout=7, **{**options, "priors": {"infect_rate": Steps(every=7)}})


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (lambda: PerGroup([None, None]), "has 2 entries, expected 3, as rate has"),
        (lambda: PerGroup([None, None, -1.0]), r"holds \[1.0, 1.0, -1.0\], out of bounds 0 to inf"),
        (lambda: PerGroup([1.0, 2.0, 3.0]), "holds every entry"),
        (lambda: PerGroup(["a"]), "a number at which it is held"),
        (lambda: PerGroup([]), "expected a list"),
        (lambda: Walk(0.0), "Walk: sd=0.0"),
        (lambda: Walk(0.1, first=0.3), "Walk: first=0.3, expected a torch distribution"),
        (lambda: Walk(0.1, first=Normal(0.0, 1.0)), "outside the bounds"),
        (lambda: Shared(0.3), "Shared: prior=0.3"),
        (lambda: Steps(every=0), "Steps: every=0"),
        (lambda: Steps(prior=Shared()), "Steps: prior=Shared"),
        (lambda: Steps(prior=Normal(0.0, 1.0)), "outside the bounds"),
        (lambda: Shared, "expected a torch distribution of one number, or None"),
    ],
)
def test_wrong_priors_are_told(prior: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        dz.calibrate(Rain(rate=[1.0, 1.0, 0.5]), {"wet": np.ones(10)}, priors={"rate": prior()}, device="cpu")


def test_a_function_has_no_steps() -> None:
    with pytest.raises(InputError, match="expected a torch distribution of one number"):
        dz.calibrate(lambda theta, worlds: theta, {"y": [1.0]}, priors={"a": Steps()})


def test_a_number_of_a_target_does_not_change_in_time(model: SIR) -> None:
    priors = {"infect_rate": None, "cases.report": Steps()}
    with pytest.raises(InputError, match="it does not change in time"):
        dz.calibrate(model, {"cases": [1.0, 2.0, 3.0]}, priors=priors, device="cpu")


@pytest.mark.cuda
def test_a_fit_in_time_on_a_gpu(model: SIR, daily: Any, fit: dz.fit.Fit) -> None:
    priors = {"infect_rate": Steps(every=7, prior=LogNormal(-3.2, 0.7))}
    there = dz.calibrate(model, {"cases": daily}, priors=priors, replicates=8, device="cuda", progress=False)
    low, high = fit.interval()["infect_rate"]
    assert (np.abs(there.params["infect_rate"] - fit.params["infect_rate"]) < 0.1 * (high - low)).all()
