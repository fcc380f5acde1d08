"""A world."""

import torch
from torch import Tensor

import denizen as dz


class Place(dz.State):
    at: Tensor = dz.count(max=100)


class Walk(dz.Env):
    """Walk to the right."""

    size: int = 4
    num_agents = 1
    action_space = dz.rl.Discrete(2)
    observation_space = dz.rl.Box(0, 100, (1,))
    time_limit = 10

    def init(self, rng):
        return Place(at=torch.zeros((), dtype=torch.int16))

    def step(self, now, action, rng):
        return now.replace(at=(now.at + 2 * action - 1).clamp(0, self.size).to(now.at.dtype))

    def observe(self, now):
        return now.at.to(torch.float32)[None]

    def reward(self, before, action, now):
        return (now.at == self.size).to(torch.float32)

    def terminated(self, now):
        return now.at == self.size

    def draw(self, now):
        return [str(int(now.at))]
