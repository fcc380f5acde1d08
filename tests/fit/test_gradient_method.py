"""`dz.fit.Gradient`: where it ends whatever the slopes are like, what it costs, what it refuses, how it goes on."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Gamma, LogNormal, Normal, Uniform

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.perf.watch import counting
from denizen.relax import Logistic, MeanField, ScoreFunction, StraightThrough
from denizen.space import generators
from denizen.zoo.sir import sir
from models_to_fit import DullRain as Rain
from models_to_fit import Wet, interrupt_at_launch

TRUTH = [0.3, 1.2, 0.6]


@dataclasses.dataclass(frozen=True)
class Wrong:
    """Straight-through slopes times a factor, another one for each agent where `scatter` is above 0."""

    factor: float = 1.0
    scatter: float = 0.0

    def draw(self, prob: Tensor, hard: Callable[[], Tensor]) -> Tensor:
        place = torch.arange(prob.shape[-1], device=prob.device)
        factor = self.factor * (1 + self.scatter * torch.sin(12.9898 * place))
        return hard().to(prob.dtype) + factor * (prob - prob.detach())


def observed(seed: int = 4, worlds: int = 1) -> Tensor:
    return dz.simulate(Rain(rate=TRUTH), 6, seed=seed, replicates=worlds, device="cpu")["wet"].double().mean(0)


def fitted(values: Any = None, model: dz.Model | None = None, **options: Any) -> dz.fit.Fit:
    method = options.pop("method", None) or dz.fit.Gradient(StraightThrough(), polish=0)
    targets = {"wet": observed() if values is None else values}
    return dz.calibrate(
        model or Rain(),
        targets,
        **{"priors": ["rate"], "method": method, "device": "cpu", "progress": False, **options},
    )


@pytest.fixture(scope="module")
def exact() -> dz.fit.Fit:
    return fitted(method=dz.fit.GaussNewton(), replicates=48)


@pytest.fixture(scope="module")
def whole() -> dz.fit.Fit:
    return fitted()


WRONG = {
    "doubled": Wrong(2.0),
    "noised": Wrong(1.0, scatter=3.0),
    "none": MeanField(),
    "halved": Wrong(0.5),
    "logistic": Logistic(),
}
SLOW = {"halved", "logistic"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in WRONG])
def test_wrong_slopes_cost_no_truth(name: str, exact: dz.fit.Fit) -> None:
    """They end where slopes by differences do, far within the interval, and come to rest there."""
    fit = fitted(method=dz.fit.Gradient(WRONG[name], polish=0))
    assert fit.converged
    away = (np.log(fit.params["rate"]) - np.log(exact.params["rate"])) / exact._sd()
    assert (abs(away) < 0.5).all(), away


@pytest.mark.slow
def test_slopes_of_noise_do_not_claim_rest(exact: dz.fit.Fit) -> None:
    """The score function's slopes are ten times their size off: steps grow short far from the estimate."""
    fit = fitted(method=dz.fit.Gradient(ScoreFunction(), iterations=100, polish=0))
    away = (np.log(fit.params["rate"]) - np.log(exact.params["rate"])) / exact._sd()
    assert not fit.converged or (abs(away) < 0.5).all()


@pytest.mark.slow
def test_other_worlds_and_optimisers_end_within_the_interval(exact: dz.fit.Fit) -> None:
    for options in ({"seed": 5}, {"method": dz.fit.Gradient(optimizer=torch.optim.RMSprop, lr=0.05, polish=0)}):
        fit = fitted(**options)
        away = (np.log(fit.params["rate"]) - np.log(exact.params["rate"])) / exact._sd()
        assert (abs(away) < 0.5).all(), away


def test_a_fit_at_the_truth_stays() -> None:
    fit = fitted(observed(worlds=512), Rain(rate=TRUTH))
    assert fit.converged
    assert fit.params["rate"] == pytest.approx(TRUTH, rel=0.02)


