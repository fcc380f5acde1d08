"""Circles: points that push those near them away and pull those farther off, until they settle on rings and shells."""

import math

import torch
from torch import Tensor

import denizen as dz
from denizen.model import number, whole
from denizen.zoo._contacts import check_whole
from denizen.zoo._picture import BLUE, Sketch


class Dots(dz.State):
    """Where points are, and how far each moved last."""

    position: Tensor = dz.real("agents", "dims")
    drift: Tensor = dz.real("agents")


def force(offset: Tensor, distance: Tensor, inverse_radius: Tensor) -> tuple[Tensor, float]:
    """Of one neighbour: away from it within half the radius, towards it beyond; and that it is one."""
    strength = -torch.sin(2 * math.pi * inverse_radius * distance) / distance
    return torch.where(distance > 0, strength * offset, torch.zeros_like(offset)), 1.0


class Circles(dz.Model):
    """FLAME GPU's benchmark model: each point moves by `push` times the mean force of those within `radius`."""

    space: dz.space.Space
    push: Tensor = dz.param(0.05, low=0.0, about="distance moved by a force of one")
    num_agents: int = 1_000
    radius: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("circles", "num_agents", self.num_agents, 1)
        number("circles", "radius", self.radius, above=0)

    def fits(self, dt: float) -> None:
        """Refuse every length of a step but 1: a step is what happens in it."""
        check_whole("circles", dt, "circles push each other once in a step")

    def init(self, rng: dz.rng.Rng) -> Dots:
        """Everywhere."""
        position = self.space.random(rng, "place")
        return Dots(position=position, drift=torch.zeros_like(position[:, 0]))

    def step(self, now: Dots, rng: dz.rng.Rng) -> Dots:
        """Feel, move, stay inside."""
        near = self.space.near(now.position, self.radius, rng)
        pull, num = near.reduce(force, torch.full_like(self.push, 1 / self.radius))
        move = self.push * pull / num.clamp(min=1.0)[:, None]
        drift = torch.linalg.vector_norm(move, dim=1)
        return now.replace(position=self.space.clamp(now.position + move), drift=drift)

    @dz.series
    def drift(self, now: Dots) -> Tensor:
        """Mean distance moved in the step: falls towards 0 as points settle."""
        return now.drift.mean()

    def draw(self, now: Dots) -> Tensor:
        """The box from above; of three dimensions, a slice through the middle."""
        side = self.space.size[0]
        sketch = Sketch(160, 160, (0.0, 0.0), (side, side))
        for here in now.position.tolist():
            if len(here) == 3 and abs(here[2] - side / 2) > 1:
                continue
            sketch.disc([*here, side / 2][:2], 0.01 * side, BLUE)
        return sketch.pixels
