"""Ants that forage: who has found food leaves a scent on the way home, and others follow it."""

import torch
from torch import Tensor

import denizen as dz
from denizen.model import whole
from denizen.space import Grid, pairing
from denizen.zoo._contacts import check_whole
from denizen.zoo._picture import BLUE, GREEN, INK, PAPER, RED, tiles

NEST = 2.5  # cells from its middle to its rim
FAINT = 0.05  # scent that nobody smells
MOST = 4096.0  # scent that a cell holds
TRAIL = ((215, 215, 232), (180, 180, 212), (140, 140, 188))  # of a picture, by strength of the scent


class Colony(dz.State):
    """Where ants are, which of eight ways they head and who carries food; food and scent on the cells."""

    cell: Tensor = dz.count("agents")
    heading: Tensor = dz.count("agents", max=7)
    carries: Tensor = dz.mask("agents")
    food: Tensor = dz.count("cells")
    scent: Tensor = dz.real("cells", max=2 * MOST)
    brought: Tensor = dz.count()


class Ants(dz.Model):
    """An ant goes to one of the three cells ahead of it: towards the nest with food, else where the scent is strongest.

    Attributes:
        grid: cells, closed; any number of ants fits into one.
        far: of each cell, distance from the nest in cells, `[cells]`.
        larder: portions of food on each cell at the start, `[cells]`.
        compass: (rows, columns) of a step in each of the eight ways, clockwise, `[8, 2]`.
    """

    grid: Grid
    far: Tensor
    larder: Tensor
    compass: Tensor
    drop: Tensor = dz.param(60.0, low=0.0, learnable=False, about="scent that an ant with food leaves in a step")
    evaporation: Tensor = dz.param(0.1, low=0.0, high=1.0, learnable=False, about="share of the scent lost in a step")
    diffusion: Tensor = dz.param(0.5, low=0.0, high=1.0, learnable=False, about="share that goes to cells around")
    wander: Tensor = dz.param(0.1, low=0.0, high=1.0, learnable=False, about="probability not to follow the scent")
    num_agents: int = 125

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("ants", "num_agents", self.num_agents, 1)

    def fits(self, dt: float) -> None:
        """Refuse every length of a step but 1: a step is what happens in it."""
        check_whole("ants", dt, "an ant goes a cell in each step")

    def init(self, rng: dz.rng.Rng) -> Colony:
        """Everybody in the middle of the nest, heading anywhere."""
        heading = rng.integers("heading", 0, 8)
        middle = torch.full_like(heading, self.grid.num_cells // 2)
        return Colony(
            cell=middle,
            heading=heading,
            carries=torch.zeros_like(heading, dtype=torch.int8),
            food=self.larder.clone(),
            scent=torch.zeros_like(self.far),
            brought=torch.zeros_like(heading[0]),
        )

    def step(self, now: Colony, rng: dz.rng.Rng) -> Colony:
        """Scent spreads, ants walk, pick up food or bring it home, and leave scent."""
        scent = self.grid.diffuse(now.scent, self.diffusion / len(self.grid.offsets), max=MOST) * (1 - self.evaporation)
        cell, heading = self.walk(now, scent, rng)
        home = self.grid.at(self.far, cell) < NEST
        there = torch.where(
            (now.food > 0) & (self.far >= NEST), torch.arange(self.grid.num_cells, device=cell.device), -1
        )
        meal, _ = pairing(rng, "find", self.grid.num_cells, agents=torch.where(now.carries == 0, cell, -1), cells=there)
        finds, brings = meal >= 0, (now.carries != 0) & home
        carries = now.carries + finds.to(torch.int8) - brings.to(torch.int8)
        loaded = self.grid.occupants(cell, carries)
        return now.replace(
            cell=cell,
            heading=torch.where(finds | brings, (heading + 4) % 8, heading),
            carries=carries,
            food=now.food - self.grid.occupants(cell, finds),
            scent=(scent + self.drop * loaded).clamp(max=MOST),
            brought=now.brought + brings.sum(),
        )

    def walk(self, now: Colony, scent: Tensor, rng: dz.rng.Rng) -> tuple[Tensor, Tensor]:
        """Where each ant goes, and its heading there; who has a wall ahead turns round."""
        ways = (now.heading[:, None] + torch.arange(-1, 2, device=now.heading.device)) % 8
        row, column = self.grid.coordinates(now.cell.to(torch.int64)[:, None])
        ahead = self.grid.cell(row + self.compass[ways, 0], column + self.compass[ways, 1])
        smelt, far = self.grid.at(scent, ahead, outside=-1), self.grid.at(self.far, ahead, outside=torch.inf)
        any_way = rng.integers("way", 0, 3)
        led = (smelt.amax(1) > FAINT) & (rng.bernoulli("wander", self.wander) == 0)
        search = torch.where(led, smelt.argmax(1), any_way)
        chosen = torch.where(now.carries != 0, far.argmin(1), search)[:, None]
        cell, way = ahead.gather(1, chosen)[:, 0], ways.gather(1, chosen)[:, 0]
        return torch.where(cell >= 0, cell, now.cell), torch.where(cell >= 0, way, (now.heading + 4) % 8)

    @dz.series
    def food(self, now: Colony) -> Tensor:
        """Portions that still lie outside."""
        return now.food.sum()

    @dz.series
    def carried(self, now: Colony) -> Tensor:
        """Portions on the way home."""
        return now.carries.sum()

    @dz.series
    def brought(self, now: Colony) -> Tensor:
        """Portions that have been brought home."""
        return now.brought

    @dz.series
    def scent(self, now: Colony) -> Tensor:
        """Scent on all cells."""
        return now.scent.sum()

    def draw(self, now: Colony) -> Tensor:
        """Ants red, those with food dark, on scent, food and the nest."""
        trails = [(now.scent > least, colour) for least, colour in zip((1, 10, 60), TRAIL, strict=True)]
        ants = [(self.grid.occupants(now.cell, who), colour) for who, colour in ((None, RED), (now.carries, INK))]
        planes = [*trails, (now.food, GREEN), (self.far < NEST, BLUE), *ants]
        return tiles([(plane.reshape(self.grid.shape), colour) for plane, colour in planes], 4, PAPER)
