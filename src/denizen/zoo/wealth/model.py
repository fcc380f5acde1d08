"""People meet in pairs, and one gives the other a coin: money is distributed like energy in a gas."""

import torch
from torch import Tensor

import denizen as dz
from denizen.model import whole
from denizen.space import partners
from denizen.zoo._contacts import check_whole

TOLD_APART = 20  # times the mean wealth: who has more counts as having that, for the entropy


class Purses(dz.State):
    """How many coins everybody has."""

    wealth: Tensor = dz.count("agents")


class Wealth(dz.Model):
    """Everybody meets somebody; a fair coin says who gives, and who has nothing gives nothing.

    A pair goes from (a, b) to (a - 1, b + 1) with the same probability as back, so in the long run every way of
    distributing the coins has the same probability.
    """

    num_agents: int = 1_000
    mean_wealth: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("wealth", "num_agents", self.num_agents, 2)
        whole("wealth", "mean_wealth", self.mean_wealth, 1, 10_000)

    def fits(self, dt: float) -> None:
        """Refuse every length of a step but 1: a step is what happens in it."""
        check_whole("wealth", dt, "a step is a round of exchanges")

    def init(self, rng: dz.rng.Rng) -> Purses:
        """Equal purses."""
        return Purses(wealth=torch.full((self.num_agents,), self.mean_wealth, dtype=torch.int32))

    def step(self, now: Purses, rng: dz.rng.Rng) -> Purses:
        """Pairs by lot, and a coin from one to the other in each."""
        other = partners(rng, "meet")
        met, other = other >= 0, other.clamp(min=0)
        toss = rng.integers("toss", 0, 2**31)
        gives = (met & (toss > toss[other]) & (now.wealth > 0)).to(torch.int32)
        return now.replace(wealth=now.wealth - gives + torch.where(met, gives[other], 0))

    @dz.series
    def total(self, now: Purses) -> Tensor:
        """Coins of all."""
        return now.wealth.sum()

    @dz.series
    def poor(self, now: Purses) -> Tensor:
        """Share of those who have nothing."""
        return (now.wealth == 0).to(torch.float32).mean()

    @dz.series
    def richest(self, now: Purses) -> Tensor:
        """Coins of the richest."""
        return now.wealth.max()

    @dz.series
    def gini(self, now: Purses) -> Tensor:
        """Gini's coefficient: 0 for equal purses, 1 where one has all."""
        rank = torch.arange(1, self.num_agents + 1, device=now.wealth.device)
        weighed = (rank * now.wealth.sort().values.to(torch.int64)).sum() / now.wealth.sum()
        return (2 * weighed / self.num_agents - (self.num_agents + 1) / self.num_agents).to(torch.float32)

    @dz.series
    def entropy(self, now: Purses) -> Tensor:
        """Of the distribution of wealth, in nats."""
        most = TOLD_APART * self.mean_wealth
        number = torch.zeros(most + 1, device=now.wealth.device)
        number = number.scatter_add(
            0, now.wealth.clamp(max=most).to(torch.int64), torch.ones_like(now.wealth, dtype=torch.float32)
        )
        return -torch.special.xlogy(number / self.num_agents, number / self.num_agents).sum()
