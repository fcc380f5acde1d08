"""Parts of calibrations that nothing public shows one by one: scores, chains, surfaces, budgets, what folders keep."""

import datetime
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Beta, LogNormal, Normal, Uniform

import denizen as dz
from denizen.errors import DataError, InputError
from denizen.fit import Target, _stored
from denizen.fit._budget import Budget
from denizen.fit._chains import effective_draws, scale_reduction
from denizen.fit._diagnostics import OUTLIER, _residuals
from denizen.fit._experiment import Experiment
from denizen.fit._from_priors import of_priors
from denizen.fit._iterated_filter import quadratic
from denizen.fit._ledger import Ledger
from denizen.fit._neural_likelihood import _spread
from denizen.fit._scores import crps, last_seen, scores, wis
from denizen.fit._synthetic import log_normal
from denizen.fit._target import dated
from denizen.fit._trials import Trials, _loss

MONDAY = "2020-03-02"
WEEKS = ["2020-03-02", "2020-03-09", "2020-03-16"]


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


def test_the_last_seen_of_each_group() -> None:
    values = np.array([[1.0, np.nan, 3.0], [4.0, np.nan, np.nan]])
    assert np.array_equal(last_seen(values), [4.0, np.nan, 3.0], equal_nan=True)


def test_a_launch_is_served_in_the_order_in_which_it_was_given(tmp_path: Path) -> None:
    """What the next launch begins from may be all that one gave, as for `Gradient`: its digest must be the same."""
    launch = {"param": np.ones(2, np.float32), "usual": np.zeros(3), "end": np.ones(1), "a": np.ones((), np.float32)}
    served = []
    for _ in range(2):
        ledger = Ledger(tmp_path / "launches.bin", str)
        first = ledger.recorded("step", [], lambda: launch)
        ledger.recorded("step", first.values(), lambda: launch)
        served.append(list(first))
        ledger.close()
    assert served[0] == served[1]
    assert ledger.launches == 2


def test_a_few_in_a_window_where_all_worlds_have_none_are_no_outlier() -> None:
    """Counts near 0 scatter like others once their roots are compared; many more there are told."""
    seen = np.random.default_rng(0).poisson([0.0, 60, 900], size=(16, 3)).astype(float)
    for counted, odd in ((1.0, False), (30.0, True)):
        target = Target([counted, 60, 900])
        away = _residuals(target, seen)
        assert (abs(away[0]) > OUTLIER) == odd, away


def test_a_quadratic_with_noise_is_found() -> None:
    rng = np.random.default_rng(0)
    information, slope = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([0.3, -0.2])
    z = 1.5 * rng.normal(size=(2_000, 2))
    value = 7 + z @ slope - 0.5 * np.einsum("ni,ij,nj->n", z, information, z) + 0.5 * rng.normal(size=2_000)
    value[::100] = -np.inf
    found = quadratic(z, value)
    assert found.information == pytest.approx(information, abs=0.05)
    assert found.slope == pytest.approx(slope, abs=0.05)
    assert found.noise == pytest.approx(0.25, rel=0.15)
    assert np.sqrt(np.diag(found.error)) == pytest.approx([0.008, 0.008], rel=0.5)
    assert quadratic(z[:4], value[:4]).noise == math.inf


def test_targets_with_dates_find_their_steps() -> None:
    days = [f"2020-03-{day:02d}" for day in range(4, 10)]
    targets = {
        "weekly": Target([1, 2, 3], dates=WEEKS, every=7),
        "ends": Target([1, 2], dates=["2020-03-14", "2020-03-21"], every=7, dated="end"),
        "daily": Target(range(6), dates=days),
        "plain": Target([1], first=5),
    }
    placed = dated("test", targets, None, "day")
    assert {name: one.first for name, one in placed.items()} == {"weekly": 1, "ends": 7, "daily": 3, "plain": 5}
    placed = dated("test", targets, datetime.date(2020, 2, 28), "day")
    assert {name: one.first for name, one in placed.items()} == {"weekly": 4, "ends": 10, "daily": 6, "plain": 5}


