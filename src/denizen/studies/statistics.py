"""Statistics of lives and of trainings: survival with censoring, rates over worlds, comparisons of trainings.

Everything here works on the host, on numbers that left the device once.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from denizen.errors import InputError, need
from denizen.ops import rounding

Array = NDArray[np.float64]
RULE_OF_THREE = 3.0  # 95 % upper bound of a Poisson mean of which nothing was seen: -ln 0.05, rounded up


@dataclasses.dataclass(frozen=True, eq=False)
class Survival:
    """The estimate of Kaplan and Meier (1958) from ages at death and at the end of watching.

    Attributes:
        died: int64 `[budget + 1]`: lives that ended at each age.
        censored: int64 `[budget + 1]`: lives that were still going on at each age when they were last seen.
        survival: float64 `[budget + 1]`: share that lives longer than each age; 1 at age 0.
    """

    died: NDArray[np.int64]
    censored: NDArray[np.int64]
    survival: Array = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        died, censored = np.asarray(self.died), np.asarray(self.censored)
        if died.shape != censored.shape or died.ndim != 1 or died.size < 2 or (died < 0).any() or (censored < 0).any():
            raise InputError(
                f"Survival: died {died.shape} and censored {censored.shape}, expected counts by age, alike"
            )
        if died[0]:
            raise InputError(f"Survival: {died[0]} lives ended at age 0; a life has at least one step")
        reached = self.reached
        with np.errstate(invalid="ignore", divide="ignore"):
            hazard = np.where(reached > 0, died / reached, 0.0)
        object.__setattr__(self, "survival", np.cumprod(1 - hazard))

    @property
    def reached(self) -> NDArray[np.int64]:
        """Lives that reached each age, to die then or be seen longer: int64 `[budget + 1]`."""
        return np.cumsum((self.died + self.censored)[::-1])[::-1]

    @property
    def budget(self) -> int:
        """The oldest age that could be seen."""
        return self.died.size - 1

    def at(self, age: int) -> float:
        """Share that lives longer than an age."""
        if not 0 <= age <= self.budget:
            raise InputError(f"Survival.at({age}): ages from 0 to {self.budget} were watched")
        return float(self.survival[age])

    def error(self, age: int) -> float:
        """Standard error of `at`, by Greenwood's formula: for independent lives only, such as one of each world."""
        died, reached = self.died[1 : age + 1], self.reached[1 : age + 1]
        with np.errstate(invalid="ignore", divide="ignore"):
            terms = np.where(died > 0, died / (reached * (reached - died)), 0.0)
        total = float(terms.sum())
        return 0.0 if self.survival[age] == 0 else self.at(age) * math.sqrt(total)

    @property
    def median(self) -> int | None:
        """The first age beyond which at most half live on; None: beyond the budget."""
        below = np.flatnonzero(self.survival <= 0.5)
        return int(below[0]) if below.size else None

    def mean(self, upto: int) -> float:
        """Restricted mean: steps lived of the first `upto`, sum of the survival at 0 … upto - 1."""
        if not 1 <= upto <= self.budget:
            raise InputError(f"Survival.mean({upto}): ages from 1 to {self.budget} were watched")
        return float(self.survival[:upto].sum())


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number with its standard error.

    Attributes:
        value: NaN where there is nothing to estimate it from.
        error: standard error; NaN for a single world.
    """

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.error:.2g}"


def ratio(above: ArrayLike, below: ArrayLike, scale: float = 1.0) -> Estimate:
    """Ratio of sums over worlds. The standard error is by worlds, since events in one world are not independent.

    SE^2 = W / (W - 1) * sum (a_w - R b_w)^2 / (sum b_w)^2.

    Args:
        above: `[worlds]`.
        below: `[worlds]`.
        scale: multiplies both results, 1,000 for a rate per 1,000 steps.
    """
    a, b = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise InputError(f"ratio: shapes {a.shape} and {b.shape}, expected one number for each world")
    total = b.sum()
    if total == 0:
        return Estimate(math.nan, math.nan)
    value = a.sum() / total
    worlds = a.size
    if worlds < 2:
        return Estimate(scale * value, math.nan)
    error = math.sqrt(worlds / (worlds - 1) * ((a - value * b) ** 2).sum()) / total
    return Estimate(scale * value, scale * error)


def death_bound(deaths: float, steps: float) -> float | None:
    """95 % upper bound of a death rate where no death was seen, 3.0 / steps; None where there were deaths."""
    return RULE_OF_THREE / steps if deaths == 0 else None


@dataclasses.dataclass(frozen=True)
class Interval:
    """Mean over trainings with a 95 % interval of Student's t, NaN for a single one.

    Attributes:
        mean: of the trainings.
        low: lower end.
        high: upper end.
        count: trainings.
    """

    mean: float
    low: float
    high: float
    count: int


def interval(values: Sequence[float]) -> Interval:
    """The mean over all trainings, estimated from several."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise InputError(f"interval: {values!r}, expected one number for each training")
    mean = float(x.mean())
    if x.size < 2:
        return Interval(mean, math.nan, math.nan, 1)
    half = float(_stats().t.ppf(0.975, x.size - 1)) * float(x.std(ddof=1)) / math.sqrt(x.size)
    return Interval(mean, mean - half, mean + half, x.size)


