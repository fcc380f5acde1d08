"""Survival with censoring, rates over worlds, claims about trainings: against known answers and scipy."""

import math

import numpy as np
import pytest
from scipy import stats

import denizen as dz
from denizen.studies.statistics import (
    Survival,
    bootstrap,
    compare,
    death_bound,
    effect_for,
    hedges_g,
    holm,
    interval,
    permutation_test,
    power,
    ratio,
    trainings_for,
)


def lives(hazard, count, budget, seed=0):
    """(ages, died) of independent lives, each watched until an age of its own."""
    rng = np.random.default_rng(seed)
    end, watched = rng.geometric(hazard, count), rng.integers(1, budget + 1, count)
    return np.minimum(end, watched), end <= watched


def survival(ages, died, budget):
    return Survival(np.bincount(ages[died], minlength=budget + 1), np.bincount(ages[~died], minlength=budget + 1))


def test_the_estimate_meets_a_known_hazard_under_censoring():
    ages, died = lives(0.02, 40_000, 150)
    curve = survival(ages, died, 150)
    for age in (1, 10, 50, 100, 140):
        assert abs(curve.at(age) - 0.98**age) < 4 * curve.error(age)
    assert curve.median == pytest.approx(math.log(0.5) / math.log(0.98), abs=1)
    assert curve.mean(100) == pytest.approx((1 - 0.98**100) / 0.02, rel=0.01)
    assert curve.at(0) == 1.0
    naive = ages[ages < 150].mean()  # what an average over everything seen would say
    assert naive < 0.8 * curve.mean(150)


def test_the_estimate_equals_scipys():
    ages, died = lives(0.1, 60, 20, seed=3)
    curve = survival(ages, died, 20)
    known = stats.ecdf(stats.CensoredData(uncensored=ages[died], right=ages[~died])).sf
    for age in range(1, int(ages.max()) + 1):
        assert curve.at(age) == pytest.approx(float(known.evaluate(age)), abs=1e-12)
    low = known.confidence_interval(0.95).low
    age = 5
    assert curve.at(age) - 1.959964 * curve.error(age) == pytest.approx(float(low.evaluate(age)), abs=1e-6)


def test_lives_that_all_go_on_have_no_median():
    curve = Survival(np.zeros(11, dtype=int), np.array([0] * 10 + [7]))
    assert curve.median is None
    assert curve.mean(10) == 10
    assert curve.error(10) == 0
    assert death_bound(0, 6000) == 3 / 6000
    assert death_bound(2, 6000) is None


def test_wrong_ages_are_named():
    with pytest.raises(dz.errors.InputError, match="ended at age 0"):
        Survival(np.array([1, 0]), np.array([0, 1]))
    with pytest.raises(dz.errors.InputError, match="expected counts by age"):
        Survival(np.array([0, 1]), np.array([0, 1, 1]))
    curve = Survival(np.array([0, 1]), np.array([0, 1]))
    with pytest.raises(dz.errors.InputError, match="ages from 0 to 1"):
        curve.at(2)
    with pytest.raises(dz.errors.InputError, match="ages from 1 to 1"):
        curve.mean(2)


def test_the_error_of_a_ratio_counts_worlds():
    rng = np.random.default_rng(0)

    def draw():  # worlds differ in what they offer, so their sums spread more than single meals would
        share, meals = rng.beta(2, 2, 200), rng.poisson(50, 200)
        return rng.binomial(meals, share), meals

    estimates = [ratio(*draw()) for _ in range(400)]
    spread = np.std([estimate.value for estimate in estimates])
    assert np.mean([estimate.error for estimate in estimates]) == pytest.approx(spread, rel=0.1)
    food, meals = np.array([3, 0, 5]), np.array([4, 2, 5])
    r = 8 / 11
    by_hand = math.sqrt(3 / 2 * sum((f - r * n) ** 2 for f, n in zip(food, meals, strict=True))) / 11
    assert ratio(food, meals).error == pytest.approx(by_hand)
    assert ratio(food, meals, 1000.0).error == pytest.approx(1000 * by_hand)
    assert math.isnan(ratio([0, 0], [0, 0]).value)
    assert math.isnan(ratio([1], [2]).error)


def test_intervals_and_effects_over_trainings():
    x, y = [1.0, 2.0, 4.0, 5.5], [0.5, 1.0, 0.0]
    low, high = stats.t.interval(0.95, 3, np.mean(x), stats.sem(x))
    found = interval(x)
    assert (found.low, found.high, found.count) == (pytest.approx(low), pytest.approx(high), 4)
    assert math.isnan(interval([3.0]).low)
    pooled = math.sqrt((3 * np.var(x, ddof=1) + 2 * np.var(y, ddof=1)) / 5)
    assert hedges_g(x, y) == pytest.approx((np.mean(x) - 0.5) / pooled * (1 - 3 / 19))
    assert hedges_g([1.0, 1.0], [0.0, 0.0]) == math.inf
    known = stats.permutation_test(
        (x, y),
        lambda a, b, axis: abs(a.mean(axis) - b.mean(axis)),
        vectorized=True,
        n_resamples=np.inf,
        alternative="greater",
    ).pvalue
    assert permutation_test(x, y) == pytest.approx(known)


