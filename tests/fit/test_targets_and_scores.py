"""How a series is seen, and how forecasts are scored."""

import math

import numpy as np
import pytest

import denizen as dz
from denizen.errors import InputError
from denizen.fit._scores import crps, scores, wis


def test_windows_of_flows_and_levels() -> None:
    series = np.arange(24, dtype=np.float32).reshape(2, 12)
    target = dz.fit.Target([0, 0], every=3, first=4, report=0.5)
    assert target.last == 9
    assert target.windows(series, "flow").tolist() == [[6.0, 10.5], [24.0, 28.5]]
    assert target.windows(series, "level").tolist() == [[2.5, 4.0], [8.5, 10.0]]
    groups = np.stack([series, 2 * series], axis=2)
    assert target.windows(groups, "flow").shape == (2, 2, 2)


@pytest.mark.parametrize("noise", [dz.fit.Poisson(), dz.fit.NegativeBinomial(4.0), dz.fit.Normal(3.0)])
def test_noise_has_its_mean_and_variance(noise: dz.fit.Noise) -> None:
    mean = np.full(40_000, 12.0)
    drawn = noise.draw(mean, np.random.default_rng(0).random(mean.shape))
    variance = {"Poisson": 12.0, "NegativeBinomial": 12 + 12**2 / 4, "Normal": 9.0}[type(noise).__name__]
    assert drawn.mean() == pytest.approx(12, abs=5 * math.sqrt(variance / 40_000))
    assert drawn.var() == pytest.approx(variance, rel=0.05)


def test_crps_of_an_ensemble_is_that_of_its_distribution() -> None:
    """Normal: sd (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)) (Gneiting and Raftery 2007)."""
    ensemble = np.random.default_rng(0).normal(size=(20_000, 3))
    values = np.array([0.0, 1.0, -2.0])
    phi = np.exp(-(values**2) / 2) / math.sqrt(2 * math.pi)
    cdf = np.array([0.5 * (1 + math.erf(z / math.sqrt(2))) for z in values])
    exact = values * (2 * cdf - 1) + 2 * phi - 1 / math.sqrt(math.pi)
    assert crps(ensemble, values) == pytest.approx(exact, abs=0.02)
    few = np.random.default_rng(1).normal(size=(5, 20_000))
    assert crps(few, np.ones(20_000)).mean() == pytest.approx(exact[1], abs=0.02)  # the fair form is not too large


def test_wis_is_a_mean_of_quantile_scores() -> None:
    """Twice the pinball loss, averaged over the 23 quantiles of the intervals and the median."""
    ensemble = np.random.default_rng(0).normal(3.0, 2.0, size=(500, 7))
    values = np.random.default_rng(1).normal(3.0, 4.0, size=7)
    levels = np.concatenate([[0.01, 0.025], np.arange(0.05, 0.975, 0.05), [0.975, 0.99]])
    quantiles = np.quantile(ensemble, levels, axis=0)
    below = values < quantiles
    pinball = (below - levels[:, None]) * (quantiles - values)
    assert len(levels) == 23
    assert wis(ensemble, values) == pytest.approx(2 * pinball.mean(0))


@pytest.mark.slow  # its import takes seconds
def test_scores_are_those_of_scoringrules() -> None:
    scoringrules = pytest.importorskip("scoringrules")
    ensemble = np.random.default_rng(0).normal(3.0, 2.0, size=(50, 7))
    values = np.random.default_rng(1).normal(3.0, 4.0, size=7)
    assert crps(ensemble, values) == pytest.approx(scoringrules.crps_ensemble(values, ensemble.T, estimator="fair"))
    alphas = np.array([0.02, 0.05, *np.arange(0.1, 0.95, 0.1)])
    low, high = (np.quantile(ensemble, q, axis=0).T for q in (alphas / 2, 1 - alphas / 2))
    expected = scoringrules.weighted_interval_score(values, np.median(ensemble, axis=0), low, high, alphas)
    assert wis(ensemble, values) == pytest.approx(expected)


def test_scores_of_a_perfect_and_of_a_constant_forecast() -> None:
    values = np.array([4.0, np.nan, 6.0])
    found = scores(np.tile([4.0, 9.0, 6.0], (8, 1)), values, np.array(5.0))
    assert (found.crps, found.deviation, found.coverage_90) == (0, 0, 1)
    assert (found.persistence_crps, found.persistence_deviation) == (1, 0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every=0"),
        ({"first": 0}, "first=0"),
        ({"kind": "stock"}, "valid: flow, level"),
        ({"report": 0}, "above 0"),
        ({"report": 1.5}, "from 0 to 1"),
        ({"noise": dz.fit.Poisson}, "expected an object"),
        ({"scale": "log"}, "valid: identity, sqrt"),
        ({"weight": 0}, "above 0"),
    ],
)
def test_wrong_options_are_told(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        dz.fit.Target([1.0, 2.0], **options)


def test_wrong_noise_is_told() -> None:
    with pytest.raises(InputError, match="size=0"):
        dz.fit.NegativeBinomial(0)
    with pytest.raises(InputError, match="sd=-1"):
        dz.fit.Normal(-1)
