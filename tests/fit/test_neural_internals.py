"""What no public name shows of neural posteriors: walks on densities that are known, and draws for several data."""

import numpy as np
import pytest
from scipy import stats
from torch.distributions import Normal

import denizen as dz
import posteriors
from denizen.fit._setup import set_up
from denizen.fit._tempered import APART, tempered


def uniform(places: np.ndarray) -> np.ndarray:
    return np.where((np.abs(places) < 10).all(1), 0.0, -np.inf)


def test_two_narrow_modes_keep_their_shares() -> None:
    generator = np.random.default_rng(1)

    def log_likelihood(places: np.ndarray) -> np.ndarray:
        one, other = (stats.norm.logpdf(places, middle, 0.05).sum(1) for middle in (-6.0, 4.0))
        return np.logaddexp(np.log(0.3) + one, np.log(0.7) + other)

    places, tied = tempered(generator.uniform(-10, 10, (1_000, 2)), uniform, log_likelihood, generator)
    right = places[:, 0] > 0
    assert right.mean() == pytest.approx(0.7, abs=0.1)
    assert places[right].std(0) == pytest.approx([0.05, 0.05], rel=0.2)
    assert places[right].mean(0) == pytest.approx([4, 4], abs=0.01)
    assert tied > APART  # no move leads from one to the other, and that is told


def test_a_narrow_ridge_is_filled_as_it_is() -> None:
    generator = np.random.default_rng(2)
    covariance = np.array([[1.0, 0.99, 0.0], [0.99, 1.0, 0.0], [0.0, 0.0, 1e-4]])
    exact = stats.multivariate_normal(np.ones(3), covariance)
    places, tied = tempered(generator.uniform(-10, 10, (4_000, 3)), uniform, exact.logpdf, generator)
    assert np.cov(places.T) == pytest.approx(covariance, rel=0.15, abs=5e-3)
    assert places.mean(0) == pytest.approx(np.ones(3), abs=0.1)
    assert tied <= APART


def test_a_likelihood_that_is_nowhere_or_not_a_number_ends() -> None:
    generator = np.random.default_rng(3)
    begin = generator.uniform(-10, 10, (500, 1))
    places, _ = tempered(begin, uniform, lambda at: np.where(at[:, 0] > 0, 0.0, np.nan), generator)
    assert (places > 0).all()
    places, _ = tempered(begin, uniform, lambda at: np.full(len(at), -np.inf), generator)
    assert np.isfinite(places).all()


@pytest.mark.parametrize("method", [dz.fit.NPE(200, flow="mdn", epochs=2), dz.fit.NRE(200, hidden=8, epochs=2)])
def test_draws_for_several_data_come_of_numbers_of_their_own(method: dz.fit.NPE) -> None:
    """Else all ranks of `sbc` hang together by what these numbers happen to be."""
    given = {"method": method, "steps": None, "replicates": 4, "holdout": 0, "start": None}
    given |= {"priors": {"theta": Normal(0.0, 2.0)}, "interventions": (), "device": None}
    targets = {"y": dz.fit.Target(np.zeros(8), scale="identity")}
    one, again, other = (
        set_up("sbc", posteriors.normal_mean, targets, seed=seed, **given).experiment for seed in (1, 1, 2)
    )
    learning = method.learn(one, lambda line: None)
    first, same, fresh = (learning.drawn(experiment, 50)[0] for experiment in (one, again, other))
    assert (first == same).all()
    assert abs(np.corrcoef(np.sort(first[:, 0]), np.sort(fresh[:, 0]))[0, 1]) < 1
    assert abs(np.corrcoef(first[:, 0], fresh[:, 0])[0, 1]) < 0.6
