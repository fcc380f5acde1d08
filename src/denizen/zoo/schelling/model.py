"""Schelling's segregation: who has too few neighbours of their own group moves to an empty cell."""

import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError
from denizen.model import whole
from denizen.zoo._contacts import check_whole
from denizen.zoo._picture import BLUE, PAPER, RED, tiles


class Neighbours(dz.State):
    """Where everybody lives, and who belongs to the second group."""

    cell: Tensor = dz.count("agents")
    second: Tensor = dz.mask("agents")


class Schelling(dz.Model):
    """Two groups on a grid; an agent with fewer than `need` neighbours of its own group moves anywhere that is empty.

    All who are unhappy move at once, into cells that were empty before; who finds none left stays.
    """

    grid: dz.space.Grid
    num_agents: int = 1_000
    need: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("schelling", "num_agents", self.num_agents, 2, self.grid.num_cells)
        near = len(self.grid.offsets)
        if whole("schelling", "need", self.need, 0) > near:
            raise InputError(
                f"schelling: need={self.need}, expected at most {near}, the neighbours within radius={self.grid.radius}"
            )

    def fits(self, dt: float) -> None:
        """Refuse every length of a step but 1: a step is what happens in it."""
        check_whole("schelling", dt, "a step is a round of moves")

    def init(self, rng: dz.rng.Rng) -> Neighbours:
        """Everybody anywhere, half of them of each group."""
        half = rng.permutation("group")[: self.num_agents // 2]
        first = torch.zeros(self.num_agents, dtype=torch.int8, device=half.device)
        return Neighbours(cell=self.grid.to_empty(None, None, rng), second=first.index_fill(0, half, 1))

    def step(self, now: Neighbours, rng: dz.rng.Rng) -> Neighbours:
        """The unhappy move."""
        alike, _ = self.neighbours(now)
        unhappy = rng.record("unhappy", (alike < self.need).to(torch.int8))
        return now.replace(cell=self.grid.to_empty(now.cell, unhappy, rng))

    def neighbours(self, now: Neighbours) -> tuple[Tensor, Tensor]:
        """How many neighbours each agent has of its own group, and of any."""
        everybody, second = (self.grid.occupants(now.cell, who).to(torch.int8) for who in (None, now.second))
        every, others = (self.grid.at(self.grid.sum(group), now.cell) for group in (everybody, second))
        return torch.where(now.second != 0, others, every - others), every

    @dz.series
    def unhappy(self, events: dz.rng.Events) -> Tensor:
        """Who wished to move in the step."""
        return events["unhappy"].sum()

    @dz.series
    def segregation(self, now: Neighbours) -> Tensor:
        """Share of all agents' neighbours that are of their own group: 1 where they part."""
        alike, every = self.neighbours(now)
        return alike.sum() / every.sum().clamp(min=1)

    def draw(self, now: Neighbours) -> Tensor:
        """The town: a group red, the other blue."""
        groups = (self.grid.occupants(now.cell, who).reshape(self.grid.shape) for who in (1 - now.second, now.second))
        return tiles([*zip(groups, (RED, BLUE), strict=True)], max(1, 240 // max(self.grid.shape)), PAPER)
