"""Places compared by simulation alone, for searches without slopes: races, and the best looked at again.

The loss of a place is the squared distance of what was observed and the mean of the model. The mean over R worlds is
off by the scatter of a world over R, which would favour places that scatter little, and compare places of few worlds
with places of many. The sum over pairs of different worlds has no such bias; its noise follows by leaving worlds out.
"""

import dataclasses

import numpy as np

from denizen.errors import InputError
from denizen.fit._budget import Budget
from denizen.fit._experiment import Experiment
from denizen.fit._gauss_newton import NEAR, finish
from denizen.fit._method import Iteration, Solution, Tell
from denizen.fit._parameters import Parameters

FIRST = 4  # worlds of every place, before those near the best get more
CLEAR = 2.0  # standard errors: a place that is worse by more is out of the race
TOLD = 4.0  # standard errors from four worlds, by which the worst of some ten alike places may be behind the best
ROUNDS, CLOSE = 6, 1.5  # of last iterations at most, until they end within so many standard deviations of their begin
FINAL = 6  # places that are looked at again at the end
REACH, SPREAD = 3.0, 0.5  # of what has no prior, in free numbers: half the width searched, and the first scatter
PRIOR_DRAWS, TAIL = 4096, 0.001  # of a prior whose range is asked for, and what is cut off on either side


@dataclasses.dataclass(frozen=True)
class Compared:
    """Places after a race.

    Attributes:
        value: `[places]`: minus the log of likelihood and prior, roughly; infinite where the model refuses.
        loss: `[places]`, as `Iteration.loss`, without the bias of few worlds.
        noise: standard error of the loss, `[places]`.
        alike: whether no place could be told from the best.
    """

    value: np.ndarray
    loss: np.ndarray
    noise: np.ndarray
    alike: bool


