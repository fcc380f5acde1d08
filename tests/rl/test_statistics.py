"""Survival estimates and statistics of experiments, against exact values and known laws."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import denizen as dz
from denizen.rl._statistics import compare, hedges_g, holm, over_seeds, pairs, power, ratio
from denizen.rl._survival import kaplan_meier, naive_mean_age


def counted(ages, budget):
    """(ended, censored) counts of lives that are watched for at most `budget` steps."""
    ended = np.bincount(ages[ages <= budget], minlength=budget + 1)[1:]
    censored = np.zeros(budget, dtype=np.int64)
    censored[-1] = (ages > budget).sum()
    return ended, censored


def test_a_known_hazard_is_found_in_spite_of_censoring():
    made = np.random.default_rng(0)
    ages, watch = made.geometric(0.02, 20_000), made.integers(1, 120, 20_000)
    ended = np.bincount(ages[ages <= watch], minlength=121)[1:]
    censored = np.bincount(watch[ages > watch], minlength=121)[1:]
    found = kaplan_meier(ended, censored)
    exact = 0.98 ** np.arange(len(found.share))
    assert np.abs(found.share[:100] - exact[:100]).max() < 0.02
    assert found.death_rate == pytest.approx(0.02, rel=0.03)


def test_a_small_case_by_hand():
    found = kaplan_meier([1, 0, 2, 0], [0, 1, 0, 1])  # 5 lives: ends at 1, 3, 3; watched to 2 and to 4
    assert found.share.tolist() == pytest.approx([1, 0.8, 0.8, 0.8 * (1 - 2 / 3), 0.8 / 3])
    assert (found.deaths, found.lives, found.exposure) == (3, 5, 1 + 2 + 3 + 3 + 4)
    assert found.median == 3
    assert found.restricted_mean(3) == pytest.approx(2.6)
    assert found.at(1) == pytest.approx(0.8)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 40))
def test_invariants(ages, budget):
    found = kaplan_meier(*counted(np.array(ages), budget))
    assert found.share[0] == 1
    assert (np.diff(found.share) <= 1e-12).all()
    assert found.lives == len(ages)
    watched = np.minimum(ages, budget)
    assert found.exposure == watched.sum()
    if found.deaths == len(ages):  # nothing censored: the plain share
        for age in range(len(found.share)):
            assert found.share[age] == pytest.approx((np.array(ages) > age).mean())
    assert found.restricted_mean(len(found.share) - 1) == pytest.approx(
        np.minimum(watched, len(found.share) - 1).mean()
    )


def test_without_a_death_there_is_a_bound():
    found = kaplan_meier([0, 0], [0, 10])
    assert found.death_rate == 0
    assert found.death_rate_bound == pytest.approx(3 / 20)
    assert found.median is None


def test_an_average_with_censored_lives_tells_the_budget():
    made = np.random.default_rng(1)
    for hazard in (1e-4, 1e-3, 1e-2):
        budget, worlds = 1000, 200
        deaths, ages = 0, []
        for _ in range(worlds):
            now = 0
            while now < budget:
                life = min(made.geometric(hazard), budget - now)
                now += life
                ages.append(life)
                deaths += now < budget
        assert np.mean(ages) == pytest.approx(naive_mean_age(worlds, budget, deaths))


def test_the_error_of_a_ratio_covers_the_truth():
    made, covered = np.random.default_rng(2), 0
    for _ in range(400):
        b = made.poisson(30, 60)
        found = ratio(made.binomial(b, 0.3), b)
        covered += found.low <= 0.3 <= found.high
    assert 0.92 < covered / 400 < 0.98


def test_seeds_are_the_units():
    values = [1.0, 2.0, 4.0, 3.0]
    found = over_seeds(values)
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert math.isnan(over_seeds([1.0, 2.0]).low)
    assert math.isnan(compare([1.0, 2.0], [3.0, 4.0, 5.0]).p)


def test_comparisons_agree_with_scipy_and_hedges():
    a, b = [3.0, 4.0, 5.0, 4.5], [1.0, 2.0, 1.5, 2.5]
    found = compare(a, b)
    assert found.p == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)
    assert found.p_permutation == pytest.approx(2 / math.comb(8, 4))
    assert found.hedges_g == pytest.approx(
        (4.125 - 1.75) / math.sqrt((np.var(a, ddof=1) + np.var(b, ddof=1)) / 2) * (1 - 3 / 23)
    )
    assert compare([1.0] * 3, [1.0] * 3).difference == 0
    assert math.isnan(hedges_g([1.0] * 3, [2.0] * 3))


def test_holm_by_hand():
    assert holm([0.01, 0.04, math.nan, 0.03]) == pytest.approx([0.03, 0.06, math.nan, 0.06], nan_ok=True)
    told = pairs({"a": [1.0, 1.1, 0.9], "b": [2.0, 2.1, 1.9], "c": [1.0, 1.2, 0.8]})
    assert len(told) == 3
    assert told["a", "b"].adjusted >= told["a", "b"].p


def test_power_of_a_large_effect():
    assert power(0.0, 10) == pytest.approx(0.05)
    assert power(2.0, 5) == pytest.approx(0.79, abs=0.02)
    assert power(1.0, 17) == pytest.approx(0.80, abs=0.02)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: kaplan_meier([1], [1, 2]), "expected one shape"),
        (lambda: kaplan_meier([-1], [0]), "negative"),
        (lambda: kaplan_meier([0], [0]), "no life"),
        (lambda: kaplan_meier([1], [0]).restricted_mean(9), "expected 1 to 2 steps"),
        (lambda: ratio([1], [0]), "sum to 0"),
        (lambda: over_seeds([]), "no values"),
    ],
)
def test_wrong_inputs_are_named(call, told):
    with pytest.raises(dz.errors.InputError, match=told):
        call()
