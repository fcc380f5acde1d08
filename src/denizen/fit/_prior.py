"""What the priors give, looked at before a posterior is searched: whether curves come near, what tells parameters.

Observed numbers are many and each says little. What is compared is one number for each parameter: its value as a linear
regression on the observed numbers predicts it, the posterior mean to first order (Fearnhead and Prangle 2012).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from denizen.errors import InputError
from denizen.fit._experiment import Experiment
from denizen.fit._method import Solution

ROUNDS = 20  # of drawing until enough places are allowed by the model
FAR = 3.0  # times the loneliest curve's distance to its neighbour: data farther off have no curve near them
LOOKED = 2_000  # curves whose distances to each other are looked at
FOLDS = 5
PENALTIES = np.logspace(-6, 1, 15)  # of the regression, times the largest squared singular value


@dataclasses.dataclass(frozen=True)
class Pilot:
    """Draws of the priors and one curve of each.

    Attributes:
        free: `[num, P]`.
        seen: `[num, D]`, as it is compared.
        allowed: share of the draws that the model allows.
        notes: what should be known, in words.
    """

    free: np.ndarray
    seen: np.ndarray
    allowed: float
    notes: tuple[str, ...]


def pilot(caller: str, experiment: Experiment, num: int, generator: np.random.Generator) -> Pilot:
    """Simulate draws of the priors, in the worlds 0 … num - 1, and see whether the data could be among them.

    Raises:
        InputError: a weight, a flat prior, priors whose draws the model refuses, curves that are all the same, data
            with no curve near them.
    """
    for name, target in experiment.targets.items():
        if target.weight != 1:
            raise InputError(
                f"{caller}: targets[{name!r}] has weight={target.weight:g}, and a posterior weighs by what the model "
                f"gives alone; leave weight out, or widen the noise"
            )
    free, allowed = draws(
        experiment, num, lambda wanted: experiment.parameters.draw(caller, wanted, generator), f"{caller}: priors"
    )
    seen = experiment.compared(free, range(num))
    notes = []
    if allowed < 1:
        notes.append(f"The model refuses {1 - allowed:.0%} of the priors' draws; the posterior is that of the others.")
    notes += _compare(caller, experiment, seen)
    return Pilot(free, seen, allowed, tuple(notes))


def draws(experiment: Experiment, num: int, draw: Callable[[int], np.ndarray], what: str) -> tuple[np.ndarray, float]:
    """Places that the model allows, `[num, P]`, and their share among all that were drawn.

    Args:
        experiment: knows the model.
        num: wanted.
        draw: gives so many places.
        what: is drawn from, for the message.
    """
    found, tried = np.empty((0, len(experiment.parameters.labels))), 0
    for _ in range(ROUNDS):
        places = draw(num)
        fit = np.array([experiment.fits(place) for place in places])
        wanted = num - len(found)
        # Those behind the last one taken were not looked at, as far as the share goes.
        last = np.flatnonzero(fit)[:wanted]
        tried += num if len(last) < wanted else int(last[-1]) + 1
        found = np.concatenate([found, places[last]])
        if len(found) == num:
            return found, num / tried
    raise InputError(
        f"{what}: the model refuses {tried - len(found):,} of {tried:,} draws, expected most to be allowed; choose "
        f"priors within what it can stand"
    )


def _compare(caller: str, experiment: Experiment, seen: np.ndarray) -> list[str]:
    """Notes on observed numbers that no curve has."""
    observed, num = experiment.observed, len(seen)
    sd = seen.std(axis=0)
    moves = sd > 0
    if not moves.any():
        raise InputError(
            f"{caller}: all {num} curves from the priors are the same (targets: {', '.join(experiment.targets)}), "
            f"expected some that depend on {', '.join(experiment.parameters.labels)}; fit another series, or other "
            f"parameters"
        )
    low, high = seen.min(axis=0), seen.max(axis=0)
    beyond = np.maximum(low - observed, observed - high) / np.where(moves, sd, 1)
    worst = int(np.argmax(np.where(moves, beyond, -np.inf)))
    scaled, data = seen[:, moves] / sd[moves], observed[moves] / sd[moves]
    some = scaled[:LOOKED]
    squares = (some**2).sum(1)
    between = squares[:, None] + squares - 2 * some @ some.T
    np.fill_diagonal(between, np.inf)
    lonely = np.sqrt(max(float(between.min(1).max()), 0) / moves.sum())
    near = np.sqrt(float(((scaled - data) ** 2).sum(1).min()) / moves.sum())
    if near > FAR * lonely:
        raise InputError(
            f"{caller}: the nearest of {num} curves from the priors is {near:.1f} of their standard deviations away "
            f"from the targets (root mean square), expected at most some {lonely:.1f}, as curves have a neighbour; "
            f"worst is {experiment.label(worst)}, {beyond[worst]:.1f} beyond all curves; check units, windows and "
            f"report, or widen the priors"
        )
    notes = []
    if beyond[worst] > 1:
        notes.append(
            f"{int((beyond[moves] > 0).sum())} of {len(observed)} observed numbers lie outside what {num} draws of the "
            f"priors give, {experiment.label(worst)} by {beyond[worst]:.1f} of their standard deviations."
        )
    stuck = np.flatnonzero(~moves & (seen[0] != observed))
    if len(stuck):
        notes.append(
            f"{len(stuck)} observed numbers are the same in all {num} curves of the priors, and not as observed, such "
            f"as {experiment.label(int(stuck[0]))}; they are left out."
        )
    return notes


def posterior(
    experiment: Experiment, places: np.ndarray, replicates: int, worlds: int, rest: bool, found: dict[str, Any]
) -> Solution:
    """A solution of draws `[num, P]`; the data are held against the model at their mean, in fresh worlds.

    Args:
        experiment: of the fit.
        places: the draws.
        replicates: fresh worlds.
        worlds: numbers below this one are used up.
        rest: whether the search came to rest.
        found: trace and notes.
    """
    mean, covariance = places.mean(axis=0), np.atleast_2d(np.cov(places.T))
    curves = experiment.observations(mean[None], range(worlds, worlds + replicates))[0]
    scatter = max(float(curves.var(axis=0).mean()), 1e-300)
    return Solution(
        free=mean,
        precision=np.linalg.inv(covariance + 1e-12 * np.eye(len(mean))),
        worlds=worlds + replicates,
        converged=rest,
        away=float(np.sqrt(((experiment.observed - curves.mean(0)) ** 2).mean() / scatter)),
        draws=places,
        **found,
    )


def summarised(
    free: np.ndarray, seen: np.ndarray, observed: np.ndarray, weight: np.ndarray, learn: np.ndarray
) -> np.ndarray:
    """How far each curve is from the data in what tells parameters, `[num, P]`, in deviations of what is not told.

    Each curve is summed up by regressions that did not see it: one that did would know its parameters too well.

    Args:
        free: `[num, P]`.
        seen: `[num, D]`.
        observed: `[D]`.
        weight: `[num]` of the rows in the regression.
        learn: rows that it learns from.
    """
    num, gap, rest = len(free), np.zeros_like(free), np.zeros_like(free)
    # Folds by turns among what is learnt from, so that each has its share.
    turn = np.zeros(num, dtype=int)
    turn[learn] = np.arange(len(learn)) % FOLDS
    others = np.setdiff1d(np.arange(num), learn)
    turn[others] = np.arange(len(others)) % FOLDS
    for fold in range(FOLDS):
        rows, inside = learn[turn[learn] != fold], turn == fold
        centre, slope = regression(seen[rows], free[rows], weight[rows])
        gap[inside] = (seen[inside] - observed) @ slope
        rest[inside] = free[inside] - centre - seen[inside] @ slope
    share = weight[learn] / weight[learn].sum()
    error = rest[learn] - share @ rest[learn]
    return gap / np.sqrt(np.maximum(share @ error**2, 1e-12))


def regression(x: np.ndarray, t: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ridge regression of t `[n, P]` on x `[n, D]`, its penalty by generalised cross-validation (Golub et al. 1979).

    Returns:
        Intercepts `[P]` and slopes `[D, P]`.
    """
    share = weight / weight.sum()
    x_mean, t_mean = share @ x, share @ t
    root = np.sqrt(share * len(x))[:, None]
    sd = np.sqrt(share @ (x - x_mean) ** 2)
    scale = np.where(sd > 1e-12 * (1 + np.abs(x_mean)), sd, np.inf)
    left, values, right = np.linalg.svd(root * (x - x_mean) / scale, full_matrices=False)
    target = root * (t - t_mean)
    along = left.T @ target
    outside = (target**2).sum(0) - (along**2).sum(0)
    size = np.maximum((target**2).sum(0), 1e-300)
    best, slope = np.inf, np.zeros((x.shape[1], t.shape[1]))
    for penalty in PENALTIES * max(float(values[0]) ** 2, 1e-300):
        kept = values**2 / (values**2 + penalty)
        error = outside + (((1 - kept)[:, None] * along) ** 2).sum(0)
        freedom = max(1 - (kept.sum() + 1) / len(x), 1e-3)
        criterion = float((error / size).sum() / freedom**2)
        if criterion < best:
            best = criterion
            shrunk = values / (values**2 + penalty)
            slope = (right.T @ (shrunk[:, None] * along)) / scale[:, None]
    return t_mean - x_mean @ slope, slope
