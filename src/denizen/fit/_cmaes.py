"""Covariance matrix adaptation: a population of places that moves and stretches, without slopes."""

import dataclasses

import numpy as np

from denizen._arguments import number, whole
from denizen.errors import need
from denizen.fit._budget import Budget, check_budget
from denizen.fit._experiment import Experiment
from denizen.fit._method import Solution, Tell
from denizen.fit._trials import Trials, ranges

AGAIN = 20  # times that a place which the model refuses is drawn anew
ALIKE = 2  # generations in a row in which nobody can be told from the best: the rest is noise


@dataclasses.dataclass(frozen=True)
class CMAES:
    """Searches by populations (Hansen 2016, arXiv 1604.00772), with the package `cmaes`: ``denizen[fit]``.

    For curves whose slopes mislead: a start far off, several valleys. Each generation is one launch in fresh worlds;
    places near the best get more of them. The search ends when the places of a generation cannot be told apart. The
    best are looked at again in fresh worlds, and the last iterations of `GaussNewton` give the interval.

    Attributes:
        runs: most worlds of the search; the last iterations come on top.
        seconds: most seconds of the search, looked at before each launch; None: any. A fit that this ends differs from
            one machine to the other.
        population: places in a generation; None: 4 + 3 log P.
        scatter: of the first generation about the start, in standard deviations of the priors; a flat parameter counts
            as one with a standard deviation of a half in free numbers.
    """

    runs: int = 2_000
    seconds: float | None = None
    population: int | None = None
    scatter: float = 0.5

    def __post_init__(self) -> None:
        check_budget("CMAES", self.runs, self.seconds)
        if self.population is not None:
            whole("CMAES", "population", self.population, 4)
        number("CMAES", "scatter", self.scatter, above=0)

    def solve(self, experiment: Experiment, replicates: int, tell: Tell) -> Solution:
        """See `Method`."""
        cma = need("cmaes", "fit", "search with dz.fit.CMAES")
        trials = Trials(experiment, replicates, budget := Budget(experiment, self.runs, self.seconds), tell)
        begin, scale = experiment.parameters.start, ranges(experiment.parameters, trials.generator)[2]
        search = cma.CMA(
            mean=np.zeros(len(begin)),
            sigma=self.scatter,
            seed=int(trials.generator.integers(1 << 32)),
            population_size=self.population,
        )
        places, values, alike = [begin], [np.inf], 0
        while alike < ALIKE and not budget.over and not search.should_stop():
            asked = [self._asked(search, experiment, begin, scale) for _ in range(search.population_size)]
            generation = begin + scale * np.stack(asked)
            found = trials.race(generation)
            if found is None:
                break
            # The search only ranks; what the model refuses comes last.
            worst = found.value[np.isfinite(found.value)].max(initial=0.0) + 1
            told = np.where(np.isfinite(found.value), found.value, worst)
            search.tell(list(zip(asked, told.tolist(), strict=True)))
            alike = alike + 1 if found.alike else 0
            best = int(np.argmin(told))
            trials.note(generation[best], float(found.loss[best]), float(found.noise[best]))
            # The middle of a population has less noise than its luckiest member.
            places += [generation[best], begin + scale * search.mean]
            values += [float(told[best])] * 2
        return trials.finish(np.stack(places[-8:]), np.array(values[-8:]))

    def _asked(self, search: object, experiment: Experiment, begin: np.ndarray, scale: np.ndarray) -> np.ndarray:
        place = search.ask()  # pyrefly: ignore
        for _ in range(AGAIN):
            if experiment.fits(begin + scale * place):
                break
            place = search.ask()  # pyrefly: ignore
        return place
