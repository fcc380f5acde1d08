"""Iterated filtering: the likeliest parameters by a swarm whose perturbations die away (Ionides et al. 2015).

Each particle has numbers of its own, which are perturbed at every observation and drawn anew with the states, so that a
pass over the data leaves those that the data favour. Where the swarm has come to rest, filters at places about it give
the log-likelihood, with noise; a quadratic through them gives the estimate and its information (Ionides et al. 2017).
"""

import dataclasses
from collections.abc import Mapping
from functools import partial

import numpy as np
from torch import Tensor

from denizen._arguments import number, whole
from denizen.errors import InputError
from denizen.fit._budget import Budget, check_budget
from denizen.fit._experiment import METHOD, Experiment
from denizen.fit._method import Iteration, Solution, Tell
from denizen.fit._parameters import as_tensor
from denizen.fit._particle_filter import STICKY, Likelihood
from denizen.fit._particles import Filters, Particles, drawn
from denizen.fit._trials import ranges
from denizen.fit._weigher import Weigher
from denizen.rng import MAX_SEED
from denizen.run._sieve import revalue

PLACES = 12  # filters for each number of the quadratic
ROUNDS = 4  # of such filters, at most
SETS = 8  # of them at once
FAR = 6.0  # below the best, from where places count less
AROUND = 1.5  # standard deviations of the estimate at which they lie
WIDER = 3.0  # factor by which the second surface may be wider or narrower than the first


@dataclasses.dataclass(frozen=True)
class IteratedFilter:
    """The likeliest parameters, priors included, by particle filters; for more numbers than chains can walk.

    Each iteration is one launch of `particles` worlds. The last launches, a filter at each of several places about the
    end, give the interval: a normal distribution of the free numbers. Every target needs a noise. Forecasts of the fit
    begin from filtered states.

    Attributes:
        particles: of the swarm, and of each filter at its end.
        iterations: passes over the data.
        scatter: of the swarm at first, in standard deviations of the priors; a flat parameter counts as one with a
            standard deviation of a half in free numbers. Half of that is the perturbation of the first pass.
        cooling: share of the first perturbations that is left in the last pass.
        runs: most worlds of the passes and of the filters at the end together. Where they allow for these, the passes
            leave enough for one look at them; else there is no interval.
        seconds: most seconds, after which only that look is taken; None: any. A fit that this ends differs from one
            machine to the other.
    """

    particles: int = 512
    iterations: int = 30
    scatter: float = 0.5
    cooling: float = 0.05
    runs: int = 10_000_000
    seconds: float | None = None

    def __post_init__(self) -> None:
        whole("IteratedFilter", "particles", self.particles, 20)
        whole("IteratedFilter", "iterations", self.iterations, 2)
        number("IteratedFilter", "scatter", self.scatter, above=0)
        number("IteratedFilter", "cooling", self.cooling, above=0, high=1)
        check_budget("IteratedFilter", self.runs, self.seconds)

    def solve(self, experiment: Experiment, replicates: int, tell: Tell) -> Solution:
        """See `Method`; `replicates` plays no part."""
        parameters, generator = experiment.parameters, experiment.generator()
        if parameters.of_targets(parameters.start[None]):
            name = parameters.of_targets(parameters.start[None])[0][0].name
            raise InputError(
                f"calibrate: priors has {name!r}, a number of a target, and IteratedFilter moves those of the model "
                f"alone; give it a value, or take dz.fit.ParticleFilter()"
            )
        budget, trace = Budget(experiment, self.runs, self.seconds), []
        look = _places(len(parameters.start)) * self.particles
        kept = look if self.runs >= look + 2 * self.particles else 0
        scale = self.scatter * ranges(parameters, generator)[2]
        filters = Filters("calibrate", experiment, self.particles, 1, self.iterations, threshold=1.0)
        swarm = _taken(experiment, np.repeat(parameters.start[None], self.particles, axis=0), scale, generator)
        worlds = 0
        for k in range(self.iterations):
            if not budget.room(self.particles + kept):
                break
            width = 0.5 * scale * self.cooling ** (k / (self.iterations - 1))
            experiment.runs += self.particles
            launch = partial(_pass, experiment, filters, swarm, width, worlds)
            found = experiment.recorded("wander", [swarm, width, worlds], launch)
            swarm, worlds = found["swarm"], worlds + self.particles
            shown = f"log-likelihood {float(found['log_likelihood']):.1f} with perturbed numbers"
            trace.append(Iteration(k, swarm.mean(0), np.nan, np.nan, experiment.runs, shown))
            tell(trace[-1])
        middles = np.stack([one.free for one in trace[-3:]] or [parameters.start])
        return _surface(experiment, middles.mean(0), 0.5 * scale, self.particles, worlds, trace, budget)