def test_a_week_that_begins_elsewhere_is_another_number() -> None:
    """Growth at rate r: windows that begin a day later hold e^r times as much."""
    series = np.exp(0.2 * np.arange(40))[None]
    on_monday = Target([1, 1], dates=WEEKS[:2], every=7)
    on_tuesday = Target([1, 1], dates=["2020-03-03", "2020-03-10"], every=7)
    on_tuesday = dated("test", {"x": on_tuesday}, MONDAY, "day")["x"]
    assert on_tuesday.windows(series, "flow") == pytest.approx(np.exp(0.2) * on_monday.windows(series, "flow"))
    assert on_tuesday.windows(series, "level") == pytest.approx(np.exp(0.2) * on_monday.windows(series, "level"))


def test_values_that_come_again_are_spread_up_to_their_neighbours() -> None:
    rng = np.random.default_rng(0)
    some = rng.permutation(np.concatenate([np.zeros(400), rng.choice(np.arange(1e5), 600, replace=False) + 1]))
    counts = rng.poisson(3.0, 1_000)
    spread = _spread(np.stack([some, counts, np.arange(1_000.0)], axis=1), np.random.default_rng(1))
    gap = np.sort(some[some > 0])[0]
    assert len(np.unique(spread[some == 0, 0])) == 400  # fewer than half of all, and still no density has room for them
    assert np.abs(spread[some == 0, 0]).max() <= gap / 2
    assert (spread[some > 0, 0] == some[some > 0]).all()
    assert stats.kstest((spread[:, 1] + 0.5) % 1, "uniform").pvalue > 1e-3
    assert (spread[:, 2] == np.arange(1_000)).all()


def test_the_density_has_no_bias_for_normal_numbers() -> None:
    """Its mean over sets of eight worlds is the density, up to a constant that does not depend on the place."""
    rng = np.random.default_rng(0)
    factor = np.linalg.cholesky([[1.0, 0.5], [0.5, 2.0]])
    means, ses = [], []
    for shift in (0.0, 1.0, 2.0):
        found = [np.exp(log_normal(shift + rng.normal(size=(8, 2)) @ factor.T)) for _ in range(8_000)]
        means.append(np.mean(found))
        ses.append(np.std(found) / np.sqrt(8_000))
    exact = stats.multivariate_normal([0.0, 0.0], factor @ factor.T)
    for k, shift in ((1, 1.0), (2, 2.0)):
        ratio = exact.pdf([shift, shift]) / exact.pdf([0.0, 0.0])
        error = ratio * np.hypot(ses[0] / means[0], ses[k] / means[k])
        assert means[k] / means[0] == pytest.approx(ratio, abs=4 * error)


def test_few_worlds_take_a_shrunken_covariance() -> None:
    rng = np.random.default_rng(1)
    near, far = (np.mean([log_normal(shift + rng.normal(size=(8, 5))) for _ in range(400)]) for shift in (0.0, 2.0))
    assert 3.5 < near - far < 10  # as steep as Student's t, and less than the normal density, of a known covariance


def test_mixing_and_worth_of_chains() -> None:
    rng = np.random.default_rng(0)
    alike = rng.normal(size=(4, 500, 2))
    assert scale_reduction(alike) == pytest.approx([1, 1], abs=0.01)
    assert effective_draws(alike) == pytest.approx([2_000, 2_000], rel=0.2)
    alike[0, :, 1] += 2
    assert scale_reduction(alike)[1] > 1.3
    walk = np.zeros((4, 2_000, 1))
    for k in range(1, 2_000):  # correlation 0.9: worth 1/19 of the draws
        walk[:, k] = 0.9 * walk[:, k - 1] + rng.normal(size=(4, 1))
    assert effective_draws(walk)[0] == pytest.approx(8_000 / 19, rel=0.3)
    still = np.zeros((2, 8, 1))
    assert scale_reduction(still)[0] == 1
    still[1] = 1
    assert scale_reduction(still)[0] == math.inf


