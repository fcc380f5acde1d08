"""Scores of forecasts: ensembles against what came."""

import dataclasses

import numpy as np

ALPHAS = (0.02, 0.05, *np.arange(0.1, 0.95, 0.1))  # what central intervals leave out


@dataclasses.dataclass(frozen=True)
class Scores:
    """How good an ensemble was, over all values; smaller is better but for the coverages.

    Attributes:
        crps: continuous ranked probability score, in the units of the values (fair form for few members).
        wis: weighted interval score of the median and the central intervals of 10 to 90, 95 and 98 %, as forecast hubs
            take it (Bracher et al. 2021).
        deviation: normalized deviation: sum of absolute errors of the median over the sum of the values.
        coverage_50: share of values within the middle half of the ensemble.
        coverage_90: share within its middle nine tenths.
        persistence_crps: of the last value before, kept; its CRPS is its absolute error.
        persistence_deviation: its normalized deviation.
    """

    crps: float
    wis: float
    deviation: float
    coverage_50: float
    coverage_90: float
    persistence_crps: float
    persistence_deviation: float


def scores(ensemble: np.ndarray, values: np.ndarray, last: np.ndarray) -> Scores:
    """Scores over all values that were observed.

    Args:
        ensemble: `[members, values, …]`, at least two members.
        values: `[values, …]`, NaN for gaps.
        last: the value before that was observed, of one value's shape.
    """
    seen = ~np.isnan(values)
    kept = np.broadcast_to(last, values.shape)
    error = np.abs(np.median(ensemble, axis=0) - values)
    inside = [
        (np.quantile(ensemble, 0.5 - width / 2, axis=0) <= values)
        & (values <= np.quantile(ensemble, 0.5 + width / 2, axis=0))
        for width in (0.5, 0.9)
    ]
    size = max(np.abs(values[seen]).sum(), 1e-300)
    away = np.abs(kept - values)[seen]
    return Scores(
        float(crps(ensemble, values)[seen].mean()),
        float(wis(ensemble, values)[seen].mean()),
        float(error[seen].sum() / size),
        float(inside[0][seen].mean()),
        float(inside[1][seen].mean()),
        float(away.mean()),
        float(away.sum() / size),
    )


def last_seen(values: np.ndarray) -> np.ndarray:
    """The last value of `[values, …]` that was observed, of each group; NaN where none was."""
    places = np.where(np.isnan(values), 0, np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1)))
    return np.take_along_axis(values, places.max(axis=0, keepdims=True), axis=0)[0]


def wis(ensemble: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(|median - y| / 2 + sum of alpha / 2 times the interval score) / (intervals + 1 / 2), of each value.

    Args:
        ensemble: `[members, values, …]`.
        values: `[values, …]`.
    """
    total = np.abs(np.median(ensemble, axis=0) - values) / 2
    for alpha in ALPHAS:
        low, high = np.quantile(ensemble, [alpha / 2, 1 - alpha / 2], axis=0)
        outside = np.maximum(low - values, 0) + np.maximum(values - high, 0)
        total = total + alpha / 2 * (high - low) + outside
    return total / (len(ALPHAS) + 0.5)


def crps(ensemble: np.ndarray, values: np.ndarray) -> np.ndarray:
    """mean|x_i - y| - sum|x_i - x_j| / (2 m (m - 1)), the fair form (Ferro 2014), of each value.

    Args:
        ensemble: `[members, values, …]`.
        values: `[values, …]`.
    """
    members = len(ensemble)
    ordered = np.sort(ensemble, axis=0)
    # Sum over pairs of sorted members by their ranks.
    ranks = (2 * np.arange(members) - members + 1).reshape(-1, *[1] * values.ndim)
    spread = (ranks * ordered).sum(0) / max(members * (members - 1), 1)
    return np.abs(ensemble - values).mean(0) - spread