def _pass(
    experiment: Experiment, filters: Filters, swarm: np.ndarray, width: np.ndarray, worlds: int
) -> dict[str, np.ndarray]:
    generator = np.random.default_rng([experiment._seed, METHOD, worlds])
    moved: list[_Swarm] = []

    def around(particles: Particles, weigher: Weigher) -> _Swarm:
        moved.append(_Swarm(experiment, particles, weigher, swarm, width, generator))
        return moved[0]

    weigher = filters.wander(swarm, worlds % (MAX_SEED - len(swarm)), around)
    return {"swarm": moved[0].free, "log_likelihood": weigher.log_likelihood[0].cpu().numpy()}


class _Swarm:
    """Perturbs the numbers of the particles at each observation; a `Sieve` around a `Weigher`.

    The prior counts once, at the last observation.
    """

    def __init__(
        self,
        experiment: Experiment,
        particles: Particles,
        weigher: Weigher,
        free: np.ndarray,
        width: np.ndarray,
        generator: np.random.Generator,
    ) -> None:
        self._experiment, self._run, self._weigher, self.free = experiment, particles.run, weigher, free
        self._observed = set(particles.observed_steps)
        self._width, self._generator = width / np.sqrt(len(self._observed)), generator

    def due(self, step: int) -> bool:
        """See `Sieve`."""
        return self._weigher.due(step)

    def see(self, step: int, records: Mapping[str, Tensor]) -> Tensor | None:
        """See `Sieve`."""
        rows = self._weigher.see(step, records)
        if step not in self._observed:
            return rows
        if rows is not None:
            self.free = self.free[rows.cpu().numpy()]
        if step == max(self._observed):
            log_prior = self._experiment.parameters.log_prior(self.free)
            weights = np.exp(log_prior - log_prior.max())
            self.free = self.free[drawn(weights / weights.sum(), len(weights), self._generator)]
        self.free = _taken(self._experiment, self.free, self._width, self._generator)
        parts = self._experiment.parameters.of_model(self.free)
        revalue(self._run, {part.name: as_tensor(part.values(here)) for part, here in parts})
        return rows


