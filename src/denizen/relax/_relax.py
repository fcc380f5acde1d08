"""Relaxations of 0/1 draws."""

import dataclasses
from collections.abc import Callable

from torch import Tensor


@dataclasses.dataclass(frozen=True)
class MeanField:
    """No draw at all: each agent carries the probability. Smooth, hence exact gradients, of another model.

    The expected course of independent agents on a graph without loops; elsewhere an approximation that overestimates
    spread, since an agent may infect its own infector's share.
    """

    def draw(self, prob: Tensor, hard: Callable[[], Tensor]) -> Tensor:
        """The probability itself."""
        return prob


@dataclasses.dataclass(frozen=True)
class StraightThrough:
    """The hard draw forward, the gradient of the probability backward (Bengio, Léonard and Courville,
    arXiv 1308.3432). Series equal those of the run without relaxation; gradients are biased.
    """

    def draw(self, prob: Tensor, hard: Callable[[], Tensor]) -> Tensor:
        """0/1 in float32 with the probability's gradient."""
        return hard().to(prob.dtype) + (prob - prob.detach())