def test_the_interval_is_that_of_differences(exact: dz.fit.Fit) -> None:
    fit = fitted(method=dz.fit.Gradient(StraightThrough()))
    assert fit._sd() == pytest.approx(exact._sd(), rel=0.4)
    for (low, high), truth in zip(np.transpose(fit.interval(0.999)["rate"]), TRUTH, strict=True):
        assert low < truth < high


def test_without_an_interval_the_fit_says_so(whole: dz.fit.Fit) -> None:
    fit = whole
    assert any(note.startswith("No interval was computed for the 3 numbers") for note in fit.notes)
    assert "not computed" in str(fit)
    for ask in (fit.interval, lambda: fit.samples(3)):
        with pytest.raises(InputError, match="the method computed no interval; fit again with polish=2"):
            ask()
    assert fit.forecast(2, draws=3)["wet"].shape == (3, 2)
    assert "loss" in str(fit.diagnostics)


@pytest.mark.slow
def test_a_number_without_slope_is_told() -> None:
    fit = fitted(priors=["rate", "dull"])
    assert any(note.startswith("No slope: dull.") for note in fit.notes)
    assert fit.params["dull"] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("prior", [LogNormal(-0.5, 0.05), Gamma(800.0, 1600.0)])
def test_a_prior_weighs(prior: Any) -> None:
    """Narrow priors hold what the data would draw away, as they do for slopes by differences."""
    priors = {"rate": dz.fit.PerGroup([prior, None, None])}
    fit, other = (fitted(priors=priors, method=m) for m in (None, dz.fit.GaussNewton()))
    assert fit.params["rate"][0] == pytest.approx(other.params["rate"][0], rel=0.1)
    assert fit.params["rate"][0] > 0.39


@pytest.mark.slow
def test_the_search_stays_where_a_prior_is_above_0() -> None:
    fit = fitted(priors={"rate": dz.fit.PerGroup([Uniform(0.4, 0.7), None, None])})
    assert 0.4 < fit.params["rate"][0] < 0.41
    assert fit.params["rate"][1:] == pytest.approx(TRUTH[1:], rel=0.25)


@pytest.mark.slow
def test_values_that_change_in_time() -> None:
    class Steady(Rain):
        rate: Tensor = dz.param(0.5, low=0.0)

        def step(self, now: Any, rng: dz.rng.Rng) -> Wet:
            return now.replace(wet=rng.event("rain", self.rate.expand(400)))

    priors = {"rate": dz.fit.Steps(every=2, prior=dz.fit.Walk(sd=2.0))}
    fit = fitted(model=Steady(), priors=priors)
    assert fit.params["rate"] == pytest.approx(TRUTH, rel=0.15)


@pytest.mark.slow
def test_a_share_that_is_reported_is_fitted() -> None:
    target = dz.fit.Target(0.4 * observed(worlds=64), report=0.6)
    start = Rain(rate=[0.4, *TRUTH[1:]])
    fit = fitted(target, start, priors={"rate": dz.fit.PerGroup([None, *TRUTH[1:]]), "wet.report": None})
    assert fit.params["wet.report"] == pytest.approx(0.4, rel=0.05)
    assert fit.params["rate"] == pytest.approx(TRUTH, rel=0.1)
    noisy = dz.fit.Target(observed(), noise=dz.fit.NegativeBinomial(10))
    with pytest.raises(InputError, match=r"priors has 'wet.size', and of a target it fits report and people alone"):
        fitted(noisy, priors={"rate": None, "wet.size": None})
    with pytest.raises(InputError, match="priors has numbers of targets alone"):
        fitted(target, priors=["wet.report"])


# --- what is observed, on the device ----------------------------------------------------------------------------------


def test_nothing_is_read_within_iterations() -> None:
    """A fit looks once in ten iterations: one of two reads as often as one of ten."""
    reads = []
    for iterations in (2, 10):
        with counting(torch.device("cpu")) as counts:
            fitted(method=dz.fit.Gradient(optimizer=torch.optim.SGD, lr=1e-3, iterations=iterations, polish=0))
        reads.append(counts.host_reads.total())
    assert reads[0] == reads[1] > 0