def test_trainings_that_differ_by_rounding_alone_are_equal():
    one, other = [0.1 + 0.2, 0.3, 0.3], [0.3, 0.3, float(np.float32(0.3))]
    assert hedges_g(one, other) == 0.0
    assert permutation_test(one, other) == 1.0
    found = compare({"one": one, "other": other, "varied": [1.0, 2.0, 3.0], "best": [5.0, 5.0 + 1e-15, 5.0]})
    told = {(pair.first, pair.second): pair for pair in found}
    assert (told["one", "other"].welch, told["one", "other"].effect) == (1.0, 0.0)
    assert (told["one", "best"].welch, told["one", "best"].effect) == (0.0, -math.inf)
    by_hand = stats.ttest_ind_from_stats(2.0, 1.0, 3, 5.0, 0.0, 3, equal_var=False).pvalue
    assert told["varied", "best"].welch == pytest.approx(by_hand)


def test_ties_of_a_permutation_test_are_ties_on_a_large_offset():
    x, y = [0.1, 0.2, 0.4], [0.3, 0.5, 0.6]
    plain = permutation_test(x, y)
    assert permutation_test([1e4 + v for v in x], [1e4 + v for v in y]) == plain == 0.2


def test_holm_is_monotone_and_known():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([]) == []


def test_two_trainings_claim_nothing():
    modes = {"a": [1.0, 2.0, 3.0], "b": [7.0, 8.0, 9.5, 8.0], "few": [1.0, 2.0], "c": [1.5, 2.0, 2.5]}
    found = compare(modes)
    assert [(pair.first, pair.second) for pair in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert found[0].welch == pytest.approx(stats.ttest_ind(modes["a"], modes["b"], equal_var=False).pvalue)
    assert found[0].welch < found[0].holm < 0.05
    assert found[0].permutation == pytest.approx(1 / 35)
    assert found[1].holm > 0.5
    assert compare({"a": [1.0] * 3, "b": [1.0] * 3})[0].welch == 1.0


def test_the_band_of_a_curve_holds_it():
    rng = np.random.default_rng(1)
    ages = [rng.geometric(0.05 * factor, 300) for factor in (0.9, 1.0, 1.1)]

    def curve(often):
        died = sum(np.bincount(np.minimum(a, 60), weights=n, minlength=61) for a, n in zip(ages, often, strict=True))
        return Survival(died.astype(int), np.zeros(61, dtype=int)).survival[:60]

    low, high = bootstrap([300] * 3, curve, draws=100)
    middle = curve([np.ones(300, dtype=int)] * 3)
    assert bool(((low <= middle) & (middle <= high)).all())
    assert 0.02 < (high - low)[15] < 0.3


def test_power_is_that_of_the_tables_and_of_scipy_where_it_has_one():
    # Cohen (1988), two-sided t-test at 5 %, 80 %: 64 for 0.5, 26 for 0.8, 17 for 1.0; G*Power: 394 for 0.2
    assert [trainings_for(effect) for effect in (0.2, 0.5, 0.8, -1.0)] == [394, 64, 26, 17]
    for effect in (0.0, 0.5, 2.0):
        for count in (2, 5, 10):
            freedom, shift = 2 * count - 2, effect * math.sqrt(count / 2)
            limit = stats.t.ppf(0.975, freedom)
            known = stats.nct.sf(limit, freedom, shift) + stats.nct.cdf(-limit, freedom, shift)
            assert power(effect, count) == pytest.approx(known, abs=2e-5)
    assert power(1.0, 1000) == pytest.approx(1.0)  # scipy's is NaN there


def test_power_is_the_share_of_experiments_that_find_an_effect():
    rng = np.random.default_rng(0)
    a, b = rng.normal(1.5, 1.0, (20_000, 5)), rng.normal(0.0, 1.0, (20_000, 5))
    found = (stats.ttest_ind(a, b, axis=1).pvalue < 0.05).mean()
    assert power(1.5, 5) == pytest.approx(found, abs=0.015)


def test_trainings_for_an_effect_and_effects_for_trainings():
    assert trainings_for(math.inf) == trainings_for(50.0) == 3  # fewer are not tested
    assert trainings_for(0.0) is None
    assert trainings_for(math.nan) is None
    for count in (3, 5, 10):
        assert power(effect_for(count), count) == pytest.approx(0.8, abs=1e-6)
    assert trainings_for(effect_for(10) + 1e-6) == 10
    with pytest.raises(dz.errors.InputError, match="trainings=1"):
        power(1.0, 1)