LEAST_TRAININGS = 3  # of each of two modes that are compared


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two modes, each by one number for every training.

    Attributes:
        first: name of a mode.
        second: name of another.
        difference: mean of the first less that of the second.
        effect: Hedges' g.
        welch: p-value of Welch's t-test, two-sided.
        permutation: p-value over all ways to deal the numbers out, two-sided.
        holm: `welch` corrected for all pairs that were tested (Holm, 1979).
    """

    first: str
    second: str
    difference: float
    effect: float
    welch: float
    permutation: float
    holm: float


def hedges_g(a: Sequence[float], b: Sequence[float]) -> float:
    """Difference of means over the pooled standard deviation, corrected for small samples (Hedges, 1981)."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    freedom = x.size + y.size - 2
    pooled = math.sqrt(((x.size - 1) * _variance(x) + (y.size - 1) * _variance(y)) / freedom)
    difference = float(x.mean() - y.mean())
    if pooled == 0:
        return 0.0 if _flat(np.concatenate([x, y])) else math.copysign(math.inf, difference)
    return difference / pooled * (1 - 3 / (4 * freedom - 1))


def _flat(x: Array) -> bool:
    """Whether numbers differ by rounding alone: in float32, in which the device measured what they are means of."""
    return bool(np.ptp(x) - rounding(float(np.abs(x).max()), torch.float32) <= 0)


def _variance(x: Array) -> float:
    """Variance of a sample, without bias; exactly 0 where it is rounding."""
    return 0.0 if _flat(x) else float(x.var(ddof=1))


def permutation_test(a: Sequence[float], b: Sequence[float], most: int = 20_000) -> float:
    """Share of permutations whose means differ at least as much; a fixed sample of them where there are too many."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    pooled = np.concatenate([x, y])
    seen = abs(x.mean() - y.mean())
    if math.comb(pooled.size, x.size) <= most:
        chosen = np.array(list(combinations(range(pooled.size), x.size)))
    else:
        rng = np.random.default_rng(0)
        chosen = np.stack([rng.permutation(pooled.size)[: x.size] for _ in range(most)])
    ones = pooled[chosen].sum(1)
    differences = np.abs(ones / x.size - (pooled.sum() - ones) / y.size)
    if _flat(pooled):
        return 1.0
    # Equal differences are equal up to the rounding of sums of all numbers.
    tied = max(seen * 1e-12, rounding(float(np.abs(pooled).max()), torch.float64, 2 * pooled.size))
    return float((differences >= seen - tied).mean())


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number (Holm, 1979), in the given order."""
    order = np.argsort(p_values, kind="stable")
    corrected, most = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        most = max(most, min(1.0, (len(p_values) - place) * p_values[index]))
        corrected[index] = most
    return corrected


