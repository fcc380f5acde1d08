"""Bounded confidence: pairs that meet come closer, where they are not too far apart already."""

import torch
from torch import Tensor

import denizen as dz
from denizen.model import whole
from denizen.zoo._contacts import check_whole
from denizen.zoo._picture import INK, PAPER, tiles

UNIT = 2.0**-24  # opinions are whole multiples of it, so that what one gives the other takes exactly


class Minds(dz.State):
    """What each agent thinks, from 0 to 1."""

    opinion: Tensor = dz.real("agents", max=1.0)


class Opinions(dz.Model):
    """All agents meet in random pairs; those closer than `confidence` each move the part `move` towards the other."""

    confidence: Tensor = dz.param(0.2, low=0.0, high=1.0, learnable=False, about="distance up to which one listens")
    move: Tensor = dz.param(0.5, low=0.0, high=0.5, about="part of the distance that each moves")
    num_agents: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("opinions", "num_agents", self.num_agents, 2)

    def fits(self, dt: float) -> None:
        """Refuse every length of a step but 1: a step is what happens in it."""
        check_whole("opinions", dt, "a step is a round of meetings")

    def init(self, rng: dz.rng.Rng) -> Minds:
        """Opinions spread evenly at random."""
        return Minds(opinion=rng.uniform("opinion"))

    def step(self, now: Minds, rng: dz.rng.Rng) -> Minds:
        """Everybody meets somebody; of an odd number one stays alone."""
        partner = self._partners(rng)
        apart = now.opinion[partner] - now.opinion
        near = (apart.abs() < self.confidence).to(torch.float32)
        step = self.move * apart / UNIT
        whole = torch.round(step) + (step - step.detach())  # with the slope of what was rounded
        return now.replace(opinion=now.opinion + near * whole * UNIT)

    def _partners(self, rng: dz.rng.Rng) -> Tensor:
        """Whom each meets, int64 `[agents]`: two that follow each other in a random order."""
        order = rng.permutation("meetings")
        place = torch.arange(self.num_agents, device=order.device)
        other = torch.where(place % 2 == 0, place + 1, place - 1).clamp(max=self.num_agents - 1)
        return torch.empty_like(order).scatter(0, order, order[other])

    @dz.series
    def mean(self, now: Minds) -> Tensor:
        """Mean opinion, which never changes."""
        return now.opinion.sum(dtype=torch.float64) / self.num_agents

    @dz.series
    def spread(self, now: Minds) -> Tensor:
        """Standard deviation of opinions."""
        return now.opinion.std(correction=0)

    @dz.series
    def clusters(self, now: Minds) -> Tensor:
        """Groups of opinions that are at least `confidence` apart and hold a twentieth of the agents or more."""
        held = now.opinion.sort().values
        group = torch.cat([torch.zeros(1, device=held.device), (held.diff() >= self.confidence).cumsum(0)]).long()
        sizes = torch.zeros(self.num_agents, device=held.device).index_add(0, group, torch.ones_like(held))
        return (sizes >= 0.05 * self.num_agents).sum()

    def draw(self, now: Minds) -> Tensor:
        """Opinions as a histogram, from 0 on the left to 1 on the right."""
        bins, height = 60, 60
        counts = torch.histc(now.opinion.float(), bins, 0, 1)
        bars = torch.arange(height, 0, -1)[:, None] <= (counts / counts.max().clamp(min=1) * height)[None, :]
        return tiles([(bars, INK)], 4, PAPER)
