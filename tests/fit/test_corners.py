"""Two features at once: gaps and held-out values, weights and posteriors, delays with an end, counts below 0."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import LogNormal, Uniform

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.space import generators
from denizen.zoo.sir import sir

STEPS = 20
TIMES = torch.arange(STEPS, dtype=torch.float64)
PRIORS = {"rate": LogNormal(-2.5, 0.5), "begin": LogNormal(2.0, 0.5)}
VALUES = np.round(9 * np.exp(0.08 * TIMES.numpy()))


def growth(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    noise = torch.stack([torch.tensor(np.random.default_rng([world, 3]).normal(size=STEPS)) for world in worlds])
    return theta[:, 1:] * torch.exp(theta[:, :1] * TIMES + 0.05 * noise)


def with_gaps(*gaps: slice) -> np.ndarray:
    values = VALUES.copy()
    for gap in gaps:
        values[gap] = np.nan
    return values


def test_persistence_goes_by_the_last_value_that_was_observed() -> None:
    values = with_gaps(slice(13, 15))
    fit = dz.calibrate(growth, {"x": values}, priors=PRIORS, holdout=5, progress=False)
    assert fit.score()["x"].persistence_crps == pytest.approx(np.abs(VALUES[15:] - VALUES[12]).mean())


def test_a_target_of_which_nothing_is_left_is_told() -> None:
    targets = {"x": VALUES, "y": with_gaps(slice(0, 15))}
    with pytest.raises(InputError, match=r"holdout=5 leaves nothing but gaps of targets\['y'\]"):
        dz.calibrate(growth, targets, priors=PRIORS, holdout=5, progress=False)


def test_scores_are_of_what_was_observed() -> None:
    targets = {"x": VALUES, "y": with_gaps(slice(15, 20))}
    fit = dz.calibrate(growth, targets, priors=PRIORS, holdout=5, progress=False)
    assert set(fit.score()) == {"x"}
    fit = dz.calibrate(growth, {"y": targets["y"]}, priors=PRIORS, holdout=5, progress=False)
    with pytest.raises(InputError, match="gaps"):
        fit.score()


@pytest.mark.parametrize("method", [dz.fit.ABCSMC(), dz.fit.SyntheticLikelihood()])
def test_a_posterior_refuses_weights(method: dz.fit.ABCSMC) -> None:
    targets = {"x": dz.fit.Target(VALUES, weight=2)}
    with pytest.raises(InputError, match=r"targets\['x'\] has weight=2"):
        dz.calibrate(growth, targets, priors=PRIORS, method=method, progress=False)


def test_a_delay_may_have_an_end() -> None:
    kernel = dz.fit.Target(VALUES, delay=Uniform(1.0, 4.0)).kernel
    # What happens at v within its step and is written down d later: floor(v + d), d uniform on 1 to 4.
    assert kernel.shares == pytest.approx([0, 1 / 6, 1 / 3, 1 / 3, 1 / 6], abs=1e-6)
    assert kernel.stretched(np.array([5.0])).shares[0] @ np.arange(9) == pytest.approx(5.0, abs=1e-3)


def test_noise_of_counts_below_0_is_told() -> None:
    def below(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        return growth(theta, worlds) - 30

    targets = {"x": dz.fit.Target(VALUES, noise=dz.fit.NegativeBinomial(10))}
    with pytest.raises(ModelError, match=r"NegativeBinomial draws no number about -2\d.*'x'.*value 0"):
        dz.calibrate(below, targets, priors=PRIORS, progress=False)


def test_a_walk_goes_on_beyond_what_a_delay_lets_through() -> None:
    model = sir(generators.erdos_renyi(300, 10.0, seed=0), infect_rate=0.05, seed_share=0.05)
    cases = dz.simulate(model, 22, seed=7, device="cpu")["cases"][0].numpy()
    targets = {"cases": dz.fit.Target(np.append(0, cases[:-1]), delay=[0, 1])}
    walk = dz.fit.Walk(0.3, first=LogNormal(-3.0, 0.5))
    priors = {"infect_rate": dz.fit.Steps(every=7, prior=walk)}
    fit = dz.calibrate(model, targets, priors=priors, replicates=8, device="cpu", progress=False)
    low, high = np.log(fit.interval()["infect_rate"])
    assert high[3] - low[3] > np.hypot(high[2] - low[2], 2 * 1.645 * 0.3) * 0.99


def test_a_bootstrap_is_read_back_with_what_it_says(tmp_path: Path) -> None:
    fit = dz.calibrate(growth, {"x": VALUES}, priors=PRIORS, progress=False).bootstrap(10)
    fit.save(tmp_path / "fit")
    again = dz.fit.Fit.load(tmp_path / "fit", growth)
    assert str(again) == str(fit)
    assert "parametric bootstrap of 10" in str(again)


def test_forecasts_do_not_begin_from_what_a_filter_lost() -> None:
    model = sir(generators.erdos_renyi(200, 10.0, seed=0), infect_rate=0.03, infectious_days=4.0, seed_share=0.01)
    values = np.array([0, 1, 1, 0, 2, 1, 3, 2, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5])
    options = {"priors": {"infect_rate": LogNormal(-3.5, 0.5)}, "replicates": 8, "device": "cpu", "progress": False}
    fit = dz.calibrate(model, {"cases": dz.fit.Target(values, noise=dz.fit.Poisson())}, **options)
    with pytest.warns(UserWarning, match=r"for \d of 8 draws none of 4 particles can give what was observed"):
        assert fit.forecast(3, draws=8, particles=4)["cases"].shape == (8, 3)
    values[-1] = 150
    fit = dz.calibrate(model, {"cases": dz.fit.Target(values, noise=dz.fit.Poisson())}, **options)
    with pytest.raises(ModelError, match="for 8 of 8 draws none of 2 particles"):
        fit.forecast(3, draws=8, particles=2)


def test_a_scenario_of_a_function_stays_within_its_priors() -> None:
    fit = dz.calibrate(growth, {"x": VALUES}, priors=PRIORS, progress=False)
    with pytest.raises(InputError, match=r"Fit.scenario: rate=-3.*at least 0"):
        fit.compare(fit.scenario({"rate": -3.0}), draws=4)
