"""Boids: birds that stay together, keep their distance and fly the way their neighbours do."""

import torch
from torch import Tensor

import denizen as dz
from denizen.model import number, whole
from denizen.zoo._contacts import check_whole
from denizen.zoo._picture import RED, Sketch


class Birds(dz.State):
    """Where birds are and where they head."""

    position: Tensor = dz.real("agents", "dims")
    heading: Tensor = dz.real("agents", "dims")


def seen(offset: Tensor, distance: Tensor, heading: Tensor, separation: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
    """Of one neighbour: where it is, the same if it is too close, where it heads, and that it is one."""
    return offset, torch.where(distance < separation, offset, 0.0), heading, 1.0


class Boids(dz.Model):
    """Reynolds' rules as in Mesa and in ABMFrameworksComparison, all birds at once.

    A bird turns by the mean over those within `radius` of `cohere` · the way to them, less `separate` · the way to
    those closer than `separation`, plus `match` · their heading; then it flies `speed` on.
    """

    space: dz.space.Space
    cohere: Tensor = dz.param(0.03, low=0.0, about="pull towards neighbours")
    separate: Tensor = dz.param(0.015, low=0.0, about="push away from those too close")
    match: Tensor = dz.param(0.05, low=0.0, about="pull towards the heading of neighbours")
    separation: Tensor = dz.param(1.0, low=0.0, learnable=False, about="distance that is too close")
    speed: Tensor = dz.param(1.0, low=0.0, about="distance flown in a step")
    num_agents: int = 400
    radius: float = 15.0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("boids", "num_agents", self.num_agents, 1)
        number("boids", "radius", self.radius, above=0)

    def fits(self, dt: float) -> None:
        """Refuse every length of a step but 1: a step is what happens in it."""
        check_whole("boids", dt, "speeds and turns are those of a step")

    def init(self, rng: dz.rng.Rng) -> Birds:
        """Everywhere, in all directions."""
        aim = torch.stack([rng["heading"].normal(f"axis {axis}") for axis in range(self.space.dims)], dim=1)
        return Birds(position=self.space.random(rng, "place"), heading=unit(aim))

    def step(self, now: Birds, rng: dz.rng.Rng) -> Birds:
        """Look around, turn, fly."""
        near = self.space.near(now.position, self.radius, rng)
        away, close, course, num = near.reduce(seen, now.heading, self.separation)
        turn = self.cohere * away - self.separate * close + self.match * course
        heading = unit(now.heading + turn / num.clamp(min=1.0)[:, None])
        return now.replace(position=self.space.move(now.position, self.speed * heading), heading=heading)

    @dz.series
    def order(self, now: Birds) -> Tensor:
        """Length of the mean heading: 1 where all fly one way, about 0.89 / sqrt(birds) where nobody does."""
        return torch.linalg.vector_norm(torch.stack([axis.mean() for axis in now.heading.unbind(dim=1)]))

    def draw(self, now: Birds) -> Tensor:
        """The square from above, each bird a dash with its head in front."""
        side = self.space.size[0]
        sketch = Sketch(160, 160, (0.0, 0.0), (side, side))
        for here, aim in zip(now.position.tolist(), now.heading.tolist(), strict=True):
            tail = [x - 0.015 * side * way for x, way in zip(here, aim, strict=True)]
            sketch.line(tail[:2], here[:2], 0.008 * side)
            sketch.disc(here[:2], 0.008 * side, RED)
        return sketch.pixels


def unit(vector: Tensor) -> Tensor:
    """Vectors of length one; those of length 0 stay."""
    length = torch.linalg.vector_norm(vector, dim=1, keepdim=True)
    return vector / torch.where(length > 0, length, 1.0)
