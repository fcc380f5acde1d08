"""Draws from a posterior whose density costs little, as a network's: from the priors to it by degrees.

Draws of the priors are weighed by a small power of the likelihood, drawn anew and moved at random; then by a greater
one, up to the whole (Del Moral, Doucet and Jasra 2006). So several modes each have their share, which chains that begin
somewhere would miss. Each loop has an end.
"""

from collections.abc import Callable

import numpy as np

from denizen.fit._chains import Steps, gain

PARTICLES = 2_000  # at least
EFFECTIVE = 0.5  # share of the particles that the next power leaves effective
DEGREES, MOVES, LAST = 100, 20, 100  # powers, and moves under one of them and under the last, at most
NEAR, APART = 0.5, 0.1  # correlation with where moves began that is small enough, and at the end
HALVINGS = 40  # when a power is looked for
NOWHERE = -1e30  # logarithm of a likelihood that is none, so that differences are numbers

LogDensity = Callable[[np.ndarray], np.ndarray]


def tempered(
    free: np.ndarray, log_prior: LogDensity, log_likelihood: LogDensity, generator: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Move draws of the priors to the posterior.

    Args:
        free: draws of the priors, `[num, P]`.
        log_prior: `[num]` at such places.
        log_likelihood: the same, a constant left out.
        generator: of the moves.

    Returns:
        Draws of the posterior `[num, P]`, and the largest correlation over the numbers between where the last moves
        began and ended: near 0 where they have forgotten it.
    """

    def likelihood(places: np.ndarray) -> np.ndarray:
        found = log_likelihood(places)
        return np.where(np.isfinite(found), found, NOWHERE)

    at, power, tied = free, 0.0, 1.0
    height, prior = likelihood(at), log_prior(at)
    for degree in range(DEGREES):
        before, power = power, 1.0 if degree == DEGREES - 1 else _next(height, power)
        weight = np.exp((power - before) * (height - height.max()))
        chosen = _resampled(weight / weight.sum(), generator)
        at, height, prior = at[chosen], height[chosen], prior[chosen]
        steps, begin = Steps(_covariance(at), generator), at
        most, enough = (LAST, APART) if power == 1 else (MOVES, NEAR)
        for _ in range(most):
            proposed = steps.proposed(at)
            new, its_prior = likelihood(proposed), log_prior(proposed)
            better = gain(power * new + its_prior, power * height + prior)
            taken = np.log(generator.random(len(at))) < better
            at = np.where(taken[:, None], proposed, at)
            height, prior = np.where(taken, new, height), np.where(taken, its_prior, prior)
            steps.learn(at, float(taken.mean()))
            if (tied := _tied(begin, at)) < enough:
                break
        if power == 1:
            break
    return at, tied


def _next(height: np.ndarray, power: float) -> float:
    """The largest power up to 1 that leaves enough particles effective."""
    low, high = power, 1.0
    if _effective(height, 1 - power) >= EFFECTIVE:
        return 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _effective(height, middle - power) >= EFFECTIVE else (low, middle)
    return high


def _effective(height: np.ndarray, more: float) -> float:
    weight = np.exp(more * (height - height.max()))
    return float(weight.sum() ** 2 / (weight**2).sum() / len(weight))


def _resampled(share: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    at = (np.arange(len(share)) + generator.random()) / len(share)
    return np.minimum(np.searchsorted(np.cumsum(share), at), len(share) - 1)


def _covariance(at: np.ndarray) -> np.ndarray:
    found = np.atleast_2d(np.cov(at.T))
    return found + np.diag(1e-9 * np.diag(found) + 1e-12)


def _tied(begin: np.ndarray, at: np.ndarray) -> float:
    one, other = begin - begin.mean(0), at - at.mean(0)
    size = np.sqrt((one**2).sum(0) * (other**2).sum(0))
    return float(((one * other).sum(0) / np.maximum(size, 1e-300)).max())
