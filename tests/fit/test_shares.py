"""Vectors of shares: the prior's density in free numbers, and posteriors of counts that are known in closed form."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import polygamma
from torch import Tensor
from torch.distributions import Dirichlet, Normal

import denizen as dz
import posteriors
from denizen.errors import InputError

PRIOR = Dirichlet(torch.tensor([2.0, 3.0, 1.5]))


class Groups(dz.State):
    none: Tensor = dz.real("agents")


class Shop(dz.Model):
    """Each day so many buy, in groups by what they like; no chance of its own."""

    mix: Tensor = dz.param([0.3, 0.3, 0.4], low=0.0, high=1.0)
    num_agents: int = 1

    def init(self, rng: dz.rng.Rng) -> Groups:
        return Groups(none=torch.zeros(1, device=self.mix.device))

    def step(self, now: Any, rng: dz.rng.Rng) -> Groups:
        return now.replace(none=now.none)

    @dz.series
    def bought(self, now: Any) -> Tensor:
        return 200 * self.mix + 0 * now.none


DAYS = np.array([[60, 100, 45], [71, 92, 38], [55, 110, 37], [63, 97, 44.0]])
EXACT = DAYS.sum(0) + PRIOR.concentration.numpy()  # of the posterior: 200 are expected a day, whatever the shares


def bought(values: np.ndarray = DAYS) -> dict[str, dz.fit.Target]:
    return {"bought": dz.fit.Target(values, noise=dz.fit.Poisson())}


def moments(concentration: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = concentration / concentration.sum()
    return mean, np.sqrt(mean * (1 - mean) / (concentration.sum() + 1))


def fitted(method: Any, **options: Any) -> dz.fit.Fit:
    given = {"priors": {"mix": PRIOR}, "method": method, "device": "cpu", "progress": False} | options
    return dz.calibrate(Shop(), bought(), **given)


def test_a_walk_draws_from_dirichlet_multinomial() -> None:
    fit = fitted(dz.fit.ParticleFilter(particles=2, chains=16, burn_in=40, iterations=60, tried=8))
    draws = fit._solution.draws
    assert draws is not None
    mean, sd = moments(EXACT)
    found = fit._experiment.parameters.values(draws)["mix"]
    worth = posteriors.worth(draws.reshape(16, 60, 2)).min()
    assert worth > 100
    assert (np.abs(found.mean(0) - mean) < 4 * sd / math.sqrt(worth)).all()
    assert found.std(0) == pytest.approx(sd, rel=4 / math.sqrt(2 * worth))
    assert fit.samples(10)["mix"].sum(1) == pytest.approx(1)
    assert float(fit.model.mix.sum()) == pytest.approx(1)  # type: ignore[union-attr]  # pyrefly: ignore
    assert fit.forecast(1, draws=4)["bought"].shape == (4, 1, 3)


def test_differences_find_its_place_and_width() -> None:
    """In free numbers, logarithms of Dirichlet shares over the last: their covariance is of trigamma functions."""
    fit = fitted(dz.fit.GaussNewton(), replicates=64)
    assert fit.converged
    mean, sd = moments(EXACT)
    assert (np.abs(fit.params["mix"] - mean) < 0.4 * sd).all()
    exact = np.diag(polygamma(1, EXACT[:-1])) + polygamma(1, EXACT[-1])
    assert np.sqrt(np.diag(fit._solution.covariance())) == pytest.approx(np.sqrt(np.diag(exact)), rel=0.2)
    assert "mix[2]" in str(fit)
    assert fit.compare(fit.scenario({"mix": [0.5, 0.25, 0.25]}), draws=2, steps=3).rows


def test_flat_shares_and_those_of_a_function() -> None:
    def shop(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        return (theta[:, :1] * theta[:, 1:])[:, None].expand(-1, 4, -1)

    flat = fitted(dz.fit.GaussNewton(), priors={"mix": dz.fit.Shares()}, replicates=8)
    assert flat.params["mix"] == pytest.approx(DAYS.sum(0) / DAYS.sum(), abs=0.04)
    assert any("flat between the bounds in transformed units: mix" in note for note in flat.notes)
    priors = {"daily": Normal(200.0, 20.0), "mix": dz.fit.Shares(PRIOR)}
    fit = dz.calibrate(shop, bought(), priors=priors, replicates=8, progress=False)
    assert fit.params["mix"] == pytest.approx(EXACT / EXACT.sum(), abs=0.04)


@pytest.mark.slow
def test_relaxed_runs_move_shares(tmp_path: Path) -> None:
    method = dz.fit.Gradient(dz.relax.StraightThrough(), iterations=30, polish=0)
    fit = fitted(method, replicates=4, out=tmp_path / "fit")
    assert fit.params["mix"] == pytest.approx(EXACT / EXACT.sum(), abs=0.06)
    assert dz.fit.Fit.load(tmp_path / "fit", Shop(), method=method).params["mix"].tolist() == fit.params["mix"].tolist()


@pytest.mark.parametrize(
    ("prior", "start", "words"),
    [
        (Dirichlet(torch.ones(2)), [0.3, 0.3, 0.4], "a Dirichlet of 2 shares, expected 3, as mix has"),
        (dz.fit.Shares(), [0.5, 0.5, 0.5], "expected shares that add up to 1"),
        (dz.fit.Shares(), [0.5, 0.5, 0.0], "has a share of 0, where the search cannot begin"),
    ],
)
def test_what_does_not_fit_is_refused(prior: Any, start: list[float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        dz.calibrate(Shop(mix=torch.tensor(start)), bought(), priors={"mix": prior}, device="cpu")


def test_what_is_no_vector_of_shares_is_refused() -> None:
    with pytest.raises(InputError, match=r"Shares: prior=.*, expected a torch.distributions.Dirichlet"):
        dz.fit.Shares(Normal(0.0, 1.0))  # type: ignore[arg-type]  # pyrefly: ignore
    with pytest.raises(InputError, match="finite numbers above 0"):
        dz.fit.Shares(Dirichlet(torch.tensor([1.0, -1.0]), validate_args=False))
    with pytest.raises(InputError, match=r"expected dz.fit.Shares\(Dirichlet"):
        dz.calibrate(lambda theta, worlds: theta, {"y": [1.0]}, priors={"mix": dz.fit.Shares()})
    with pytest.raises(InputError, match="expected a torch distribution of one number"):
        dz.fit.Steps(prior=PRIOR)
