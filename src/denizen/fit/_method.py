"""What all methods share: how they are called, what they tell on the way, what they find."""

import dataclasses
from collections.abc import Callable
from typing import Protocol

import numpy as np

from denizen.errors import InputError
from denizen.fit._experiment import Experiment


@dataclasses.dataclass(frozen=True)
class Iteration:
    """One line of the trace.

    Attributes:
        number: from 0.
        free: free numbers `[P]` at which it was simulated, or the best or middle of them.
        loss: mean squared distance of what was observed and the mean of the worlds, as they are compared; NaN where a
            method compares otherwise.
        step: longest move that followed, in standard deviations of the estimate; NaN where the move before was undone,
            or where a method takes no steps.
        runs: worlds simulated so far.
        shown: what the user sees of it, such as ``"loss 3.2"`` or ``"212 of 1,024 effective"``.
    """

    number: int
    free: np.ndarray
    loss: float
    step: float
    runs: int
    shown: str


Tell = Callable[[Iteration], None]


@dataclasses.dataclass(frozen=True)
class Solution:
    """What a method found: a normal distribution of the free numbers, or draws of them.

    Attributes:
        free: estimate `[P]`; of draws, their mean.
        precision: inverse covariance of the estimate, `[P, P]`: the information of the data and of the prior; None: it
            is not known how well the estimate is known.
        trace: all iterations.
        worlds: numbers from this one on are unused.
        converged: whether the search came to rest within its budget.
        away: distance of what was observed to the mean of the worlds, root mean square, over the scatter of one world;
            near 1 where the model is right; NaN where the method does not know it.
        draws: of the posterior, free numbers `[num, P]` of equal weight; None: the normal distribution is all.
        notes: what should be known before the numbers are used, in words.
        slope: of the mean of what is compared, `[D, P]`, at the estimate; None where the method takes no slopes.
        particles: with how many of them forecasts are filtered, so that they begin where the data lead to; None:
            forecasts begin at the first step.
    """

    free: np.ndarray
    precision: np.ndarray | None
    trace: tuple[Iteration, ...]
    worlds: int
    converged: bool
    away: float
    draws: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    slope: np.ndarray | None = None
    particles: int | None = None

    def covariance(self) -> np.ndarray:
        """Of the estimate, `[P, P]`.

        Raises:
            InputError: it is not known.
        """
        if self.precision is None:
            raise InputError(
                "Fit: the method computed no interval; fit again with polish=2, with more runs=, or with GaussNewton()"
            )
        return np.linalg.inv(self.precision + 1e-6 * np.diag(np.maximum(np.diag(self.precision), 1e-6)))

    def drawn(self, num: int, generator: np.random.Generator) -> np.ndarray:
        """Free numbers `[num, P]`: of the draws, or of the normal distribution; the estimate where that is all."""
        if self.draws is not None:
            return self.draws[generator.choice(len(self.draws), num, replace=num > len(self.draws))]
        if self.precision is None:
            return np.repeat(self.free[None], num, axis=0)
        return generator.multivariate_normal(self.free, self.covariance(), num)


class Method(Protocol):
    """How to search: a frozen object with settings alone."""

    def solve(self, experiment: Experiment, replicates: int, tell: Tell) -> Solution:
        """Search from the parameters' start, or from their priors.

        Args:
            experiment: what is simulated.
            replicates: worlds of the last iterations.
            tell: is called after each iteration.
        """
        ...
