"""Approximate Bayesian computation: the posterior from the simulated curves that come nearest to the data."""

import dataclasses

import numpy as np

from denizen._arguments import whole
from denizen.errors import InputError
from denizen.fit._budget import Budget, check_budget
from denizen.fit._experiment import Experiment
from denizen.fit._method import Iteration, Solution, Tell
from denizen.fit._prior import draws, pilot, posterior, summarised

AT_REST = 2  # generations in a row whose posterior is that of the one before
SHIFT, STRETCH = 0.1, 0.1  # deviations that the mean, and share that the deviations, then move at most
DRAWS = 2_000  # of the posterior that is handed over
LEAST = 3  # curves of a launch: fewer are not worth it


@dataclasses.dataclass(frozen=True)
class ABCSMC:
    """Draws from the posterior without a likelihood, by nearness of simulated curves (Beaumont et al. 2009).

    Curves are compared by one number for each parameter, its prediction by a regression on all observed numbers, learnt
    anew near the data in each generation. Places are drawn from the priors, then about those whose curves are nearest.
    A generation is one launch, one world for each place. All curves so far stay in play, weighed by prior over the
    mixture of all that places were drawn from (Cornuet et al. 2012), so no generation waits until enough are near. A
    local regression takes away what is left of the distance (Beaumont et al. 2002).

    The search ends when two generations have left the posterior as it was, or with the budget; what it had is then
    kept, and the fit says so. `replicates` are worlds in which the result is compared with the data.

    Attributes:
        runs: most worlds of the search; the looks at its end come on top.
        seconds: most seconds, looked at before each launch; None: any. A fit that this ends differs from one machine to
            the other.
        particles: places in a generation.
        keep: nearest curves that make the posterior.
    """

    runs: int = 4_000
    seconds: float | None = None
    particles: int = 500
    keep: int = 250

    def __post_init__(self) -> None:
        check_budget("ABCSMC", self.runs, self.seconds)
        whole("ABCSMC", "particles", self.particles, 20)
        whole("ABCSMC", "keep", self.keep, 10)
        if self.keep > self.particles:
            raise InputError(f"ABCSMC: keep={self.keep}, expected at most particles={self.particles}")
        if self.runs < self.particles:
            raise InputError(
                f"ABCSMC: runs={self.runs}, expected at least particles={self.particles}, those of one generation"
            )

    def solve(self, experiment: Experiment, replicates: int, tell: Tell) -> Solution:
        """See `Method`."""
        budget, generator = Budget(experiment, self.runs, self.seconds), experiment.generator()
        if self.keep < 5 * len(experiment.parameters.labels):
            raise InputError(
                f"ABCSMC: keep={self.keep} for {len(experiment.parameters.labels)} numbers to fit, expected at least "
                f"five times as many"
            )
        first = pilot("ABCSMC", experiment, self.particles, generator)
        cloud = _Cloud(experiment, first.free, first.seen, first.allowed)
        near = cloud.nearest(self.keep)
        trace, rest = [_line(0, near, experiment, tell)], 0
        while rest < AT_REST:
            num = budget.room(self.particles, LEAST)
            if not num:
                break
            kernel = _Kernel(near.free, near.weight)
            places, allowed = draws(experiment, num, lambda n: kernel.draw(n, generator), "ABCSMC: search")  # noqa: B023
            cloud.add(places, kernel, allowed)
            before, near = near, cloud.nearest(self.keep)
            rest = rest + 1 if near.alike(before) else 0
            trace.append(_line(len(trace), near, experiment, tell))
        notes = (
            *first.notes,
            *budget.notes(),
            f"Posterior of {near.effective:.0f} effective curves of {len(cloud.free):,}, within {near.width:.2g} "
            f"posterior deviations of the data.",
        )
        found = {"trace": tuple(trace), "notes": notes}
        return posterior(experiment, near.draws(generator), replicates, len(cloud.free), rest >= AT_REST, found)


class _Kernel:
    """Normal distributions about weighed places, as wide as the places scatter."""

    def __init__(self, free: np.ndarray, weight: np.ndarray) -> None:
        self._share = weight / weight.sum()
        rest = free - self._share @ free
        covariance = (self._share[:, None] * rest).T @ rest
        self._factor = np.linalg.cholesky(covariance + 1e-9 * np.eye(free.shape[1]))
        self._free = free

    def draw(self, num: int, generator: np.random.Generator) -> np.ndarray:
        chosen = generator.choice(len(self._free), num, p=self._share)
        return self._free[chosen] + generator.normal(size=(num, self._free.shape[1])) @ self._factor.T

    def log_density(self, free: np.ndarray) -> np.ndarray:
        inverse = np.linalg.inv(self._factor)
        a, b = free @ inverse.T, self._free @ inverse.T
        apart = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
        constant = -0.5 * free.shape[1] * np.log(2 * np.pi) - np.log(np.diag(self._factor)).sum()
        terms = np.log(np.maximum(self._share, 1e-300)) - 0.5 * apart
        top = terms.max(axis=1)
        return constant + top + np.log(np.exp(terms - top[:, None]).sum(axis=1))