def test_the_loss_of_few_worlds_has_no_bias_and_knows_its_noise() -> None:
    rng = np.random.default_rng(0)
    found = [_loss(rng.normal(size=(6, 5)) + np.array([1.0, 0, 0, 0, 2])) for _ in range(4_000)]
    losses = np.array([loss for loss, _ in found])
    noise = np.array([pseudo.std(ddof=1) / np.sqrt(6) for _, pseudo in found])
    assert losses.mean() == pytest.approx(1, abs=4 * losses.std() / np.sqrt(4_000))
    assert np.sqrt((noise**2).mean()) == pytest.approx(losses.std(), rel=0.15)


def test_places_near_the_best_get_more_worlds() -> None:
    targets = {"y": Target(np.random.default_rng(7).normal(size=12), scale="identity")}
    times = torch.arange(12) / 12
    noise = torch.as_tensor(np.random.default_rng(5).normal(size=(4_000, 12)))
    priors = {"level": Normal(0.0, 2.0), "slope": Normal(0.0, 2.0)}
    seen: list[list[float]] = []

    def watched(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        seen.append(sorted({row[0] for row in theta.tolist()}))
        return theta[:, :1] + theta[:, 1:] * times + 0.3 * noise[torch.as_tensor(worlds)]

    experiment = Experiment(
        watched, of_priors("test", priors), targets, steps=12, seed=0, device=None, interventions=()
    )
    trials = Trials(experiment, 16, Budget(experiment, 10_000, None), lambda iteration: None)
    places = np.array([[0.01, 0.0], [9.0, 0.0], [0.02, 0.0], [5.0, 0.0]])
    found = trials.race(places)
    assert found is not None
    assert seen[0] == [0.01, 0.02, 5.0, 9.0]
    assert seen[1] == [0.01, 0.02]
    assert np.argsort(found.value)[2:].tolist() == [3, 1]
    assert not found.alike
    assert trials.race(np.zeros((3, 2))).alike  # pyrefly: ignore


@pytest.mark.parametrize(
    "value",
    [
        None,
        float("inf"),
        {"a": (1, 2.5, "x", True)},
        np.arange(40.0).reshape(4, 10),
        np.array([1.0, np.nan]),
        np.array(["2020-03-01", "2020-03-08"], dtype="datetime64[D]"),
        np.datetime64("2020-03-01"),
        dz.fit.NegativeBinomial(3.0),
        dz.model.Scale(target="infect_rate", factor=0.5, when=dz.model.During(3)),
    ],
)
def test_values_come_back(value: Any) -> None:
    tensors: _stored.Tensors = {}
    back = _stored.decode(json.loads(json.dumps(_stored.encode(value, tensors))), tensors, "value")
    if isinstance(value, np.ndarray):
        assert back.dtype == value.dtype
        assert np.array_equal(back, value, equal_nan=value.dtype.kind == "f")
    else:
        assert back == value


def test_distributions_come_back() -> None:
    for prior in (Normal(0.1, 2.0), LogNormal(0.2, 0.3), Uniform(0.1, 0.7), Beta(2.0, 3.0)):
        tensors: _stored.Tensors = {}
        back = _stored.decode(_stored.encode(prior, tensors), tensors, "value")
        assert type(back) is type(prior)
        points = torch.tensor([0.15, 0.5])
        assert back.log_prob(points).equal(prior.log_prob(points))


@pytest.mark.parametrize(
    "told",
    [
        {"object": "Model", "with": {}},
        {"object": "os.system", "with": {"command": "x"}},
        {"object": "NegativeBinomial", "with": {"size": -1}},
        {"object": "NegativeBinomial", "with": {"length": 1}},
        {"distribution": "Normal", "with": {"loc": "a"}},
        {"distribution": "kl_divergence", "with": {}},
        {"distribution": "transforms", "with": {}},
        {"array": "../../etc"},
        {"numbers": [1], "shape": [3], "dtype": "float32"},
        {"numbers": [1], "shape": [1], "dtype": "object"},
        {"something": 1},
    ],
)
def test_what_was_tampered_with_is_refused(told: Any) -> None:
    with pytest.raises((DataError, InputError)):
        _stored.decode(told, {}, "value")
