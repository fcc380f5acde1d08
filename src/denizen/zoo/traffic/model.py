"""Traffic on ring roads: the cellular automaton of Nagel and Schreckenberg."""

import torch
from torch import Tensor

import denizen as dz
from denizen.model import whole
from denizen.zoo._contacts import check_whole
from denizen.zoo._picture import GREEN, PAPER, RED, tiles


class Road(dz.State):
    """Which cells hold a car, and how many cells it has just moved."""

    car: Tensor = dz.mask("cells")
    speed: Tensor = dz.count("cells", max=127)


class Traffic(dz.Model):
    """Each car speeds up by 1, brakes for the car ahead, dawdles with probability `dawdle`, and drives; all at once.

    Every row of the grid is a ring road of its own, with the same number of cars on it.
    """

    grid: dz.space.Grid
    density: Tensor = dz.param(0.15, low=0.0, high=1.0, learnable=False, about="cars on a cell of the road")
    dawdle: Tensor = dz.param(0.3, low=0.0, high=1.0, learnable=False, about="probability to drive a cell less")
    max_speed: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("traffic", "max_speed", self.max_speed, 1, min(127, self.grid.shape[1] - 1))

    def fits(self, dt: float) -> None:
        """Refuse every length of a step but 1: a step is what happens in it."""
        check_whole("traffic", dt, "cars go whole cells in each step")

    @property
    def num_agents(self) -> int:
        """None: cars are known by the cell where they are."""
        return 0

    def init(self, rng: dz.rng.Rng) -> Road:
        """Cars at random places, at rest."""
        place = rng.on("cells", self.grid.num_cells).uniform("place").reshape(self.grid.shape)
        rank = place.argsort(dim=1, stable=True).argsort(dim=1)
        car = (rank < torch.round(self.density * self.grid.shape[1])).to(torch.int8).reshape(-1)
        return Road(car=car, speed=0 * car.to(torch.int32))

    def step(self, now: Road, rng: dz.rng.Rng) -> Road:
        """Speed up, brake, dawdle, drive."""
        free = torch.ones_like(now.car)
        gap = 0 * now.speed
        for far in range(1, self.max_speed + 1):
            free = free * (1 - self.grid.beside(now.car, (0, far)))
            gap = gap + free
        dawdles = rng.on("cells", self.grid.num_cells).bernoulli("dawdle", self.dawdle, where=now.car)
        speed = torch.minimum((now.speed + 1).clamp(max=self.max_speed), gap)
        speed = now.car * (speed - dawdles).clamp(min=0)
        car, moved = 0 * now.car, 0 * speed
        for far in range(self.max_speed + 1):
            arrives = self.grid.beside(now.car * (speed == far), (0, -far))
            car, moved = car + arrives, moved + far * arrives
        return now.replace(car=car, speed=moved)

    @dz.series
    def flow(self, now: Road) -> Tensor:
        """Cars that pass a place in a step, on average over the road."""
        return now.speed.sum() / self.grid.num_cells

    @dz.series
    def standing(self, now: Road) -> Tensor:
        """Share of the cars that stand still."""
        return (now.car * (now.speed == 0)).sum() / now.car.sum().clamp(min=1)

    def draw(self, now: Road) -> Tensor:
        """The roads one below the other: cars that drive green, those that stand red."""
        stands = now.car * (now.speed == 0)
        planes = [(plane.reshape(self.grid.shape), c) for plane, c in ((now.car, GREEN), (stands, RED))]
        return tiles(planes, max(1, 240 // self.grid.shape[1]), PAPER)
