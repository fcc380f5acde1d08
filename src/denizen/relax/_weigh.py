"""Slopes without bias from hard runs: by the score function, and by one draw that comes out otherwise."""

import dataclasses
import math

import torch
from torch import Tensor

from denizen.errors import InputError
from denizen.rng import Hard

LEAVE_ONE_OUT = "leave-one-out"


@dataclasses.dataclass(frozen=True)
class ScoreFunction:
    """Hard runs, whose series get the slope of the log-probability of their draws (Williams 1992, REINFORCE).

    The slope of a mean E[y] is E[(y - b) ∂ log p], where p is the probability of all draws of a world. It is without
    bias for whatever is linear in the means of series, whatever a model compares or counts. Noise grows with the number
    of draws, so with agents and steps: 10 times that of differences is usual.

    The state keeps its hard form. Parameters that act through `normal`, `uniform` or real fields keep those slopes,
    too; what they do to draws of `categorical`, `poisson` and the like is not seen.

    Attributes:
        baseline: ``"leave-one-out"``: b is the mean of the other worlds' values, which takes at least two worlds; None:
            b is 0.
        reward_to_go: a value is weighed with the draws up to its own step, not with those of the whole run.
    """

    baseline: str | None = LEAVE_ONE_OUT
    reward_to_go: bool = True

    def __post_init__(self) -> None:
        if self.baseline not in (None, LEAVE_ONE_OUT):
            raise InputError(f"ScoreFunction: baseline={self.baseline!r}, expected {LEAVE_ONE_OUT!r} or None")
        if not isinstance(self.reward_to_go, bool):
            raise InputError(f"ScoreFunction: reward_to_go={self.reward_to_go!r}, expected True or False")

    def draw(self, prob: Tensor, hard: Hard) -> Tensor:
        """The hard draw."""
        return hard()

    def start(self, key: Tensor) -> Tensor:
        """Log-probability of no draws."""
        return torch.zeros((), device=key.device)

    def note(self, noted: Tensor, prob: Tensor, hard: Hard) -> Tensor:
        """Adds the log-probability of what came out."""
        return noted + torch.where(hard() != 0, prob, 1 - prob).log().sum()

    def flips(self, noted: Tensor) -> None:
        """No second run."""
        return

    def weigh(self, values: Tensor, noted: Tensor, other: Tensor | None) -> Tensor:
        """Values plus (value - baseline) times the slope of the log-probability."""
        worlds = values.shape[0]
        base = torch.zeros_like(values)
        if self.baseline is not None:
            if worlds < 2:
                raise InputError(
                    "ScoreFunction: one world has no others whose mean could be its baseline; take more replicates, or "
                    "baseline=None"
                )
            base = (values.sum(dim=0) - values) / (worlds - 1)
        scores = noted if self.reward_to_go else noted[:, -1:]
        scores = scores.reshape(*scores.shape, *[1] * (values.dim() - 2))
        return values + (values - base).detach() * (scores - scores.detach())


@dataclasses.dataclass(frozen=True)
class OneFlip:
    """Hard runs, of each of which one draw comes out otherwise in a second run that is coupled to it.

    One draw of a world is chosen with chances in proportion to its probability, its outcome turned round, and the world
    run again with the same random numbers for all else. The difference between both runs, times the slope of the chosen
    probability over the chance of the choice, is an estimate without bias of the slope of a mean: the pruned stochastic
    triple of Arya, Schauer, Schäfer and Rackauckas (arXiv 2210.08572) with common random numbers. Agents and steps do
    not add up to noise as they do for `ScoreFunction`. A parameter at which probabilities are 0 has no such slope.

    The state keeps its hard form; see `ScoreFunction` for what is not seen. Interventions that ask the host are
    refused, since the second run would ask again.
    """

    def draw(self, prob: Tensor, hard: Hard) -> Tensor:
        """The hard draw."""
        return hard()

    def start(self, key: Tensor) -> Tensor:
        """Nothing chosen: time of the race, sum of chances, weight, step, place and agent."""
        begun = torch.zeros(6, dtype=torch.float64, device=key.device)
        return torch.stack([begun[0] + math.inf, begun[1], begun[2], begun[3] - 2, begun[4], begun[5]])

    def note(self, noted: Tensor, prob: Tensor, hard: Hard) -> Tensor:
        """Lets all draws race, by exponential times over their chances; the first one so far is kept."""
        if prob.numel() == 0:
            return noted
        drawn, (step, place) = hard(), hard.place()
        chance = prob.detach().to(torch.float64)
        race = torch.where(chance > 0, -torch.log(hard.spare()) / torch.where(chance > 0, chance, 1.0), math.inf)
        first, agent = race.min(dim=0)
        here = prob.gather(0, agent[None])[0].to(torch.float64)
        turn = 1 - 2 * drawn.gather(0, agent[None])[0].to(torch.float64)
        weight = turn * here / torch.where(here.detach() > 0, here.detach(), 1.0)
        found = torch.stack([first, noted[1], weight, step.double(), torch.full_like(first, place), agent.double()])
        kept = torch.where(first < noted[0], found, noted)
        total = torch.zeros_like(kept)
        return kept + torch.cat([total[:1], chance.sum()[None], total[2:]])

    def flips(self, noted: Tensor) -> Tensor:
        """Step, place and agent of the chosen draw."""
        return noted[:, 3:].detach().to(torch.int64)

    def weigh(self, values: Tensor, noted: Tensor, other: Tensor | None) -> Tensor:
        """Values plus what the other outcome changes times the slope of its weight."""
        assert other is not None
        weight = noted[:, -1, 2] * noted[:, -1, 1].detach()
        slope = (weight - weight.detach()).to(values.dtype)
        return values + (other - values).detach() * slope.reshape(-1, *[1] * (values.dim() - 1))
