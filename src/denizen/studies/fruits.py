"""Simple agents for the fruit catcher, and the best score in hindsight."""

import torch
from torch import Tensor

from denizen.errors import InputError
from denizen.rl import Draws, Observed, Worlds
from denizen.rng import EVALUATION_SEED
from denizen.zoo.fruits.model import Fruits


class Chase:
    """Goes below the lowest fruit."""

    def __init__(self, env: Fruits) -> None:
        """Args:
        env: whose observations it takes.
        """
        self._env = env

    def seen(self, observed: Observed) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(sprite `[worlds]`, x `[worlds, slots]`, y, active bool) from an observation."""
        env, seen = self._env, observed.observation
        sprite, slots = seen[:, 0], seen[:, 1 : 1 + 3 * env.max_fruits].unflatten(1, (env.max_fruits, 3))
        x, y, active = slots.unbind(-1)
        if not env.raw:
            sprite, x = (sprite + 1) * (env.width - 1) / 2, (x + 1) * (env.width - 1) / 2
            y = (y + 1) * (env.height - 1) / 2
        return sprite.round().long(), x.round().long(), y.round().long(), active > 0

    def act(self, observed: Observed, uniform: Tensor) -> Tensor:
        """Int64 `[worlds]`; `uniform` is not used."""
        sprite, x, y, active = self.seen(observed)
        lowest = torch.where(active, y, -1).argmax(1, keepdim=True)
        target = torch.where(active.any(1), x.gather(1, lowest)[:, 0], sprite)
        return (target - sprite).sign() + 1


class Lookahead(Chase):
    """Goes for the lowest fruit that it can reach, and catches it with the edge that is nearest to the next fruit.

    The next one is the lowest of those above it.
    """

    def act(self, observed: Observed, uniform: Tensor) -> Tensor:
        """Int64 `[worlds]`; `uniform` is not used."""
        env, half = self._env, self._env.half
        sprite, x, y, active = self.seen(observed)
        moves = env.height - 1 - y
        reachable = active & ((x - sprite[:, None]).abs() - half <= moves)
        lowest = torch.where(reachable, y, -1).argmax(1, keepdim=True)
        target = x.gather(1, lowest)
        above = torch.where(active & (y < y.gather(1, lowest)), y, -1)
        following = x.gather(1, above.argmax(1, keepdim=True))
        following = torch.where((above >= 0).any(1, keepdim=True), following, target)
        aim = torch.minimum(torch.maximum(following, target - half), target + half)[:, 0].clamp(0, env.width - 1)
        return torch.where(reachable.any(1), (aim - sprite).sign(), 0) + 1


class Guess:
    """Takes every action with the same probability."""

    def act(self, observed: Observed, uniform: Tensor) -> Tensor:
        """Int64 `[worlds]`."""
        return (uniform[:, 0] * 3).long().clamp(max=2)


@torch.no_grad()
def scores(env: Fruits, agent: Chase | Guess, *, num_envs: int = 1024, seed: int = 0) -> Tensor:
    """Scores of one life in each world: float32 `[worlds]`, on the CPU.

    Args:
        env: with `max_steps`.
        agent: without a memory.
        num_envs: worlds.
        seed: of the worlds; the same fruits fall for every agent.
    """
    steps = _steps(env)
    worlds = Worlds(env, num_envs, seed=seed + EVALUATION_SEED, device="cpu", max_resets=num_envs)
    draws = Draws(seed + EVALUATION_SEED, torch.arange(num_envs))
    observed, total, over = worlds.reset(), torch.zeros(num_envs), torch.zeros(num_envs, dtype=torch.bool)
    for t in range(steps):
        step = worlds.step(agent.act(observed, draws.uniform("action", torch.tensor(t), 1)))
        total += torch.where(over, 0.0, step.flows["caught"] - step.flows["missed"])
        observed, over = step.observed, over | step.ended
    return total


@torch.no_grad()
def hindsight(env: Fruits, *, num_envs: int = 1024, seed: int = 0) -> Tensor:
    """The best scores that were possible in the worlds of `scores`: float32 `[worlds]`.

    What falls does not depend on the sprite, so the best play of a known schedule is a walk through columns: with
    V the value of a column from a step on, V_t(x) = max over moves of c_t(x') + V_{t+1}(x'), x' the column reached and
    c_t the fruits that land there less those that land elsewhere.

    Args:
        env: with `max_steps`, without thresholds.
        num_envs: worlds.
        seed: of the worlds.
    """
    steps = _steps(env)
    if env.stop_at_thresholds:
        raise InputError("hindsight: stop_at_thresholds=True, expected a life of a fixed length")
    worlds = Worlds(env, num_envs, seed=seed + EVALUATION_SEED, device="cpu", max_resets=num_envs)
    worlds.reset()
    start, columns = worlds.state().sprite.long(), torch.arange(env.width)
    worth = []
    for _ in range(steps):
        now = worlds.state()
        lands = (now.active != 0) & (now.y == env.height - 2)
        near = (now.x[..., None] - columns).abs() <= env.half
        worth.append((lands[..., None] * torch.where(near, 1.0, -1.0)).sum(1))
        worlds.step(torch.ones(num_envs, dtype=torch.int64))
    value = torch.zeros(num_envs, env.width)
    for gain in reversed(worth):
        there = torch.nn.functional.pad(gain + value, (1, 1), value=-torch.inf)
        value = torch.stack([there[:, :-2], there[:, 1:-1], there[:, 2:]]).amax(0)
    return value.gather(1, start[:, None])[:, 0]


def _steps(env: Fruits) -> int:
    if env.max_steps is None:
        raise InputError("this needs a life that ends: give max_steps")
    return env.max_steps
