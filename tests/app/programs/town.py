"""A file as a user writes it: models and worlds, with and without words about them."""

from typing import Literal

import torch
from torch import Tensor

import denizen as dz


class People(dz.State):
    ill: Tensor = dz.mask("agents")


class Flu(dz.Model):
    """A flu that goes around."""

    rate: Tensor = dz.param(0.1, low=0.0, high=1.0, unit="1/day", about="chance to fall ill")
    num_agents: int = 100

    def init(self, rng):
        return People(ill=torch.zeros(self.num_agents, dtype=torch.bool))

    def step(self, now, rng):
        return now.replace(ill=now.ill | rng.bernoulli("ill", self.rate))

    @dz.series
    def sick(self, now):
        return now.ill.sum()


class Undocumented(dz.Model):
    num_agents: int = 100


class Pos(dz.State):
    x: Tensor = dz.real()


class Walk(dz.Env):
    """Walk to the right.

    Attributes:
        size: where the walk ends.
        low: smallest x.
    """

    gain: Tensor = dz.param(1.0, low=0.0, high=4.0)
    size: int = 5
    low: float = -1.0
    hard: bool = False
    way: Literal["a", "b"] = "a"
    name: str = "n"
    widths: tuple[int, ...] = (1, 2)
    action_space = dz.rl.Discrete(2)
    observation_space = dz.rl.Box(-10.0, 10.0, (1,))
    time_limit = 20

    def init(self, rng):
        return Pos(x=torch.zeros(()))

    def step(self, now, action, rng):
        return now.replace(x=now.x + action * 2.0 - 1)

    def observe(self, now):
        return now.x[None]

    def reward(self, before, action, now):
        return now.x - before.x

    def terminated(self, now):
        return now.x > self.size


walk = Walk(size=7)


def make(size: int = 3, **rest) -> Walk:
    """Builds one."""
    return Walk(size=size, **rest)