# --- going on ---------------------------------------------------------------------------------------------------------


def test_it_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = dz.fit.Gradient(StraightThrough(), iterations=40, polish=0)
    whole = fitted(method=method)
    with monkeypatch.context() as patched:
        interrupt_at_launch(3, patched)
        with pytest.raises(KeyboardInterrupt):
            fitted(method=method, out=tmp_path / "fit")
    fit = fitted(method=method, out=tmp_path / "fit")
    assert np.array_equal(fit.params["rate"], whole.params["rate"])
    assert fit.runs == whole.runs
    loaded = dz.fit.Fit.load(tmp_path / "fit", Rain())
    assert np.array_equal(loaded.params["rate"], whole.params["rate"])
    assert not loaded._has_interval


# --- what is refused, and what fails ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"relax": StraightThrough}, r"Gradient: relax=.*expected an object such as dz.relax.StraightThrough\(\)"),
        ({"optimizer": 3}, "Gradient: optimizer=3, expected a function of"),
        ({"lr": 0}, "Gradient: lr=0, expected a number above 0"),
        ({"iterations": 0}, "iterations=0"),
        ({"polish": -1}, "polish=-1"),
    ],
)
def test_wrong_settings(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dz.fit.Gradient(**given)


def test_a_function_has_no_slopes() -> None:
    with pytest.raises(InputError, match=r"a function has no relaxed runs; use dz\.fit\.GaussNewton"):
        dz.calibrate(
            lambda theta, worlds: theta.expand(-1, 3),
            {"y": [1.0, 2.0, 3.0]},
            priors={"a": Normal(0.0, 1.0)},
            method=dz.fit.Gradient(),
            progress=False,
        )


@dataclasses.dataclass(frozen=True)
class Broken:
    def draw(self, prob: Tensor, hard: Callable[[], Tensor]) -> Tensor:
        return hard().to(prob.dtype) + (prob - prob.detach()).abs().sqrt()


def test_slopes_that_are_none_are_named() -> None:
    with pytest.raises(ModelError, match=r"the slope of rate\[0\], rate\[1\], rate\[2\] is infinite or NaN near rate="):
        fitted(method=dz.fit.Gradient(Broken(), polish=0))


def test_what_the_model_cannot_stand_is_stepped_back_from() -> None:
    class Fenced(Rain):
        def fits(self, dt: float) -> None:
            if self.rate.max() > 0.7:
                raise InputError("Fenced: rate above 0.7")

    fit = fitted(model=Fenced(), method=dz.fit.Gradient(StraightThrough(), iterations=30, polish=0))
    assert fit.params["rate"].max() <= 0.7
    assert not fit.converged


@pytest.mark.slow
def test_an_epidemic_is_recovered() -> None:
    town = generators.erdos_renyi(500, 10.0, seed=0)
    truth = sir(town, infect_rate=0.05, infectious_days=7.0, seed_share=0.04)
    weekly = dz.simulate(truth, 35, seed=99, device="cpu")["cases"][0].reshape(-1, 7).sum(1)
    start = sir(town, infect_rate=0.03, infectious_days=5.0, seed_share=0.04)
    fit = dz.calibrate(
        start,
        {"cases": dz.fit.Target(weekly, every=7)},
        priors={"infect_rate": None, "infectious_days": None},
        method=dz.fit.Gradient(StraightThrough(), iterations=30),
        device="cpu",
        progress=False,
    )
    for name, value in (("infect_rate", 0.05), ("infectious_days", 7.0)):
        low, high = fit.interval(0.99)[name]
        assert low < value < high


@pytest.mark.cuda
def test_on_a_gpu_it_ends_at_the_same_estimate(exact: dz.fit.Fit) -> None:
    """Captured from the second iteration on; draws are the same, sums differ by rounding."""
    fit = fitted(device="cuda")
    away = (np.log(fit.params["rate"]) - np.log(exact.params["rate"])) / exact._sd()
    assert (abs(away) < 0.5).all(), away