def _taken(experiment: Experiment, free: np.ndarray, width: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Perturbed numbers `[R, P]`; those that the model refuses stay as they were."""
    moved = free + width * generator.normal(size=free.shape)
    middle, eye = np.median(moved, axis=0), np.eye(moved.shape[1], dtype=bool)
    ends = [np.where(one, end, middle) for end in (moved.min(0), moved.max(0)) for one in eye]
    if all(experiment.fits(end) for end in ends):  # what a model refuses lies beyond a value of one number
        return moved
    return np.stack([new if experiment.fits(new) else old for new, old in zip(moved, free, strict=True)])


def _surface(
    experiment: Experiment,
    middle: np.ndarray,
    spread: np.ndarray,
    particles: int,
    worlds: int,
    trace: list[Iteration],
    budget: Budget,
) -> Solution:
    """Estimate and information from filters about where the swarm has come to rest.

    Args:
        experiment: of the fit.
        middle: where, `[P]`.
        spread: a first guess of the estimate's standard deviation, `[P]`; later rounds go by what the one before found.
        particles: of each filter.
        worlds: numbers below this one are used up.
        trace: of the passes.
        budget: what the passes have left of it.
    """
    num = len(middle)
    places = _places(num)
    likelihood = Likelihood(experiment, particles, SETS, ROUNDS * -(-places // SETS))
    likelihood.worlds = worlds
    generator = np.random.default_rng([experiment._seed, METHOD, 1])

    def looked(middle: np.ndarray, root: np.ndarray) -> Hill:
        apart = AROUND * generator.normal(size=(places, num))
        free = middle + apart @ root.T
        return hill(middle, root, quadratic(apart, likelihood(free) + experiment.parameters.log_prior(free)))

    if budget.left < places * particles:
        budget.room(places * particles)
        none = (f"There was no room for the {places * particles:,} runs that give an interval; raise runs.",)
        notes = (*budget.notes(), *none)
        return Solution(middle, None, tuple(trace), worlds, False, np.nan, notes=notes, particles=particles)
    found = looked(middle, np.diag(spread))
    for _ in range(ROUNDS - 1):
        if (found.known and found.near) or not budget.room(places * particles):
            break
        found = looked(found.middle, found.root)
    return Solution(
        free=found.middle,
        precision=np.linalg.pinv(found.covariance),
        trace=tuple(trace),
        worlds=likelihood.worlds,
        converged=found.known and found.near and not budget.over,
        away=np.nan,
        notes=(*budget.notes(), *_told(found)),
        particles=particles,
    )


def _places(num: int) -> int:
    """How many filters a quadratic in so many numbers is taken from."""
    return PLACES * (num + 1) * (num + 2) // 2


def _told(found: "Hill") -> list[str]:
    notes = []
    if not (found.known and found.near):
        notes.append(
            "The log-likelihood about the estimate is no hill of a width that filters could find; the interval is "
            "rough. More particles help, or more iterations."
        )
    if found.noise > STICKY:
        notes.append(
            f"At one place the log-likelihood scatters with variance {found.noise:.1f} from worlds alone; more "
            f"particles make the estimate sharper."
        )
    return notes


@dataclasses.dataclass(frozen=True)
class Hill:
    """What a quadratic says of the place where it was looked for.

    Attributes:
        middle: estimate, `[P]`.
        root: of the covariance that the curvature gives, `[P, P]`.
        covariance: of the estimate, with what its place is not known for noise.
        known: whether the curvature is within `WIDER` of what it was taken for.
        near: whether the estimate lies among the places that were looked at.
        noise: variance of a log-likelihood.
    """

    middle: np.ndarray
    root: np.ndarray
    covariance: np.ndarray
    known: bool
    near: bool
    noise: float


def hill(middle: np.ndarray, root: np.ndarray, found: "Quadratic") -> Hill:
    """Of a quadratic in z, where the free numbers are middle + root z."""
    sizes, turned = np.linalg.eigh(found.information)
    variance = np.clip(1 / np.maximum(sizes, 1e-9), WIDER**-2, WIDER**2)  # along the hill's own axes
    step = variance * (turned.T @ found.slope)
    axes = root @ turned
    inverse = axes * variance @ turned.T
    return Hill(
        middle=middle + axes @ np.clip(step, -AROUND * WIDER, AROUND * WIDER),
        root=axes * np.sqrt(variance),
        covariance=axes * variance @ axes.T + inverse @ found.error @ inverse.T,
        known=bool(((sizes > WIDER**-2) & (sizes < WIDER**2)).all()),
        near=bool(np.abs(step).max() < AROUND * WIDER),
        noise=found.noise,
    )


@dataclasses.dataclass(frozen=True)
class Quadratic:
    """value = constant + slope z - z' information z / 2 + noise.

    Attributes:
        slope: `[P]`.
        information: `[P, P]`.
        error: covariance of the slope, `[P, P]`.
        noise: variance.
    """

    slope: np.ndarray
    information: np.ndarray
    error: np.ndarray
    noise: float


def quadratic(z: np.ndarray, value: np.ndarray) -> Quadratic:
    """By least squares; places far below the best, where a hill is no quadratic, count less.

    Args:
        z: places `[N, P]`.
        value: `[N]`; what is not finite is left out.
    """
    num = z.shape[1]
    high, low = np.tril_indices(num)
    terms = z[:, high] * z[:, low] * np.where(high == low, -0.5, -1.0)
    columns = np.concatenate([np.ones((len(z), 1)), z, terms], axis=1)
    seen = np.isfinite(value)
    if seen.sum() <= columns.shape[1]:
        flat = np.zeros((num, num))
        return Quadratic(np.zeros(num), flat, flat, np.inf)
    columns, value = columns[seen], value[seen]
    weight = 1 / (1 + ((np.quantile(value, 0.9) - value).clip(0) / (FAR + num)) ** 2)
    root = np.sqrt(weight)[:, None]
    inverse = np.linalg.pinv((columns * root).T @ (columns * root))
    found = inverse @ (columns.T @ (weight * value))
    rest = value - columns @ found
    noise = float((weight * rest**2).sum() / max(weight.sum() - columns.shape[1], 1))
    information = np.zeros((num, num))
    information[high, low] = found[1 + num :]
    information[low, high] = found[1 + num :]
    spread = inverse @ ((columns * (weight**2)[:, None]).T @ columns) @ inverse * noise
    return Quadratic(found[1 : 1 + num], information, spread[1 : 1 + num, 1 : 1 + num], noise)
