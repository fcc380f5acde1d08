"""Neural likelihoods and ratios: closed forms, counts, rounds, bits that stay, and what is refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal, Uniform

import denizen as dz
import posteriors
from denizen.errors import InputError
from denizen.space import generators
from denizen.zoo.sir import sir

NLE, NRE = dz.fit.NLE(1_000, transforms=2, hidden=32), dz.fit.NRE(1_000)
COARSE = {"NLE": dz.fit.NLE(400, 2, flow="mdn", hidden=8, epochs=3), "NRE": dz.fit.NRE(400, 2, hidden=8, epochs=3)}
Y = np.array([0.3, -0.2, 0.5, 0.1, 0.4, -0.1, 0.2, 0.0])
TARGETS = {"y": dz.fit.Target(Y, scale="identity")}
PRIORS = {"theta": Normal(0.0, 2.0)}


@pytest.mark.parametrize("method", [NLE, NRE], ids=["NLE", "NRE"])
def test_a_posterior_is_that_of_the_closed_form(method: Any) -> None:
    errors, ratios = posteriors.against_exact("normal", method, 1)
    assert abs(errors[0]) < 0.7
    assert ratios[0] == pytest.approx(1, abs=0.35)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["gamma-poisson", "beta-binomial"])
@pytest.mark.parametrize("method", [dz.fit.NLE(2_000, transforms=2), dz.fit.NRE(2_000)], ids=["NLE", "NRE"])
def test_posteriors_of_counts_are_those_of_closed_forms(which: str, method: Any) -> None:
    """One training's width scatters by some 15 %, as six of NRE have it: 1.32, 1.09, 1.03, 1.03, 0.98, 0.97."""
    errors, ratios = posteriors.against_exact(which, method, 3)
    assert np.abs(errors).max() < 0.7
    assert ratios.mean() == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("name", list(COARSE))
def test_a_calibration_that_was_stopped_goes_on_to_the_same_draws(tmp_path: Path, name: str) -> None:
    calls = []

    def function(theta: torch.Tensor, worlds: Sequence[int]) -> torch.Tensor:
        calls.append(len(theta))
        if calls == [200, 200]:
            raise KeyboardInterrupt
        return posteriors.normal_mean(theta, worlds)

    given: dict[str, Any] = {"priors": PRIORS, "method": COARSE[name], "progress": False}
    before = torch.random.get_rng_state()
    with pytest.raises(KeyboardInterrupt):
        dz.calibrate(function, TARGETS, out=tmp_path / "fit", **given)
    resumed = dz.calibrate(function, TARGETS, out=tmp_path / "fit", **given)
    whole = dz.calibrate(posteriors.normal_mean, TARGETS, **given)
    assert calls[:3] == [200, 200, 200]  # the first round is not simulated again
    assert (resumed.samples(500)["theta"] == whole.samples(500)["theta"]).all()
    assert dz.fit.Fit.load(tmp_path / "fit").params == whole.params
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not whole.converged
    assert any("Training was ended by" in note for note in whole.notes)


@pytest.mark.slow
def test_a_later_round_simulates_where_the_posterior_is() -> None:
    places: list[np.ndarray] = []

    def function(theta: torch.Tensor, worlds: Sequence[int]) -> torch.Tensor:
        places.append(theta[:, 0].numpy())
        return posteriors.normal_mean(theta, worlds)

    dz.calibrate(function, TARGETS, priors=PRIORS, method=dz.fit.NRE(1_000, rounds=2), progress=False)
    assert [len(one) for one in places[:2]] == [500, 500]
    assert places[1].std() < 0.5 * places[0].std()
    exact = posteriors.CONJUGATE["normal"][3](Y)
    assert abs(places[1].mean() - exact.mean()) < 2 * exact.std()


def test_summaries_are_trained_as_a_copy_and_must_fit() -> None:
    module = torch.nn.Linear(8, 2)
    before = module.weight.detach().clone()
    fit = posteriors.fitted("normal", Y, dz.fit.NRE(200, hidden=8, epochs=2, summaries=module))
    assert torch.equal(module.weight, before)
    assert set(fit.params) == {"theta"}
    with pytest.raises(InputError, match=r"NRE: no network for 1 parameters and 8 .* summaries take \[B, 8\]"):
        posteriors.fitted("normal", Y, dz.fit.NRE(200, summaries=torch.nn.Linear(3, 2)))


def test_a_model_of_agents_is_fitted_within_its_priors() -> None:
    model = sir(generators.erdos_renyi(300, 10.0, seed=0), infect_rate=0.05, seed_share=0.05)
    values = dz.simulate(model, 28, seed=9, device="cpu")["cases"][0].reshape(-1, 7).sum(1)
    priors = {"infect_rate": Uniform(0.01, 0.15)}
    given: dict[str, Any] = {"priors": priors, "device": "cpu", "progress": False}
    for method in (dz.fit.NLE(200, flow="mdn", epochs=20), dz.fit.NRE(200, epochs=20)):
        samples = dz.calibrate(model, {"cases": dz.fit.Target(values, every=7)}, method=method, **given).samples(2_000)
        assert samples["infect_rate"].min() >= 0.01
        assert samples["infect_rate"].max() <= 0.15
        assert samples["infect_rate"].std() < 0.7 * float(priors["infect_rate"].stddev)


@pytest.mark.slow
@pytest.mark.parametrize("method", [dz.fit.NLE(2_000, transforms=2), dz.fit.NRE(2_000)], ids=["NLE", "NRE"])
def test_ranks_are_uniform(method: Any) -> None:
    """One network for all data."""

    def function(theta: torch.Tensor, worlds: Sequence[int]) -> torch.Tensor:
        return posteriors.normal_mean(theta, [world % posteriors.WORLDS for world in worlds])

    ranks = dz.fit.sbc(function, TARGETS, priors=PRIORS, method=method, num=100, progress=False)
    assert ranks.passed()
    assert ranks.coverage(0.9)["theta"] == pytest.approx(stats.binom(100, 0.9).mean() / 100, abs=0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dz.fit.NLE(50), "NLE: simulations=50"),
        (lambda: dz.fit.NRE(500, rounds=6), "NRE: simulations=500.*100 for each round"),
        (lambda: dz.fit.NLE(transforms=0), "NLE: transforms=0"),
        (lambda: dz.fit.NRE(choices=1), "NRE: choices=1"),
        (lambda: dz.fit.NRE(layers=0), "NRE: layers=0"),
        (lambda: dz.fit.NRE(seconds=-1), "NRE: seconds=-1"),
        (lambda: dz.fit.NRE(summaries=len), "NRE: summaries=.*torch.nn.Module"),
        (lambda: posteriors.fitted("normal", Y, dz.fit.NLE(200, flow="zuko_nfs")), "NLE.*did you mean 'zuko_nsf'"),
        (lambda: posteriors.fitted("normal", np.full(8, 40.0), COARSE["NRE"]), r"NRE: the nearest of 200 curves"),
    ],
)
def test_wrong_settings_and_data_are_told(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
