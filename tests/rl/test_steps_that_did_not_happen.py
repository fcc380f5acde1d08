"""Checks on draws of steps that an environment around another computes and throws away count for nothing."""

from typing import Any

import pytest
import torch

import denizen as dz
from denizen.errors import ModelError

rl = dz.rl


class Count(dz.State):
    """Steps so far, and whose move it is."""

    steps: torch.Tensor = dz.count()
    turn: torch.Tensor = dz.count()


def drawn(now: Any, rng: Any, most: float) -> torch.Tensor:
    """A draw by a probability that is one as long as fewer than `most` steps were taken."""
    return rng.on("draws", 1).bernoulli("draw", ((now.steps + 1) / most).reshape(1))[0]


class Three(dz.Env):
    """A life of three steps."""

    most: float = 3.0
    action_space = rl.Discrete(2)
    observation_space = rl.Box(-torch.inf, torch.inf, (1,))

    def init(self, rng: Any) -> Count:
        nothing = torch.zeros((), dtype=torch.int32)
        return Count(steps=nothing, turn=nothing)

    def step(self, now: Any, action: Any, rng: Any) -> Count:
        return now.replace(steps=now.steps + 1 + 0 * drawn(now, rng, self.most))

    def observe(self, now: Any) -> torch.Tensor:
        return now.steps[None].to(torch.float32)

    def reward(self, before: Any, action: Any, now: Any) -> torch.Tensor:
        return torch.ones(())

    def terminated(self, now: Any) -> torch.Tensor:
        return now.steps >= 3


class Turns(rl.Game):
    """A game of three moves by turns."""

    most: float = 3.0
    action_space = rl.Discrete(2)
    observation_space = rl.Box(-torch.inf, torch.inf, (1,))
    init, observe, terminated = Three.init, Three.observe, Three.terminated

    def step(self, now: Any, action: Any, rng: Any) -> Count:
        return now.replace(steps=now.steps + 1 + 0 * drawn(now, rng, self.most), turn=1 - now.turn)

    def player(self, now: Any) -> torch.Tensor:
        return now.turn

    def payoff(self, before: Any, now: Any) -> torch.Tensor:
        return torch.zeros(2)


def stepped(env: dz.Env, max_resets: int | None) -> rl.Worlds:
    worlds = rl.Worlds(env, 4, device="cpu", max_resets=max_resets)
    worlds.reset()
    for _ in range(4):
        worlds.step(torch.zeros(4, dtype=torch.int64))
    return worlds


@pytest.mark.parametrize("max_resets", [None, 1])
@pytest.mark.parametrize("around", [lambda most: rl.ActionRepeat(Three(most), 2), lambda most: rl.Against(Turns(most))])
def test_only_what_happened_is_checked(around: Any, max_resets: int | None) -> None:
    stepped(around(3.0), max_resets).check()
    with pytest.raises(ModelError, match="'draw'"):
        stepped(around(2.5), max_resets).check()  # the third step happens
