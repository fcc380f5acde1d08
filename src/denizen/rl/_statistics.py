"""Statistics of experiments: ratios over worlds, intervals over training seeds, differences between modes."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from denizen.errors import InputError, need

FEWEST_SEEDS = 3  # below which nothing is said about a mode


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and how well it is known.

    Attributes:
        value: the estimate.
        error: its standard error.
        low: lower end of the 95 % interval; NaN where there is none.
        high: upper end.
        count: of units that it rests on.
    """

    value: float
    error: float
    low: float
    high: float
    count: int


def ratio(numerator: Sequence[float] | np.ndarray, denominator: Sequence[float] | np.ndarray) -> Estimate:
    """Ratio of sums over worlds, worlds being independent clusters.

    SE^2 = W / (W - 1) * sum (a_w - R b_w)^2 / (sum b_w)^2.

    Args:
        numerator: a, `[worlds]`.
        denominator: b, `[worlds]`.

    Raises:
        InputError: shapes that differ, or a sum of b that is not positive.
    """
    a, b = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise InputError(f"ratio: numerator {a.shape} and denominator {b.shape}: expected one shape (worlds,)")
    whole, worlds = b.sum(), len(a)
    if not whole > 0:
        raise InputError(f"ratio: the denominators sum to {whole:g}, expected a number above 0")
    value = a.sum() / whole
    if worlds < 2:
        return Estimate(float(value), math.nan, math.nan, math.nan, worlds)
    error = math.sqrt(worlds / (worlds - 1) * ((a - value * b) ** 2).sum()) / whole
    half = 1.959964 * error
    return Estimate(float(value), error, float(value - half), float(value + half), worlds)


def over_seeds(values: Sequence[float]) -> Estimate:
    """Mean over training seeds with Student's t interval; without interval for fewer than three."""
    known = np.asarray(values, dtype=np.float64)
    count = len(known)
    if count == 0:
        raise InputError("over_seeds: no values; expected one for each training seed")
    mean = float(known.mean())
    if count < FEWEST_SEEDS:
        return Estimate(mean, math.nan, math.nan, math.nan, count)
    error = float(known.std(ddof=1)) / math.sqrt(count)
    half = float(_stats().t.ppf(0.975, count - 1)) * error
    return Estimate(mean, error, mean - half, mean + half, count)


@dataclasses.dataclass(frozen=True)
class Difference:
    """Two modes compared, training seeds being the units.

    Attributes:
        difference: of the means.
        p: of Welch's test; NaN where a mode has fewer than three seeds.
        p_permutation: of the exact permutation test of the means; NaN likewise.
        hedges_g: standardised difference, corrected for small samples; NaN likewise.
        adjusted: `p` after Holm's correction over all pairs.
    """

    difference: float
    p: float
    p_permutation: float
    hedges_g: float
    adjusted: float = math.nan


def compare(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Compare one value for each training seed of two modes."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    difference = float(x.mean() - y.mean())
    if min(len(x), len(y)) < FEWEST_SEEDS:
        return Difference(difference, math.nan, math.nan, math.nan)
    stats = _stats()
    constant = x.std() == 0 and y.std() == 0  # Welch's statistic is undefined then; the permutation test is not
    welch = math.nan if constant else float(stats.ttest_ind(x, y, equal_var=False).pvalue)
    permuted = stats.permutation_test(
        (x, y), lambda u, v, axis: u.mean(axis) - v.mean(axis), n_resamples=100_000, rng=0
    )
    return Difference(difference, welch, float(permuted.pvalue), hedges_g(x, y))


def hedges_g(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> float:
    """Difference of means over the pooled standard deviation, times 1 - 3 / (4 (n - 2) - 1) (Hedges, 1981)."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    free = len(x) + len(y) - 2
    pooled = math.sqrt(((len(x) - 1) * x.var(ddof=1) + (len(y) - 1) * y.var(ddof=1)) / free)
    if pooled == 0:
        return math.nan
    return float((x.mean() - y.mean()) / pooled) * (1 - 3 / (4 * free - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for several tests (Holm, 1979); NaN stays NaN and does not count."""
    known = [k for k, p in enumerate(p_values) if not math.isnan(p)]
    adjusted, least = [math.nan] * len(p_values), 0.0
    for place, k in enumerate(sorted(known, key=lambda k: p_values[k])):
        least = max(least, min(1.0, (len(known) - place) * p_values[k]))
        adjusted[k] = least
    return adjusted


def pairs(values: dict[str, Sequence[float]]) -> dict[tuple[str, str], Difference]:
    """Every two modes compared, with Holm's correction over all pairs."""
    names = list(values)
    both = [(a, b) for k, a in enumerate(names) for b in names[k + 1 :]]
    found = [compare(values[a], values[b]) for a, b in both]
    adjusted = holm([one.p for one in found])
    return {pair: dataclasses.replace(one, adjusted=p) for pair, one, p in zip(both, found, adjusted, strict=True)}


def power(effect: float, seeds: int) -> float:
    """Chance that a two-sided t-test at 5 % with so many seeds in each of two modes finds a standardised effect."""
    if seeds < 2:
        return math.nan
    stats, free = _stats(), 2 * seeds - 2
    limit, shift = stats.t.ppf(0.975, free), effect * math.sqrt(seeds / 2)
    return float(stats.nct.sf(limit, free, shift) + stats.nct.cdf(-limit, free, shift))


def _stats() -> Any:
    return need("scipy.stats", "stats", "intervals and tests")
