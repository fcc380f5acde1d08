"""Sugarscape: gatherers who go to the most sugar that they see, eat it, and starve where it does not last."""

import torch
from torch import Tensor

import denizen as dz
from denizen.model import whole
from denizen.zoo._contacts import check_whole
from denizen.zoo._picture import RED, tiles

START = (5, 25)  # sugar that a gatherer has to begin with, drawn uniformly
YELLOWS = ((255, 255, 255), (255, 250, 205), (250, 235, 150), (245, 215, 90), (235, 190, 40))  # by level of sugar


class Gatherers(dz.State):
    """Where the gatherers are, what they are like and have, and the sugar on the cells."""

    cell: Tensor = dz.count("agents")
    alive: Tensor = dz.mask("agents")
    vision: Tensor = dz.count("agents")
    metabolism: Tensor = dz.count("agents")
    wealth: Tensor = dz.count("agents")
    sugar: Tensor = dz.count("cells")


class Sugarscape(dz.Model):
    """Sugar grows, everybody goes to the best free cell in sight, takes what is there and eats of what they have.

    Attributes:
        grid: cells, a torus; gatherers look along rows and columns.
        most: the most sugar that each cell bears, int32 `[cells]`.
        looks: times that everybody looks in a step, where others have taken the cell that they had picked.
    """

    grid: dz.space.Grid
    most: Tensor
    num_agents: int = 400
    vision: int = 6
    metabolism: int = 4
    growth: int = 4
    looks: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("sugarscape", "num_agents", self.num_agents, 1, self.grid.num_cells)
        whole("sugarscape", "vision", self.vision, 1, (min(self.grid.shape) - 1) // 2)
        whole("sugarscape", "metabolism", self.metabolism, 1)
        whole("sugarscape", "growth", self.growth, 0)
        whole("sugarscape", "looks", self.looks, 1)

    def fits(self, dt: float) -> None:
        """Refuse every length of a step but 1: a step is what happens in it."""
        check_whole("sugarscape", dt, "a step is a round of gathering")

    def init(self, rng: dz.rng.Rng) -> Gatherers:
        """Gatherers anywhere, one in a cell; all the sugar there can be."""
        cell = self.grid.to_empty(None, None, rng)
        return Gatherers(
            cell=cell,
            alive=torch.ones_like(cell, dtype=torch.int8),
            vision=rng.integers("vision", 1, self.vision + 1),
            metabolism=rng.integers("metabolism", 1, self.metabolism + 1),
            wealth=rng.integers("wealth", START[0], START[1] + 1),
            sugar=self.most.clone(),
        )

    def step(self, now: Gatherers, rng: dz.rng.Rng) -> Gatherers:
        """Growth, moves, harvest, hunger."""
        sugar = (now.sugar + self.growth).clamp(max=self.most)
        rng.on("cells", self.grid.num_cells).record("grown", sugar - now.sugar)
        cell, waits = now.cell, now.alive
        for look in range(self.looks):
            free = self.grid.occupants(cell, now.alive) == 0
            turn = rng["look", look]
            best = self.grid.best_visible(sugar, cell, turn, vision=now.vision, most=self.vision, where=free)
            after = self.grid.settle(cell, torch.where(waits != 0, best, -1), turn, alive=now.alive)
            cell, waits = after, waits * (after != best)
        gathered = rng.record("gathered", self.grid.at(sugar, cell) * now.alive)
        eaten = rng.record("eaten", torch.minimum(now.wealth + gathered, now.metabolism) * now.alive)
        wealth = now.wealth + gathered - eaten
        return now.replace(
            cell=cell,
            alive=now.alive * (wealth > 0),
            wealth=wealth,
            sugar=sugar - self.grid.per_cell(cell, gathered, now.alive),
        )

    @dz.series
    def population(self, now: Gatherers) -> Tensor:
        """Who is alive after the step."""
        return now.alive.sum()

    @dz.series
    def wealth(self, now: Gatherers) -> Tensor:
        """Sugar that the gatherers have."""
        return now.wealth.sum()

    @dz.series
    def sugar(self, now: Gatherers) -> Tensor:
        """Sugar on the cells."""
        return now.sugar.sum()

    @dz.series
    def grown(self, events: dz.rng.Events) -> Tensor:
        """Sugar that grew in the step."""
        return events["grown"].sum()

    @dz.series
    def gathered(self, events: dz.rng.Events) -> Tensor:
        """Sugar that was taken from the cells."""
        return events["gathered"].sum()

    @dz.series
    def eaten(self, events: dz.rng.Events) -> Tensor:
        """Sugar that was eaten."""
        return events["eaten"].sum()

    def draw(self, now: Gatherers) -> Tensor:
        """Gatherers red on the sugar that the cells bear."""
        hills = [(self.most >= level, colour) for level, colour in enumerate(YELLOWS)]
        planes = [*hills, (self.grid.occupants(now.cell, now.alive), RED)]
        return tiles([(plane.reshape(self.grid.shape), colour) for plane, colour in planes], 5)
