"""Many fits at once: profiles, and the bootstrap.

Beside an estimate the mean of a model is nearly linear, so the slopes and weights there serve for all of them: each
round simulates every place in fresh worlds, in one launch, and moves it by what the slopes say (chord steps).
"""

import dataclasses
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from denizen._arguments import number, whole
from denizen.errors import InputError, nearest
from denizen.fit._gauss_newton import NARROWEST, WIDEST, inverse_covariance, measure

if TYPE_CHECKING:
    from denizen.fit._experiment import Experiment
    from denizen.fit._fit import Fit

ROUNDS = 2
LONGEST = 1.0  # of a step of one number, in free numbers


@dataclasses.dataclass(frozen=True)
class Profile:
    """How much worse a fit becomes where one number is held and the others are fitted again.

    Attributes:
        name: of the number.
        values: where it was held, ascending.
        deviance: twice the loss of log-likelihood (of a normal distribution of what is compared) and log prior, from
            the least.
        free: all free numbers there, `[points, P]`.
    """

    name: str
    values: np.ndarray
    deviance: np.ndarray
    free: np.ndarray

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Values whose deviance is below the quantile of a chi-squared; infinite where the profile does not reach it.

        Args:
            level: above 0, below 1.
        """
        number("Profile.interval", "level", level, above=0, high=1 - 1e-9)
        most = NormalDist().inv_cdf(0.5 + level / 2) ** 2
        least = int(self.deviance.argmin())
        low = _crossing(self.values[: least + 1][::-1], self.deviance[: least + 1][::-1], most, -np.inf)
        return low, _crossing(self.values[least:], self.deviance[least:], most, np.inf)


def _crossing(values: np.ndarray, deviance: np.ndarray, most: float, beyond: float) -> float:
    over = np.flatnonzero(deviance > most)
    if not len(over):
        return beyond
    k = int(over[0])
    return float(np.interp(most, deviance[k - 1 : k + 1], values[k - 1 : k + 1]))


@dataclasses.dataclass(frozen=True)
class _Beside:
    """What is known beside an estimate: mean `[D]`, slopes `[D, P]`, weights `[D, D]`, and the next unused world."""

    mean: np.ndarray
    slope: np.ndarray
    weights: np.ndarray
    world: int


def _beside(fit: "Fit", worlds: int, first: int) -> _Beside:
    experiment, free = fit._experiment, fit._solution.free
    units = experiment.parameters.units
    width = np.clip(fit._sd(), NARROWEST * units, WIDEST * units)
    stencil = measure(experiment, free, width, range(first, first + worlds))
    root = np.sqrt(experiment.weights)
    weights = inverse_covariance(stencil.rest, worlds, experiment.sizes) * np.outer(root, root)
    return _Beside(stencil.mean, stencil.slope, weights, first + worlds)


def _moved(
    experiment: "Experiment",
    known: _Beside,
    places: np.ndarray,
    gap: np.ndarray,
    moves: np.ndarray,
) -> np.ndarray:
    """Places `[K, P]` after a step towards data that lie `gap` `[K, D]` away, of the numbers in `moves` alone."""
    z, units = known.weights @ known.slope, experiment.parameters.units
    found = places.copy()
    for k, place in enumerate(places):
        slope, curve = experiment.parameters.prior(place)
        total = (z.T @ known.slope + curve)[np.ix_(moves, moves)]
        push = (z.T @ gap[k] + slope)[moves]
        step = np.linalg.solve(total + 1e-9 * np.diag(np.maximum(np.diag(total), 1e-9)), push)
        found[k, moves] += step * min(1.0, LONGEST / max(float(np.abs(step / units[moves]).max(initial=0)), 1e-300))
    return np.stack([one if experiment.fits(one) else old for one, old in zip(found, places, strict=True)])


def bootstrap(fit: "Fit", num: int, worlds: int) -> np.ndarray:
    """See `Fit.bootstrap`; free numbers `[num, P]`."""
    whole("Fit.bootstrap", "num", num, 10)
    whole("Fit.bootstrap", "worlds", worlds, 2)
    experiment, first = fit._experiment, fit._solution.worlds
    observed = experiment.compared(np.repeat(fit._solution.free[None], num, axis=0), range(first, first + num))
    known = _beside(fit, max(worlds, 2 * len(fit._solution.free) + 4), first + num)
    moves = np.arange(len(fit._solution.free))
    start = np.repeat(fit._solution.free[None], num, axis=0)
    places, said, world = _moved(experiment, known, start, observed - known.mean, moves), [], known.world
    for _ in range(ROUNDS):
        # Worlds of its own for each data set: what they leave unknown must not move all of them together.
        rows = np.repeat(places, worlds, axis=0)
        seen = experiment.compared(rows, range(world, world + len(rows))).reshape(num, worlds, -1).mean(1)
        world += len(rows)
        said.append(_moved(experiment, known, places, observed - seen, moves))
        places = said[-1]
    return np.mean(said, axis=0)


def profile(fit: "Fit", name: str, points: int, width: float, worlds: int) -> Profile:
    """See `Fit.profile`."""
    whole("Fit.profile", "points", points, 3)
    whole("Fit.profile", "worlds", worlds, 2)
    number("Fit.profile", "width", width, above=0)
    experiment, free = fit._experiment, fit._solution.free
    labels = experiment.parameters.labels
    if name not in labels:
        raise InputError(f"Fit.profile: name={name!r}; {nearest(name, labels)}")
    held, covariance = labels.index(name), fit._solution.covariance()
    known = _beside(fit, max(worlds, 2 * len(free) + 4), fit._solution.worlds)
    # Where the others would be if all were normal.
    steps = np.linspace(-width, width, points) * np.sqrt(covariance[held, held])
    places = free + steps[:, None] * covariance[held] / covariance[held, held]
    places = places[[experiment.fits(one) for one in places]]
    if len(places) < 3:
        raise InputError(f"Fit.profile: width={width}, and the model takes less than three of the places; take less")
    moves, world = np.flatnonzero(np.arange(len(free)) != held), known.world
    for _ in range(ROUNDS if len(moves) else 0):
        seen = experiment.observations(places, range(world, world + worlds)).mean(1)
        world += worlds
        places = _moved(experiment, known, places, experiment.observed - seen, moves)
    gap = experiment.observed - experiment.observations(places, range(world, world + worlds)).mean(1)
    deviance = np.einsum("kd,de,ke->k", gap, known.weights, gap) / (1 + 1 / worlds)
    deviance -= 2 * experiment.parameters.log_prior(places)
    return Profile(name, _natural(experiment, places, held), deviance - deviance.min(), places)


def _natural(experiment: "Experiment", places: np.ndarray, held: int) -> np.ndarray:
    """A number in the units of its parameter."""
    at = 0
    for part in experiment.parameters.parts:
        if at <= held < at + part.size:
            values: Any = part.values(places[:, at : at + part.size]).reshape(len(places), -1)
            return values[:, part.places[held - at]]
        at += part.size
    raise AssertionError