def compare(modes: dict[str, Sequence[float]]) -> list[Comparison]:
    """Compare all pairs of modes that have at least three trainings each.

    Args:
        modes: for each mode one number for each training.
    """
    enough = [name for name, values in modes.items() if len(values) >= LEAST_TRAININGS]
    pairs = list(combinations(enough, 2))
    tested = []
    for one, two in pairs:
        a, b = np.asarray(modes[one], dtype=np.float64), np.asarray(modes[two], dtype=np.float64)
        tested.append(_welch(a, b))
    return [
        Comparison(
            one,
            two,
            float(np.mean(modes[one]) - np.mean(modes[two])),
            hedges_g(modes[one], modes[two]),
            p,
            permutation_test(modes[one], modes[two]),
            corrected,
        )
        for (one, two), p, corrected in zip(pairs, tested, holm(tested), strict=True)
    ]


def _welch(a: Array, b: Array) -> float:
    """p-value of Welch's t-test, two-sided; what varies by rounding alone does not vary."""
    variances = _variance(a), _variance(b)
    if not any(variances):
        return 1.0 if _flat(np.concatenate([a, b])) else 0.0
    if all(variances):
        return float(_stats().ttest_ind(a, b, equal_var=False).pvalue)
    one, two = (math.sqrt(variance) for variance in variances)  # of samples of which one is flat scipy warns
    return float(_stats().ttest_ind_from_stats(a.mean(), one, a.size, b.mean(), two, b.size, equal_var=False).pvalue)


def power(effect: float, trainings: int) -> float:
    """Power of a two-sided t-test at 5 % with so many trainings of each of two modes.

    For normal numbers of equal spread, as in Cohen (1988): the noncentral t distribution, here as a mean over the
    quantiles of the spread that is measured, to 1e-5; scipy's own gives NaN for large samples and effects.

    Args:
        effect: difference of the means over the standard deviation between trainings.
        trainings: of each of the two.
    """
    if trainings < 2:
        raise InputError(f"power: trainings={trainings!r}, expected at least 2")
    stats, freedom = _stats(), 2 * trainings - 2
    spread = np.sqrt(stats.chi2.ppf((np.arange(4096) + 0.5) / 4096, freedom) / freedom)
    limit, shift = stats.t.ppf(0.975, freedom) * spread, abs(effect) * math.sqrt(trainings / 2)
    return float((stats.norm.cdf(shift - limit) + stats.norm.cdf(-shift - limit)).mean())


def trainings_for(effect: float, chance: float = 0.8, most: int = 1000) -> int | None:
    """Fewest trainings of each of two modes that find an effect with a given power; None: more than `most`.

    Args:
        effect: as `power` takes it; a measured one is uncertain itself, and so is the answer.
        chance: of finding it.
        most: where to stop.
    """
    if math.isnan(effect):
        return None
    low, high = LEAST_TRAININGS, most
    if power(effect, high) < chance:
        return None
    while low < high:  # power rises with trainings
        middle = (low + high) // 2
        low, high = (low, middle) if power(effect, middle) >= chance else (middle + 1, high)
    return low


def effect_for(trainings: int, chance: float = 0.8) -> float:
    """The smallest effect that so many trainings of each of two modes find with a given power."""
    low, high = 0.0, 100.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle, trainings) >= chance else (middle, high)
    return high


def bootstrap(
    clusters: Sequence[int], of: Callable[[list[NDArray[np.int64]]], Array], *, draws: int = 200, seed: int = 0
) -> tuple[Array, Array]:
    """95 % band of a curve: trainings are drawn with replacement, and worlds within each of them.

    Args:
        clusters: for each training its number of worlds.
        of: the curve for drawn trainings, each given as how often each of its worlds was drawn (0 for all worlds of a
            training that was not drawn).
        draws: repetitions.
        seed: of the draws.

    Returns:
        Lower and upper end.
    """
    rng = np.random.default_rng(seed)
    curves = []
    for _ in range(draws):
        often = [np.zeros(count, dtype=np.int64) for count in clusters]
        for drawn in rng.integers(0, len(clusters), len(clusters)):
            count = clusters[drawn]
            often[drawn] += np.bincount(rng.integers(0, count, count), minlength=count)
        curves.append(of(often))
    low, high = np.percentile(np.stack(curves), [2.5, 97.5], axis=0)
    return low, high


def _stats() -> Any:
    need("scipy", "graphs", "compute intervals and tests over trainings")
    from scipy import stats

    return stats
