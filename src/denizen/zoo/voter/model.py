"""The voter model: everybody takes over the opinion of a random neighbour now and then."""

from torch import Tensor

import denizen as dz
from denizen.zoo._picture import BLUE, RED, tiles


class Voters(dz.State):
    """What each voter thinks."""

    opinion: Tensor = dz.mask("agents")


class Voter(dz.Model):
    """Each voter asks one neighbour at `rate` and thinks the same from then on.

    Neighbours are those of a graph, or, on a grid, of the voter's cell.
    """

    contacts: dz.Graph | dz.space.Grid
    rate: Tensor = dz.param(1.0, low=0.0, unit="1/step", about="how often a voter asks somebody")
    share: Tensor = dz.param(0.5, low=0.0, high=1.0, learnable=False, about="share with opinion 1 at the start")

    def init(self, rng: dz.rng.Rng) -> Voters:
        """Opinions at random."""
        return Voters(opinion=rng.bernoulli("opinion", self.share))

    def step(self, now: Voters, rng: dz.rng.Rng) -> Voters:
        """Ask, and take over."""
        mine = now.opinion
        asks = rng.event("asks", self.rate)
        changes = asks * rng.bernoulli("differs", self._otherwise(mine), where=asks)
        return now.replace(opinion=mine + changes - 2 * mine * changes)

    @dz.series
    def ones(self, now: Voters) -> Tensor:
        """Share with opinion 1."""
        return now.opinion.sum() / now.opinion.numel()

    @dz.series
    def discord(self, now: Voters) -> Tensor:
        """Mean share of neighbours who think otherwise."""
        return self._otherwise(now.opinion).mean()

    def _otherwise(self, mine: Tensor) -> Tensor:
        """Share of each voter's neighbours who think otherwise."""
        return mine * self.contacts.mean(1 - mine) + (1 - mine) * self.contacts.mean(mine)

    def draw(self, now: Voters) -> Tensor:
        """The grid from above."""
        shape = self.contacts.shape if isinstance(self.contacts, dz.space.Grid) else (1, -1)
        square = now.opinion.reshape(shape)
        return tiles([(square, BLUE), (1 - square, RED)], max(1, 240 // square.shape[1]))
