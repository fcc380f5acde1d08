"""Wolves eat sheep, sheep eat grass, and grass grows again: three kinds of things with numbers that change."""

import torch
from torch import Tensor

import denizen as dz
from denizen.model import alive, births, deaths, in_order, whole
from denizen.space import Grid, pairing
from denizen.zoo._contacts import check_whole


class Meadow(dz.State):
    """Who is where, with how much energy, and how long each cell's grass still grows."""

    sheep: Tensor = alive("sheep")
    sheep_cell: Tensor = dz.count("sheep")
    sheep_energy: Tensor = dz.real("sheep")
    wolves: Tensor = alive("wolves")
    wolf_cell: Tensor = dz.count("wolves")
    wolf_energy: Tensor = dz.real("wolves")
    growing: Tensor = dz.count("cells")


class WolfSheep(dz.Model):
    """Sheep graze, then wolves hunt, then grass grows.

    Each animal goes to one of the eight cells around, which costs 1; eats, if there is something and it is the one who
    gets it; dies with less than nothing; and bears a child, which takes half of what it has.
    """

    grid: Grid
    sheep_birth: Tensor = dz.param(0.2, low=0.0, high=1.0, learnable=False, about="probability of a lamb, a step")
    wolf_birth: Tensor = dz.param(0.1, low=0.0, high=1.0, learnable=False, about="probability of a pup, a step")
    sheep_gain: Tensor = dz.param(5.0, low=0.0, learnable=False, about="energy of a cell's grass")
    wolf_gain: Tensor = dz.param(13.0, low=0.0, learnable=False, about="energy of a sheep")
    num_sheep: int = 60
    num_wolves: int = 40
    sheep_room: int = 625
    wolf_room: int = 625
    regrow_steps: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("WolfSheep", "num_sheep", self.num_sheep, 0)
        whole("WolfSheep", "num_wolves", self.num_wolves, 0)
        whole("WolfSheep", "sheep_room", self.sheep_room, max(self.num_sheep, 1))
        whole("WolfSheep", "wolf_room", self.wolf_room, max(self.num_wolves, 1))
        whole("WolfSheep", "regrow_steps", self.regrow_steps, 1, 30_000)

    def fits(self, dt: float) -> None:
        """Refuse every length of a step but 1: a step is what happens in it."""
        check_whole("wolf_sheep", dt, "animals go a cell and eat once in each step")

    step = in_order("graze", "hunt", "grow")

    @property
    def num_agents(self) -> int:
        """Animals at the start."""
        return self.num_sheep + self.num_wolves

    def init(self, rng: dz.rng.Rng) -> Meadow:
        """Animals anywhere with up to twice what a meal gives; half of the grass is grown."""
        sheep, wolves = rng.on("sheep", self.sheep_room), rng.on("wolves", self.wolf_room)
        cells = rng.on("cells", self.grid.num_cells)
        return Meadow(
            sheep=(torch.arange(self.sheep_room) < self.num_sheep).to(torch.int8),
            sheep_cell=sheep.integers("cell", 0, self.grid.num_cells),
            sheep_energy=sheep.uniform("energy", 0.0, 2 * self.sheep_gain),
            wolves=(torch.arange(self.wolf_room) < self.num_wolves).to(torch.int8),
            wolf_cell=wolves.integers("cell", 0, self.grid.num_cells),
            wolf_energy=wolves.uniform("energy", 0.0, 2 * self.wolf_gain),
            growing=cells.bernoulli("grown", 0.5) * cells.integers("growing", 1, self.regrow_steps + 1),
        )

    def graze(self, now: Meadow, rng: dz.rng.Rng) -> Meadow:
        """Sheep move; one of those in a cell eats its grass."""
        sheep = rng.on("sheep")
        cell = self.grid.random_neighbour(now.sheep_cell, sheep, who=now.sheep)
        grass = torch.where(now.growing == 0, torch.arange(self.grid.num_cells, device=cell.device), -1)
        where = torch.where(now.sheep != 0, cell, -1)
        meal, eater = pairing(rng, "graze", self.grid.num_cells, sheep=where, cells=grass)
        eats, eaten = (meal >= 0).to(torch.int8), eater >= 0
        sheep.record("ate", eats)
        energy = now.sheep_energy - 1 + self.sheep_gain * eats
        now = now.replace(growing=torch.where(eaten, self.regrow_steps + 1, now.growing))
        starved = sheep.record("starved", now.sheep * (energy < 0))
        sheep.record("held", energy * starved)
        bears = (now.sheep - starved) * sheep.bernoulli("bear", self.sheep_birth, where=now.sheep)
        energy = torch.where(bears != 0, energy / 2, energy)
        now = deaths(now.replace(sheep_cell=cell, sheep_energy=energy), starved, "sheep")
        sheep.record("born", bears)
        return births(now, rng, bears, "sheep", sheep_cell=now.sheep_cell, sheep_energy=now.sheep_energy)

    def hunt(self, now: Meadow, rng: dz.rng.Rng) -> Meadow:
        """Wolves move; each eats a sheep of its cell, where one is left for it."""
        wolves = rng.on("wolves")
        cell = self.grid.random_neighbour(now.wolf_cell, wolves, who=now.wolves)
        where = torch.where(now.wolves != 0, cell, -1)
        prey = torch.where(now.sheep != 0, now.sheep_cell, -1)
        meal, hunter = pairing(rng, "hunt", self.grid.num_cells, wolves=where, sheep=prey)
        eats, eaten = (meal >= 0).to(torch.int8), (hunter >= 0).to(torch.int8)
        rng.on("sheep").record("eaten", eaten)
        rng.on("sheep").record("prey_held", now.sheep_energy * eaten)
        energy = now.wolf_energy - 1 + self.wolf_gain * eats
        starved = wolves.record("starved", now.wolves * (energy < 0))
        wolves.record("held", energy * starved)
        bears = (now.wolves - starved) * wolves.bernoulli("bear", self.wolf_birth, where=now.wolves)
        energy = torch.where(bears != 0, energy / 2, energy)
        now = deaths(deaths(now, eaten, "sheep").replace(wolf_cell=cell, wolf_energy=energy), starved, "wolves")
        wolves.record("born", bears)
        return births(now, rng, bears, "wolves", wolf_cell=now.wolf_cell, wolf_energy=now.wolf_energy)

    def grow(self, now: Meadow, rng: dz.rng.Rng) -> Meadow:
        """Grass grows."""
        return now.replace(growing=(now.growing - 1).clamp(min=0))

    @dz.series
    def sheep(self, now: Meadow) -> Tensor:
        """Sheep at the end of the step."""
        return now.sheep.sum()

    @dz.series
    def wolves(self, now: Meadow) -> Tensor:
        """Wolves at the end of the step."""
        return now.wolves.sum()

    @dz.series
    def grass(self, now: Meadow) -> Tensor:
        """Cells whose grass is grown."""
        return (now.growing == 0).sum()

    @dz.series
    def grazed(self, events: dz.rng.Events) -> Tensor:
        """Cells whose grass was eaten in the step."""
        return events["graze/ate"].sum()

    @dz.series
    def hunted(self, events: dz.rng.Events) -> Tensor:
        """Sheep eaten in the step."""
        return events["hunt/eaten"].sum()