class Trials:
    """Compares places and keeps the books: worlds used up, the trace, the budget."""

    def __init__(self, experiment: Experiment, replicates: int, budget: Budget, tell: Tell) -> None:
        """Args: see `Method.solve`."""
        self._experiment, self._budget, self._tell = experiment, budget, tell
        self._replicates = max(replicates, FIRST)
        self._world = 0
        self._unit: float | None = None
        self._trace: list[Iteration] = []
        self.generator = experiment.generator()

    def race(self, places: np.ndarray, first: int = FIRST) -> Compared | None:
        """Compare places `[n, P]` in fresh worlds, alike for all; None: the budget is over.

        All have `first` worlds. Half of them, those that could still be the best, get as many more, and so on, until
        they have `replicates` or one is left.
        """
        experiment, num = self._experiment, len(places)
        alive, worlds = [k for k in range(num) if experiment.fits(places[k])], first
        gaps = {k: np.empty((0, len(experiment.observed))) for k in alive}
        loss, noise = np.full(num, np.inf), np.full(num, np.nan)
        pseudo: dict[int, np.ndarray] = {}
        alike = True
        while alive:
            if not self._budget.room(len(alive) * worlds):
                if not pseudo:
                    return None
                break
            self._world += worlds
            seen = experiment.observations(places[alive], range(self._world - worlds, self._world))
            for k, rows in zip(alive, experiment.observed - seen, strict=True):
                gaps[k] = np.concatenate([gaps[k], rows * np.sqrt(experiment.weights)])
                loss[k], pseudo[k] = _loss(gaps[k])
                noise[k] = pseudo[k].std(ddof=1) / np.sqrt(len(pseudo[k]))
            if self._unit is None:
                self._unit = self._scatter(gaps, loss)
            ordered = sorted(alive, key=lambda k: loss[k])
            behind = np.array([_behind(pseudo[k], pseudo[ordered[0]]) for k in ordered[1:]])
            alike = alike and not (behind > TOLD).any()
            had = len(pseudo[ordered[0]])
            close = ordered[: 1 + int((behind <= CLEAR).sum())]
            alive = sorted(close[: max(1, len(alive) // 2)])
            worlds = min(had, self._replicates - had)
            if len(alive) == 1 or worlds < 1:
                break
        scale = len(experiment.observed) / (2 * (self._unit or 1.0))
        return Compared(loss * scale - experiment.parameters.log_prior(places), loss, noise, alike)

    def note(self, place: np.ndarray, loss: float, noise: float) -> None:
        """A line of the trace."""
        shown = f"loss {loss:.3g} ± {noise:.1g}"
        self._trace.append(Iteration(len(self._trace), place, loss, np.nan, self._experiment.runs, shown))
        self._tell(self._trace[-1])

    def finish(self, places: np.ndarray, values: np.ndarray) -> Solution:
        """Look at the best places again in fresh worlds, go on from the first of them, and give it an interval.

        Args:
            places: `[n, P]`, any order.
            values: what they were worth when they were found, `[n]`.
        """
        order = np.argsort(values, kind="stable")[:FINAL]
        found = Trials(self._experiment, self._replicates, Budget(self._experiment, 1 << 62, None), self._tell)
        found._world, found._unit, found._trace = self._world, self._unit, self._trace
        again = found.race(places[order], self._replicates)
        assert again is not None
        best = int(np.argmin(again.value))
        found.note(places[order[best]], float(again.loss[best]), float(again.noise[best]))
        begun = places[order[best]], found._world, tuple(found._trace)
        solution, apart = self._last(*begun)
        for _ in range(ROUNDS - 1):
            if apart < CLOSE:  # slopes and widths are those of the place that they led to
                break
            solution, apart = self._last(solution.free, solution.worlds, solution.trace)
        moved = max(one.step for one in solution.trace[-2:])
        fresh = (
            f"The best place of the search has a loss of {again.loss[best]:.3g} ± {again.noise[best]:.1g} in "
            f"{self._replicates} fresh worlds; the last iterations, which give the estimate, began there.",
        )
        return dataclasses.replace(
            solution,
            converged=solution.converged and moved < NEAR and apart < CLOSE,
            notes=(*self._budget.notes(), *fresh),
        )

    def _last(self, at: np.ndarray, worlds: int, trace: tuple[Iteration, ...]) -> tuple[Solution, float]:
        """The last iterations from a place, and how far they end from it, in standard deviations."""
        solution = finish(
            self._experiment,
            at,
            self._replicates,
            self._tell,
            worlds=worlds,
            trace=trace,
            converged=not self._budget.over,
        )
        apart = np.abs(solution.free - at) / np.sqrt(np.diag(solution.covariance()))
        return solution, float(apart.max())

    def _scatter(self, gaps: dict[int, np.ndarray], loss: np.ndarray) -> float:
        """Mean variance of an observed number between worlds, where the model comes nearest."""
        experiment = self._experiment
        rows = np.concatenate(list(gaps.values()))
        if len(gaps) > 1 and not np.ptp(rows, axis=0).any():
            raise InputError(
                f"calibrate: all {len(rows)} simulated curves are the same (targets: {', '.join(experiment.targets)}), "
                f"expected some that depend on {', '.join(experiment.parameters.labels)}; fit another series, or other "
                f"parameters"
            )
        near = sorted(gaps, key=lambda k: loss[k])[: max(1, len(gaps) // 2)]
        variance = float(np.mean([gaps[k].var(axis=0, ddof=1).mean() for k in near]))
        return max(variance, 1e-9 * float(np.mean([(gaps[k] ** 2).mean() for k in near])), 1e-300)


def _loss(gaps: np.ndarray) -> tuple[float, np.ndarray]:
    """Squared length of the mean gap over the number of values, by pairs of worlds, and its pseudo-values.

    Args:
        gaps: `[worlds, D]`, at least three worlds.

    Returns:
        The loss, and `[worlds]` numbers whose mean has its standard error (the jackknife of Tukey 1958).
    """
    num, dim = gaps.shape
    total, own = gaps.sum(0), (gaps**2).sum(1)
    whole = ((total @ total) - own.sum()) / (num * (num - 1) * dim)
    rest = total - gaps
    without = ((rest**2).sum(1) - (own.sum() - own)) / ((num - 1) * (num - 2) * dim)
    return float(whole), num * whole - (num - 1) * without


def _behind(pseudo: np.ndarray, best: np.ndarray) -> float:
    """How far a place is behind the best, in standard errors of their difference in the worlds that both have had."""
    num = min(len(pseudo), len(best))
    apart = pseudo[:num] - best[:num]
    error = apart.std(ddof=1) / np.sqrt(num)
    return float(apart.mean() / error) if error > 0 else (np.inf if apart.mean() > 0 else 0.0)


def ranges(parameters: Parameters, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each free number may be looked for: low `[P]`, high `[P]`, and a first scatter `[P]`.

    A prior gives its middle 99.8 % and its standard deviation; what is flat is looked for within 3 of where it begins,
    a factor of 20 either way for what has one bound.
    """
    low, high, scatter = [], [], []
    for part in parameters.parts:
        if part.flat():
            begin = part.begin()
            low.append(begin - REACH)
            high.append(begin + REACH)
            scatter.append(np.full(part.size, SPREAD))
            continue
        drawn = Parameters([part]).draw("calibrate", PRIOR_DRAWS, generator)
        ends = np.quantile(drawn, [TAIL, 1 - TAIL], axis=0)
        low.append(ends[0])
        high.append(ends[1])
        scatter.append(drawn.std(axis=0))
    return np.concatenate(low), np.concatenate(high), np.concatenate(scatter)
