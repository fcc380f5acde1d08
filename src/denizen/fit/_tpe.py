"""Optuna's samplers, such as the tree-structured Parzen estimator: trials that are asked for and told."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from denizen._arguments import whole
from denizen.errors import InputError, expect_function, need
from denizen.fit._budget import Budget, check_budget
from denizen.fit._experiment import Experiment
from denizen.fit._method import Solution, Tell
from denizen.fit._trials import Trials, ranges


@dataclasses.dataclass(frozen=True)
class TPE:
    """Searches with a sampler of Optuna, by default its TPE (Bergstra et al. 2011): ``denizen[fit]``.

    Several trials are one launch, in fresh worlds; those near the best get more of them. Trials are kept in memory. The
    best are looked at again in fresh worlds, and the last iterations of `GaussNewton` give the interval.

    Places are looked for within the middle 99.8 % of a prior, or within 3 of where the search begins, in free numbers.

    Attributes:
        runs: most worlds of the search; the last iterations come on top.
        seconds: most seconds of the search, looked at before each launch; None: any. A fit that this ends differs from
            one machine to the other.
        trials: most of them.
        together: trials of a launch.
        sampler: a class or function of ``seed=`` that makes a sampler, such as ``optuna.samplers.GPSampler``.
    """

    runs: int = 2_000
    seconds: float | None = None
    trials: int = 120
    together: int = 10
    sampler: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        check_budget("TPE", self.runs, self.seconds)
        whole("TPE", "trials", self.trials, 1)
        whole("TPE", "together", self.together, 1)
        if self.sampler is None:
            return
        if not callable(self.sampler):
            raise InputError(
                f"TPE: sampler={self.sampler!r}, expected what makes one, such as optuna.samplers.GPSampler: a sampler "
                f"that was made already would go on where its last fit ended"
            )
        expect_function("TPE: sampler", self.sampler, named=["seed"])

    def solve(self, experiment: Experiment, replicates: int, tell: Tell) -> Solution:
        """See `Method`."""
        optuna = need("optuna", "fit", "search with dz.fit.TPE")
        trials = Trials(experiment, replicates, Budget(experiment, self.runs, self.seconds), tell)
        low, high, _ = ranges(experiment.parameters, trials.generator)
        seed = int(trials.generator.integers(1 << 32))
        labels = experiment.parameters.labels
        with _quiet(optuna):
            sampler = (
                optuna.samplers.TPESampler(seed=seed, constant_liar=True)
                if self.sampler is None
                else self.sampler(seed=seed)
            )
            if not isinstance(sampler, optuna.samplers.BaseSampler):
                raise InputError(f"TPE: sampler made {sampler!r}, expected a sampler of Optuna")
            study = optuna.create_study(sampler=sampler)
            places, values = [experiment.parameters.start], [np.inf]
            bounds = zip(labels, low, high, strict=True)
            space = {label: optuna.distributions.FloatDistribution(a, b) for label, a, b in bounds}
            for first in range(0, self.trials, self.together):
                asked = [study.ask(space) for _ in range(min(self.together, self.trials - first))]
                together = np.array([[trial.params[label] for label in labels] for trial in asked])
                found = trials.race(together)
                if found is None:
                    break
                for trial, value in zip(asked, found.value, strict=True):
                    failed = optuna.trial.TrialState.FAIL
                    study.tell(trial, value) if np.isfinite(value) else study.tell(trial, state=failed)
                best = int(np.argmin(found.value))
                if np.isfinite(found.value[best]):
                    trials.note(together[best], float(found.loss[best]), float(found.noise[best]))
                places += list(together)
                values += found.value.tolist()
        return trials.finish(np.stack(places), np.array(values))


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Optuna tells of every study, and warns of each option that may change; that is for its own users."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="optuna")
            warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