class _Cloud:
    """All places so far, their curves, and how likely each was to be drawn."""

    def __init__(self, experiment: Experiment, free: np.ndarray, seen: np.ndarray, allowed: float) -> None:
        self._experiment, self.free, self._seen = experiment, free, seen
        self._drawn: list[tuple[int, _Kernel | None, float]] = [(len(free), None, allowed)]
        self._distance: np.ndarray | None = None

    def add(self, places: np.ndarray, kernel: _Kernel, allowed: float) -> None:
        worlds = range(len(self.free), len(self.free) + len(places))
        self._seen = np.concatenate([self._seen, self._experiment.compared(places, worlds)])
        self.free = np.concatenate([self.free, places])
        self._drawn.append((len(places), kernel, allowed))

    def nearest(self, keep: int) -> "Near":
        weight = self._weight()
        order = np.arange(len(self.free)) if self._distance is None else self._ordered(self._distance)
        learn = order[: max(keep, 2 * self._seen.shape[1], len(self.free) // 2)]
        gap = summarised(self.free, self._seen, self._experiment.observed, weight, learn)
        self._distance = np.sqrt((gap**2).sum(1))
        kept = self._ordered(self._distance)[:keep]
        return Near(self.free[kept], gap[kept], weight[kept])

    def _ordered(self, distance: np.ndarray) -> np.ndarray:
        # Of those added since the last look the distance is not known: they come first.
        known = np.concatenate([distance, np.full(len(self.free) - len(distance), -1.0)])
        return np.argsort(known, kind="stable")

    def _weight(self) -> np.ndarray:
        """Prior over the mixture of all that places were drawn from, at most all over those from the prior."""
        prior, ratio = self._experiment.parameters.log_prior(self.free), np.zeros(len(self.free))
        # Where the prior has no density the ratio is infinite, and the weight 0.
        with np.errstate(over="ignore"):
            for num, kernel, allowed in self._drawn:
                ratio += num * (np.exp(kernel.log_density(self.free) - prior) / allowed if kernel else 1 / allowed)
        return len(self.free) / ratio


class Near:
    """The nearest curves: a posterior."""

    def __init__(self, free: np.ndarray, gap: np.ndarray, weight: np.ndarray) -> None:
        """Args: free numbers `[keep, P]`, distances by parameter `[keep, P]`, weights `[keep]`."""
        self.free = free
        apart = np.sqrt((gap**2).sum(1))
        self.width = float(apart.max())
        # Epanechnikov's kernel; where all are as near as can be, each counts in full.
        self.weight = weight * (np.maximum(1 - (apart / self.width) ** 2, 1e-9) if self.width > 0 else 1)
        share = self.weight / self.weight.sum()
        self.effective = float(1 / (share**2).sum())
        rest = gap - share @ gap
        normal = (share[:, None] * rest).T @ rest
        slope = np.linalg.solve(
            normal + 1e-6 * np.diag(np.maximum(np.diag(normal), 1e-9)), (share[:, None] * rest).T @ free
        )
        self.adjusted = free - gap @ slope
        self.mean = share @ self.adjusted
        self.sd = np.sqrt(np.maximum(share @ (self.adjusted - self.mean) ** 2, 1e-300))

    def alike(self, other: "Near") -> bool:
        """Whether mean and deviations are those of another, as far as so many curves can tell."""
        shift = np.abs(self.mean - other.mean) / self.sd
        return bool((shift < SHIFT).all() and (np.abs(np.log(self.sd / other.sd)) < STRETCH).all())

    def draws(self, generator: np.random.Generator) -> np.ndarray:
        """Places of equal weight, by systematic resampling."""
        steps = np.cumsum(self.weight / self.weight.sum())
        at = (np.arange(DRAWS) + generator.random()) / DRAWS
        return self.adjusted[np.minimum(np.searchsorted(steps, at), len(steps) - 1)]


def _line(number: int, near: Near, experiment: Experiment, tell: Tell) -> Iteration:
    shown = f"{near.effective:.0f} of {len(near.free)} effective, distance {near.width:.2g}"
    line = Iteration(number, near.mean, np.nan, np.nan, experiment.runs, shown)
    tell(line)
    return line
