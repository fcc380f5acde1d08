"""Neural posteriors: closed forms, rounds, bits that stay, what is left alone, and what is refused."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Distribution, Normal, Uniform

import denizen as dz
import posteriors
from denizen.errors import InputError, ModelError
from denizen.space import generators
from denizen.zoo.sir import sir
from models_to_fit import fenced

QUICK = dz.fit.NPE(1_500, flow="zuko_maf", transforms=2, hidden=32)
COARSE = dz.fit.NPE(200, flow="mdn", epochs=5)
Y = np.array([0.3, -0.2, 0.5, 0.1, 0.4, -0.1, 0.2, 0.0])


class Stopping:
    """Eight values about an unknown mean, stopped at a call."""

    def __init__(self, at: int) -> None:
        self.calls, self._at = 0, at

    def __call__(self, theta: torch.Tensor, worlds: Sequence[int]) -> torch.Tensor:
        self.calls += 1
        if self.calls == self._at:
            raise KeyboardInterrupt
        return posteriors.normal_mean(theta, worlds)


@pytest.mark.parametrize("which", [pytest.param("normal", marks=pytest.mark.slow), "gamma-poisson"])
def test_posteriors_are_those_of_closed_forms(which: str) -> None:
    errors, ratios = posteriors.against_exact(which, QUICK, 2)
    assert np.sqrt((errors**2).mean()) < 0.5
    assert np.exp(np.log(ratios).mean()) == pytest.approx(1, abs=0.2)


@pytest.mark.slow
def test_posteriors_of_a_larger_budget_are_nearer() -> None:
    errors, ratios = posteriors.against_exact("normal", dz.fit.NPE(4_000, flow="zuko_maf"), 3)
    assert np.abs(errors).max() < 0.25
    assert np.exp(np.log(ratios).mean()) == pytest.approx(1, abs=0.1)


def test_a_second_round_simulates_where_the_posterior_is() -> None:
    places: list[np.ndarray] = []

    def function(theta: torch.Tensor, worlds: Sequence[int]) -> torch.Tensor:
        places.append(theta[:, 0].numpy())
        return posteriors.normal_mean(theta, worlds)

    method = dz.fit.NPE(1_600, rounds=2, flow="zuko_maf", transforms=2, hidden=32)
    targets = {"y": dz.fit.Target(Y, scale="identity")}
    fit = dz.calibrate(function, targets, priors={"theta": Normal(0.0, 2.0)}, method=method, progress=False)
    exact = posteriors.CONJUGATE["normal"][3](Y)
    samples = fit.samples(2_000)["theta"]
    assert abs(samples.mean() - exact.mean()) < 0.6 * exact.std()
    assert samples.std() == pytest.approx(exact.std(), rel=0.3)
    assert [len(one) for one in places[:2]] == [800, 800]
    assert places[1].std() < 0.6 * places[0].std()


def test_the_same_seed_gives_the_same_bits_and_nothing_else_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    monkeypatch.setattr(Distribution, "_validate_args", True)  # whatever ran before: any torch.compile turns it off
    one, again, other = (posteriors.fitted("normal", Y, COARSE, seed=seed) for seed in (3, 3, 4))
    assert (one.samples(50)["theta"] == again.samples(50)["theta"]).all()
    assert one.params != other.params
    assert torch.equal(torch.random.get_rng_state(), before[0])
    with pytest.raises(ValueError, match="scale"):  # zuko's import turns this off
        Normal(0.0, -1.0)
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
    assert os.listdir(tmp_path) == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("stop", [2, 3])
def test_a_calibration_that_was_stopped_goes_on_to_the_same_draws(tmp_path: Path, stop: int) -> None:
    """In the second round, before its training, and after all training."""
    model, calm = Stopping(stop), Stopping(0)
    targets = {"y": dz.fit.Target(Y, scale="identity")}
    given: dict[str, Any] = {"priors": {"theta": Normal(0.0, 2.0)}, "progress": False}
    given["method"] = dz.fit.NPE(400, rounds=2, flow="mdn", epochs=5)
    with pytest.raises(KeyboardInterrupt):
        dz.calibrate(model, targets, out=tmp_path / "fit", **given)
    resumed = dz.calibrate(model, targets, out=tmp_path / "fit", **given)
    whole = dz.calibrate(calm, targets, **given)
    assert model.calls == calm.calls + 1  # what was simulated is not simulated again
    assert (resumed.samples(500)["theta"] == whole.samples(500)["theta"]).all()
    assert dz.fit.Fit.load(tmp_path / "fit").samples(5)["theta"].shape == (5,)


def test_summaries_are_trained_as_a_copy() -> None:
    module = torch.nn.Linear(8, 2)
    before = module.weight.detach().clone()
    method = dz.fit.NPE(200, flow="mdn", epochs=5, summaries=module)
    one, again = (posteriors.fitted("normal", Y, method) for _ in range(2))
    assert torch.equal(module.weight, before)
    assert one.params == again.params
    with pytest.raises(
        InputError, match=r"no network for 1 parameters and 8 observed numbers .* summaries take \[B, 8"
    ):
        posteriors.fitted("normal", Y, dz.fit.NPE(200, summaries=torch.nn.Linear(3, 2)))


def test_draws_stay_within_a_prior_and_where_the_model_stands() -> None:
    contacts = dz.Graph.from_edges(generators.erdos_renyi(300, 10.0, seed=0))
    start = fenced(4)(contacts, infect_rate=0.05, infectious_days=7.0, seed_share=0.05)
    values = dz.simulate(start, 28, seed=9, device="cpu")["cases"][0].reshape(-1, 7).sum(1)
    fit = dz.calibrate(
        start,
        {"cases": dz.fit.Target(values, every=7)},
        priors={"infect_rate": Uniform(0.01, 0.15), "infectious_days": Uniform(2.0, 15.0)},
        method=dz.fit.NPE(200, flow="mdn", epochs=20),
        device="cpu",
        progress=False,
    )
    samples = fit.samples(2_000)
    assert samples["infectious_days"].min() >= 4
    assert samples["infectious_days"].max() <= 15
    assert samples["infect_rate"].min() >= 0.01
    assert samples["infect_rate"].max() <= 0.15
    assert any("The model refuses" in note for note in fit.notes)


def test_training_that_a_limit_ended_is_told() -> None:
    for method in (COARSE, dz.fit.NPE(200, flow="mdn", seconds=1e-9)):
        fit = posteriors.fitted("normal", Y, method)
        assert not fit.converged
        assert any("Training was ended by" in note for note in fit.notes)


def test_a_curve_without_values_is_refused_before_training() -> None:
    def broken(theta: torch.Tensor, worlds: Sequence[int]) -> torch.Tensor:
        return torch.where(theta > 0, theta, torch.nan).expand(-1, 8)

    targets = {"y": dz.fit.Target(Y, scale="identity")}
    with pytest.raises(ModelError, match="'y' is NaN or infinite"):
        dz.calibrate(broken, targets, priors={"theta": Normal(0.0, 2.0)}, method=COARSE, progress=False)


def test_priors_and_data_that_do_not_fit_are_refused() -> None:
    model = sir(generators.erdos_renyi(100, mean_degree=4, seed=0))
    with pytest.raises(InputError, match="NPE: 'infect_rate' has no prior, which a posterior needs"):
        dz.calibrate(model, {"cases": [1.0, 2.0]}, priors=["infect_rate"], method=COARSE, device="cpu", progress=False)
    with pytest.raises(InputError, match=r"NPE: the nearest of 200 curves .* away"):
        posteriors.fitted("normal", np.full(8, 40.0), COARSE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dz.fit.NPE(50), "simulations=50"),
        (lambda: dz.fit.NPE(500, rounds=6), "simulations=500.*100 for each round"),
        (lambda: dz.fit.NPE(rounds=0), "rounds=0"),
        (lambda: dz.fit.NPE(seconds=0), "seconds=0"),
        (lambda: dz.fit.NPE(summaries=len), "summaries=.*torch.nn.Module"),
        (lambda: posteriors.fitted("normal", Y, dz.fit.NPE(200, flow="zuko_nfs")), "did you mean 'zuko_nsf'"),
    ],
)
def test_wrong_settings_are_told(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.cuda
@pytest.mark.skipif(not find_spec("sbi"), reason="needs denizen[posterior]")
def test_training_on_a_gpu_leaves_its_random_numbers_alone() -> None:
    before = torch.cuda.get_rng_state()
    one, again = (posteriors.fitted("normal", Y, COARSE, device="cuda") for _ in range(2))
    assert one.samples(50)["theta"] == pytest.approx(again.samples(50)["theta"], abs=1e-3)
    assert torch.equal(torch.cuda.get_rng_state(), before)
