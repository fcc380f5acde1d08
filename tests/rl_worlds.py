"""Worlds that several tests of adapters share."""

import torch

import denizen as dz


class Life(dz.State):
    """How many lives there were, and a number."""

    lives: torch.Tensor = dz.count()
    at: torch.Tensor = dz.real()


class Numbered(dz.Env):
    """Each life begins where its number says, whenever it begins; pushed beyond 3 it is over, after 6 steps cut off."""

    time_limit = 6
    action_space = dz.rl.Discrete(2)
    observation_space = dz.rl.Box(-torch.inf, torch.inf, (3,))

    def init(self, rng):
        return Life(lives=torch.zeros((), dtype=torch.int32), at=torch.zeros(()))

    def reset(self, ended, rng):
        lives = ended.lives + 1
        return Life(lives=lives, at=(lives * 0.37) % 2.0)

    def step(self, now, action, rng):
        return now.replace(at=now.at + torch.where(action == 1, 0.9, -0.2))

    def observe(self, now):
        return torch.stack([now.at, now.lives.to(torch.float32), now.time.step.to(torch.float32)])

    def reward(self, before, action, now):
        return now.at - before.at

    def terminated(self, now):
        return now.at > 3

    @dz.series
    def pushed(self, before, now):
        return now.at - before.at
