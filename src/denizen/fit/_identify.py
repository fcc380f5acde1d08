"""What data say nothing about, of the information that an estimate has."""

from collections.abc import Iterator
from statistics import NormalDist

import numpy as np

from denizen.fit._parameters import Parameters

UNKNOWN = 1.5  # standard deviation in free numbers: a factor of more than four either way
ALIKE = 0.95  # correlation of two estimates
BELIEVED = 0.6  # of the width of the prior's interval: of a parameter whose own is wider the data say little
LEVEL, DRAWS = 0.9, 4_000


def not_identified(parameters: Parameters, free: np.ndarray, precision: np.ndarray) -> Iterator[str]:
    """Directions that stay unknown, parameters that little more is known of than before, and pairs that go together.

    Args:
        parameters: of the fit.
        free: the estimate `[P]`.
        precision: its inverse covariance `[P, P]`, with what the priors say.
    """
    labels = parameters.labels
    values, vectors = np.linalg.eigh(precision)
    open_ = values < 1 / UNKNOWN**2
    for vector in vectors.T[open_]:
        parts = [f"{share:+.2f} {label}" for share, label in zip(vector, labels, strict=True) if abs(share) > 0.2]
        yield f"Not identified: {' '.join(parts)} (in transformed units); these data say little about it."
    if open_.any():
        return  # all else follows from these directions
    covariance = np.linalg.inv(precision)
    sd = np.sqrt(np.diag(covariance))
    for label, width in zip(labels, _widths(parameters, free, sd), strict=True):
        if width > BELIEVED:
            yield (
                f"These data say little of {label}: its {LEVEL:.0%} interval is {min(width, 1):.0%} as wide as that of "
                f"its prior."
            )
    together = covariance / np.outer(sd, sd)
    for i, j in zip(*np.nonzero(np.triu(np.abs(together) > ALIKE, 1)), strict=True):
        yield (
            f"{labels[i]} and {labels[j]} are hardly told apart: their estimates are correlated by "
            f"{together[i, j]:+.2f}; only a combination of them is known well."
        )


def _widths(parameters: Parameters, free: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Width of each interval over that of its prior, in the parameter's own units; 0 where it is flat."""
    found, at, reach = [], 0, NormalDist().inv_cdf(0.5 + LEVEL / 2)
    for part in parameters.parts:
        here, around = free[at : at + part.size], reach * sd[at : at + part.size]
        at += part.size
        if part.flat():
            found.append(np.zeros(part.size))
            continue
        drawn = Parameters([part]).draw("calibrate", DRAWS, np.random.default_rng(0))
        low, high = np.quantile(drawn, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], axis=0)
        found.append(part.width(here - around, here + around) / part.width(low, high))
    return np.concatenate(found)
