"""Relaxations of 0/1 draws."""

import dataclasses

import torch
from torch import Tensor

from denizen._arguments import number
from denizen.rng import Hard


@dataclasses.dataclass(frozen=True)
class MeanField:
    """No draw at all: each agent carries the probability. Smooth, hence exact gradients, of another model.

    The expected course of independent agents on a graph without loops; elsewhere an approximation that overestimates
    spread, since an agent may infect its own infector's share.
    """

    def draw(self, prob: Tensor, hard: Hard) -> Tensor:
        """The probability itself."""
        return prob


@dataclasses.dataclass(frozen=True)
class StraightThrough:
    """The hard draw forward, the gradient of the probability backward (Bengio, Léonard and Courville,
    arXiv 1308.3432). Series equal those of the run without relaxation; gradients are biased.
    """

    def draw(self, prob: Tensor, hard: Hard) -> Tensor:
        """0/1 in float32 with the probability's gradient."""
        return hard().to(prob.dtype) + (prob - prob.detach())


@dataclasses.dataclass(frozen=True)
class Logistic:
    """The hard draw forward, backward the gradient of a logistic function of the same random number.

    A draw is 1 where logit(prob) exceeds the logistic number logit(u) of its agent. The slope is that of
    sigmoid((logit(prob) - logit(u)) / tau) (Maddison et al., arXiv 1611.00712; Jang et al.,
    arXiv 1611.01144), which is large for draws that nearly came out the other way and small for the others: who was far
    from being infected stays out of the gradient. Series equal those of the run without relaxation.

    Attributes:
        tau: width of the logistic function, above 0. Bias moves with it and with the model: see
            `denizen.relax.measure`.
    """

    tau: float = 0.5

    def __post_init__(self) -> None:
        number("Logistic", "tau", self.tau, above=0)

    def draw(self, prob: Tensor, hard: Hard) -> Tensor:
        """0/1 in float32 with the slope of the logistic function."""
        with torch.no_grad():
            odds = torch.log(prob) - torch.log1p(-prob)
            level = torch.logit(hard.uniform()).to(prob.dtype)
            above = (odds - level) / self.tau
            slope = torch.sigmoid(above) * torch.sigmoid(-above) / (self.tau * prob * (1 - prob))
            # Certain outcomes have no neighbour that came out the other way, and odds without a number.
            slope = torch.where((prob > 0) & (prob < 1), slope, 0.0)
        return hard().to(prob.dtype) + slope * (prob - prob.detach())
