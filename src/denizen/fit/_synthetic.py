"""Synthetic likelihood: what is observed is taken as normal, mean and covariance from simulated worlds (Wood 2010).

Of D observed numbers a covariance needs far more than D worlds. So curves are summed up first by one number for each
parameter, as in `ABCSMC`, whose covariance a few worlds give.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from denizen._arguments import one_of, whole
from denizen.errors import InputError
from denizen.fit._abc import Near
from denizen.fit._budget import Budget, check_budget
from denizen.fit._chains import Steps, gain, told
from denizen.fit._experiment import Experiment
from denizen.fit._gauss_newton import inverse_covariance
from denizen.fit._method import Iteration, Solution, Tell
from denizen.fit._prior import pilot, posterior, regression, summarised

SHRINKS = 30  # of a slice; a chain that finds nothing until then stays where it is
SLICE = 3.0  # width of a slice in deviations of the posterior
SPARE = 6  # worlds beyond the numbers that are told apart, from which the estimate without bias is no rougher


@dataclasses.dataclass(frozen=True)
class SyntheticLikelihood:
    """Draws from the posterior by chains, with a normal likelihood from `replicates` worlds at each place (Wood 2010).

    Several chains walk side by side: their places × worlds are one launch. What is compared is one number for each
    parameter, its prediction by a regression on the observed numbers, learnt from the priors' curves and again from
    those of the first half of the burn-in. The likelihood has no bias for normal numbers (Price et al. 2018); where
    there are too few worlds for that, it takes the covariance shrunk towards no correlation (Ledoit and Wolf 2004).
    Every parameter needs a prior.

    Attributes:
        chains: walks side by side.
        burn_in: iterations in which the walk learns its width and directions; thrown away.
        iterations: those after, kept as draws, `chains` each.
        moves: ``"walk"``: one proposal in fresh worlds for each chain and iteration. ``"slice"``: slices under held
            worlds, which are drawn anew in between (Murray and Graham 2016): some three times the runs of a walk for
            each draw, and no width to be adapted.
        tried: draws of the priors that are looked at first.
        runs: most worlds of the search; the looks at its end come on top.
        seconds: most seconds, looked at before each launch; None: any. A fit that this ends differs from one machine to
            the other.
    """

    chains: int = 8
    burn_in: int = 40
    iterations: int = 150
    moves: Literal["walk", "slice"] = "walk"
    tried: int = 400
    runs: int = 100_000
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name, low in (("chains", 2), ("burn_in", 4), ("iterations", 10), ("tried", 40)):
            whole("SyntheticLikelihood", name, getattr(self, name), low)
        one_of("SyntheticLikelihood", "moves", self.moves, ("walk", "slice"))
        check_budget("SyntheticLikelihood", self.runs, self.seconds)
        if self.runs < self.tried:
            raise InputError(f"SyntheticLikelihood: runs={self.runs}, expected at least tried={self.tried}")

    def solve(self, experiment: Experiment, replicates: int, tell: Tell) -> Solution:
        """See `Method`."""
        generator, budget = experiment.generator(), Budget(experiment, self.runs, self.seconds)
        first = pilot("SyntheticLikelihood", experiment, self.tried, generator)
        chains = _Chains(experiment, self, replicates, budget, generator, tell)
        chains.begin(first.free, first.seen)
        move = chains.walk if self.moves == "walk" else chains.slice
        kept: list[np.ndarray] = []
        for number in range(self.burn_in + self.iterations):
            if number == self.burn_in // 2:
                chains.learn()
            if number == self.burn_in:
                chains.refresh()  # a likelihood that was high by chance while the walk was learning holds nobody back
            if budget.over or not move(learning=number < self.burn_in):
                break
            if number >= self.burn_in:
                kept.append(chains.at.copy())
        seen = chains.steps.seen
        found = np.stack(kept or seen[len(seen) // 2 :] or [chains.at], axis=1)
        more = f"Allow more iterations and burn-in than {self.iterations} and {self.burn_in}."
        notes, mixed = told(found, experiment.parameters.labels, more)
        trace = {"trace": tuple(chains.trace), "notes": (*first.notes, *budget.notes(), *notes)}
        draws = found.reshape(-1, found.shape[2])
        return posterior(experiment, draws, replicates, chains.world, mixed and not budget.over, trace)


class _Chains:
    """Where the chains are, how likely that is, and what they have learned."""

    def __init__(
        self,
        experiment: Experiment,
        method: SyntheticLikelihood,
        replicates: int,
        budget: Budget,
        generator: np.random.Generator,
        tell: Tell,
    ) -> None:
        self._experiment, self._method, self._replicates = experiment, method, replicates
        self._budget, self._generator, self._tell = budget, generator, tell
        self._places: list[np.ndarray] = []  # and their curves: what the numbers to compare are learnt from
        self._curves: list[np.ndarray] = []
        self.trace: list[Iteration] = []
        self.world = 0

    def begin(self, free: np.ndarray, curves: np.ndarray) -> None:
        """Chains at the draws of the priors whose curves are nearest; the walk as wide as these say."""
        num, observed = len(free), self._experiment.observed
        self.world = num
        weight, keep = np.ones(num), max(20, num // 4)
        gap = summarised(free, curves, observed, weight, np.arange(num))
        kept = np.argsort((gap**2).sum(1), kind="stable")[:keep]
        near = Near(free[kept], gap[kept], weight[kept])
        self._slope = regression(curves, free, weight)[1]
        rest = near.adjusted - near.mean
        self.steps = Steps(rest.T @ (rest * (near.weight / near.weight.sum())[:, None]), self._generator)
        self._places, self._curves = [free], [curves]
        self.at = free[kept][self._generator.permutation(keep)[: self._method.chains]]
        if keep < self._method.chains:
            self.at = free[self._generator.choice(num, self._method.chains)]
        self._log_prior = self._experiment.parameters.log_prior(self.at)
        self.refresh()

    def learn(self) -> None:
        """What to compare, from the curves about where the chains have been."""
        places, curves = (
            np.concatenate(self._places[1:] or self._places),
            np.concatenate(self._curves[1:] or self._curves),
        )
        self._slope = regression(curves, places, np.ones(len(places)))[1]
        self._places = self._curves = []
        self.refresh()

    def refresh(self) -> None:
        """Fresh worlds for where the chains are."""
        self._worlds = self._fresh(len(self.at))
        found = self._likelihood(self.at, self._worlds)
        self._log_likelihood = np.full(len(self.at), -np.inf) if found is None else found

    def walk(self, learning: bool) -> bool:
        """One proposal for each chain, in worlds of its own; False: the budget is over."""
        proposed = self.steps.proposed(self.at)
        worlds = self._fresh(len(proposed))
        log_likelihood, log_prior = self._likelihood(proposed, worlds), self._experiment.parameters.log_prior(proposed)
        if log_likelihood is None:
            return False
        gains = gain(log_likelihood + log_prior, self._log_likelihood + self._log_prior)
        taken = np.log(self._generator.random(len(gains))) < gains
        self._take(taken, proposed, log_likelihood, log_prior)
        if learning:
            self.steps.learn(self.at, float(np.exp(np.minimum(gains, 0)).mean()))
        self._note(f"accepted {taken.sum()} of {len(taken)}", learning)
        return True

    def slice(self, learning: bool) -> bool:
        """Fresh worlds, if as likely, then a slice in a random direction under these; False: the budget is over."""
        num = len(self.at)
        worlds = self._fresh(num)
        log_likelihood = self._likelihood(self.at, worlds)
        if log_likelihood is None:
            return False
        fresh = np.log(self._generator.random(num)) < gain(log_likelihood, self._log_likelihood)
        self._log_likelihood = np.where(fresh, log_likelihood, self._log_likelihood)
        self._worlds = [new if one else old for one, new, old in zip(fresh, worlds, self._worlds, strict=True)]
        height = self._log_likelihood + self._log_prior + np.log(self._generator.random(num))
        direction = self.steps.directions(num)
        low = -SLICE * self._generator.random(num)
        high, begin, open_ = low + SLICE, self.at.copy(), np.ones(num, dtype=bool)
        for _ in range(SHRINKS):
            which = np.flatnonzero(open_)
            if not len(which):
                break
            step = low + (high - low) * self._generator.random(num)
            proposed = begin + step[:, None] * direction
            found = self._likelihood(proposed[which], [self._worlds[k] for k in which])
            if found is None:
                return False
            log_likelihood = np.full(num, -np.inf)
            log_likelihood[which] = found
            log_prior = self._experiment.parameters.log_prior(proposed)
            inside = open_ & (log_likelihood + log_prior >= height) & np.isfinite(log_likelihood)
            self._take(inside, proposed, log_likelihood, log_prior)
            open_ &= ~inside
            low, high = np.where(step < 0, step, low), np.where(step >= 0, step, high)
        if learning:
            self.steps.learn(self.at)
        self._note(f"fresh worlds in {fresh.sum()} of {num}", learning)
        return True

    def _likelihood(self, places: np.ndarray, worlds: Sequence[range]) -> np.ndarray | None:
        """Logarithms `[sets]`, minus infinity where the model refuses; None: the budget is over."""
        fit = np.flatnonzero([self._experiment.fits(place) for place in places])
        if not self._budget.room(len(fit) * self._replicates):
            return None
        found = np.full(len(places), -np.inf)
        if len(fit):
            rows = np.repeat(places[fit], self._replicates, axis=0)
            curves = self._experiment.compared(rows, [number for k in fit for number in worlds[int(k)]])
            if len(self.steps.seen) < self._method.burn_in // 2:
                self._places.append(rows)
                self._curves.append(curves)
            gaps = ((curves - self._experiment.observed) @ self._slope).reshape(len(fit), self._replicates, -1)
            found[fit] = [log_normal(gap) for gap in gaps]
        return found

    def _fresh(self, sets: int) -> list[range]:
        first = self.world
        self.world += sets * self._replicates
        return [range(first + k * self._replicates, first + (k + 1) * self._replicates) for k in range(sets)]

    def _take(self, taken: np.ndarray, places: np.ndarray, log_likelihood: np.ndarray, log_prior: np.ndarray) -> None:
        self.at = np.where(taken[:, None], places, self.at)
        self._log_likelihood = np.where(taken, log_likelihood, self._log_likelihood)
        self._log_prior = np.where(taken, log_prior, self._log_prior)

    def _note(self, what: str, learning: bool) -> None:
        phase = "burn-in" if learning else "draws"
        shown = f"{phase}, {what}, log-likelihood {np.median(self._log_likelihood):.1f}"
        number, runs = len(self.trace), self._experiment.runs
        self.trace.append(Iteration(number, self.at.mean(0), np.nan, np.nan, runs, shown))
        self._tell(self.trace[-1])


def log_normal(gaps: np.ndarray) -> float:
    """Logarithm of the normal density of nothing, `gaps` `[R, d]` being draws of the distance to it.

    Without bias for R > d + 3 (Ghurye and Olkin 1969; Price et al. 2018, equation 3), a constant left out. With few
    worlds more than that it would be rough: then by Student's t, which allows for what mean and covariance are not
    known (Sellentin and Heavens 2016), with the covariance shrunk.
    """
    num, dim = gaps.shape
    mean = gaps.mean(0)
    rest = gaps - mean
    if num < dim + SPARE:
        inverse = inverse_covariance(rest, num, [1] * dim)
        square = float(mean @ inverse @ mean) / (1 + 1 / num)
        return float(0.5 * np.linalg.slogdet(inverse)[1] - 0.5 * num * np.log1p(square / (num - 1)))
    scatter = rest.T @ rest
    sign, size = np.linalg.slogdet(scatter)
    if sign <= 0:
        return -np.inf
    # The determinant without the outer product of the mean, by the lemma of rank one.
    left = 1 - float(mean @ np.linalg.solve(scatter, mean)) / (1 - 1 / num)
    if left <= 0:
        return -np.inf
    return float(-0.5 * (num - dim - 2) * size + 0.5 * (num - dim - 3) * (size + np.log(left)))
