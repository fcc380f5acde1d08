"""DQN in one file: copy it, read it, change it. `python recipes/dqn.py` balances CartPole in a minute.

The worlds and the random numbers are denizen's; everything that learns is here, in plain torch, and learns what
`dz.train(env, dz.rl.q_mlp(env), dz.rl.DQN(...))` learns, by test. What the library adds: one captured graph for an
update, looks that are stored once, returns over several steps, masks, schedules, run folders and resume.
"""

import argparse
import copy
import dataclasses
import itertools
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import denizen as dz
from denizen.zoo.cartpole import CartPole


@dataclasses.dataclass(frozen=True)
class Settings:
    """Those of the library."""

    num_envs: int = 8
    num_steps: int = 4
    gradient_steps: int = 8
    batch_size: int = 128
    buffer_size: int = 100_000
    learning_starts: int = 1_000
    gamma: float = 0.99
    learning_rate: float = 5e-4
    target_every: int = 250
    epsilon: float = 0.05  # to which it falls from 1 over the first quarter
    huber: float = 1.0
    max_grad_norm: float = 10.0


def layers(*widths: int) -> nn.Sequential:
    """Linear layers with ReLU between."""
    made = [layer for pair in itertools.pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*made[:-1])


class Replay:
    """The last transitions of all worlds, in a ring."""

    def __init__(self, size: int) -> None:
        self.size, self.count, self.kept = size, 0, dict[str, Tensor]()

    def add(self, **row: Tensor) -> None:
        at = (self.count + torch.arange(len(row["reward"]))) % self.size
        for name, value in row.items():
            self.kept.setdefault(name, value.new_zeros(self.size, *value.shape[1:]))[at] = value
        self.count += len(at)

    def sample(self, words: Tensor) -> dict[str, Tensor]:
        """A transition for each word, which is uniform on 0 … 2**32 - 1."""
        filled = min(self.count, self.size)
        at = (self.count - filled + (words * filled >> 32)) % self.size
        return {name: value[at] for name, value in self.kept.items()}


class Learner:
    """A network, the copy that it aims by, and what makes it better."""

    def __init__(self, network: nn.Module, settings: Settings) -> None:
        self.network, self.settings, self.learnt = network, settings, 0
        self.target = copy.deepcopy(network)
        self.adam = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)

    def learn(self, batch: dict[str, Tensor]) -> None:
        """One step by a minibatch."""
        with torch.no_grad():  # the network says what is best later, its copy what that is worth
            best = self.network(batch["following"]).argmax(1)
            later = self.target(batch["following"]).gather(1, best[:, None])[:, 0]
            aim = batch["reward"] + self.settings.gamma * ~batch["dead"] * later
        value = self.network(batch["observation"]).gather(1, batch["action"][:, None])[:, 0]
        self.adam.zero_grad()
        F.huber_loss(value, aim, delta=self.settings.huber).backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.max_grad_norm)
        self.adam.step()
        self.learnt += 1
        if self.learnt % self.settings.target_every == 0:
            self.target.load_state_dict(self.network.state_dict())


def explored(values: Tensor, epsilon: float, uniform: Tensor) -> Tensor:
    """The best choice, or with probability epsilon any: by one uniform number `[rows, 1]` a row."""
    best = torch.zeros_like(values).scatter(1, values.argmax(1, keepdim=True), 1.0)
    edges = (epsilon / values.shape[1] + (1 - epsilon) * best).cumsum(1)
    return (edges <= uniform * edges[:, -1:]).sum(1).clamp(max=values.shape[1] - 1)


def train(
    network: nn.Module, env: dz.Env, settings: Settings, total_steps: int, seed: int, say: bool = True
) -> Learner:
    """The whole of it."""
    envs = settings.num_envs
    learner, replay = Learner(network, settings), Replay(settings.buffer_size // envs * envs)
    worlds = dz.rl.Worlds(env, envs, seed=seed, device="cpu")
    acts = dz.rl.Draws(seed, torch.arange(envs))
    draws = dz.rl.Draws(seed, torch.arange(settings.batch_size))
    look, clock, began, ends = worlds.reset().observation, 0, time.perf_counter(), 0
    updates = -(-total_steps // (envs * settings.num_steps))
    for update in range(updates):
        for _ in range(settings.num_steps):
            done = clock / (updates * settings.num_steps)
            epsilon = 1 + (settings.epsilon - 1) * min(4 * done, 1)
            epsilon = 1.0 if clock * envs < settings.learning_starts else epsilon
            with torch.no_grad():
                action = explored(network(look), epsilon, acts.uniform("action", torch.tensor(clock), 1))
            happened = worlds.step(action)
            # What was seen last of a life that is over is not what is seen now.
            following = happened.observed.observation.index_copy(0, happened.final_index, happened.final.observation)
            replay.add(
                observation=look, action=action, reward=happened.reward, dead=happened.terminated, following=following
            )
            look, clock, ends = happened.observed.observation, clock + 1, ends + int(happened.ended.sum())
        if clock * envs < settings.learning_starts:
            continue
        words = draws.words("replay", torch.tensor(update), settings.gradient_steps)
        for number in range(settings.gradient_steps):
            learner.learn(replay.sample(words[:, number]))
        if say and (update + 1) % 100 == 0:
            speed, lived = clock * envs / (time.perf_counter() - began), 100 * envs * settings.num_steps
            print(f"{clock * envs:>9,} steps  {lived / max(ends, 1):6.1f} steps a life  {speed:,.0f} steps/s")
            ends = 0
    worlds.check()
    return learner


def main() -> None:
    parser = argparse.ArgumentParser(description="DQN on CartPole, in one file")
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    env = CartPole()
    network = layers(env.observation_space.shape[0], 128, 128, env.action_space.n)
    train(network, env, Settings(), given.steps, given.seed)


if __name__ == "__main__":
    main()
