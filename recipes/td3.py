"""TD3 in one file: copy it, read it, change it. `python recipes/td3.py` swings a pendulum up in some minutes.

The worlds and the random numbers are denizen's; everything that learns is here, in plain torch, and learns what
`dz.train(env, dz.rl.deterministic_mlp(env), dz.rl.TD3(...))` learns, by test. What the library adds: one captured
graph for an update, looks that are stored once, returns over several steps, worlds that wait, schedules, run folders
and resume.
"""

import argparse
import copy
import dataclasses
import itertools
import time

import torch
from torch import Tensor, nn

import denizen as dz
from denizen.zoo.pendulum import Pendulum


@dataclasses.dataclass(frozen=True)
class Settings:
    """Those of the library, but for the learning rate and the discount, which suit Pendulum."""

    num_envs: int = 8
    num_steps: int = 4
    gradient_steps: int = 32
    batch_size: int = 256
    buffer_size: int = 100_000
    learning_starts: int = 1_000
    gamma: float = 0.98
    learning_rate: float = 1e-3
    tau: float = 0.005
    policy_delay: int = 2
    exploration_noise: float = 0.1
    target_noise: float = 0.2
    noise_clip: float = 0.5


def layers(*widths: int) -> nn.Sequential:
    """Linear layers with ReLU between."""
    made = [layer for pair in itertools.pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*made[:-1])


class Critics(nn.Module):
    """Two judges of actions, which are scaled to -1 … 1."""

    def __init__(self, observations: int, actions: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.one, self.two = (layers(observations + actions, *hidden, 1) for _ in range(2))

    def forward(self, observation: Tensor, share: Tensor) -> Tensor:
        """Values `[2, rows]`."""
        given = torch.cat([observation, share], -1)
        return torch.stack([self.one(given), self.two(given)]).squeeze(-1)


class Actor(nn.Module):
    """Gives one action."""

    def __init__(self, observations: int, actions: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = layers(observations, *hidden, actions)

    def forward(self, observation: Tensor) -> Tensor:
        """Shares of the range, `[rows, actions]` from -1 to 1."""
        return torch.tanh(self.layers(observation))


def normal(uniform: Tensor) -> Tensor:
    """Standard normal numbers."""
    return torch.special.ndtri(uniform.double()).float()


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
    """Actor, critics, and what makes them better."""

    def __init__(self, actor: Actor, critics: Critics, settings: Settings) -> None:
        self.actor, self.critics, self.settings, self.learnt = actor, critics, settings, 0
        self.target_actor, self.target = copy.deepcopy(actor), copy.deepcopy(critics)
        parts = (actor.parameters(), critics.parameters())
        self.actor_adam, self.critic_adam = (torch.optim.Adam(part, lr=settings.learning_rate) for part in parts)

    def learn(self, batch: dict[str, Tensor], uniform: Tensor) -> None:
        """One step of the critics, and every second time of the actor, by a minibatch and uniform numbers."""
        settings = self.settings
        with torch.no_grad():
            noise = (settings.target_noise * normal(uniform)).clamp(-settings.noise_clip, settings.noise_clip)
            share = (self.target_actor(batch["following"]) + noise).clamp(-1, 1)
            aim = batch["reward"] + settings.gamma * ~batch["dead"] * self.target(batch["following"], share).amin(0)
        step(self.critic_adam, (self.critics(batch["observation"], batch["share"]) - aim).square().mean(1).sum())
        self.learnt += 1
        if self.learnt % settings.policy_delay:
            return
        step(self.actor_adam, -self.critics(batch["observation"], self.actor(batch["observation"]))[0].mean())
        with torch.no_grad():
            for follower, leader in ((self.target_actor, self.actor), (self.target, self.critics)):
                for own, its in zip(follower.parameters(), leader.parameters(), strict=True):
                    own.lerp_(its, settings.tau)


def step(adam: torch.optim.Optimizer, loss: Tensor) -> None:
    adam.zero_grad()
    loss.backward()
    adam.step()


def train(
    actor: Actor, critics: Critics, env: dz.Env, settings: Settings, total_steps: int, seed: int, say: bool = True
) -> Learner:
    """The whole of it."""
    size, envs = env.action_space.shape[0], settings.num_envs
    low, high = env.action_space.spans(torch.device("cpu"))
    learner, replay = Learner(actor, critics, settings), Replay(settings.buffer_size // envs * envs)
    worlds = dz.rl.Worlds(env, envs, seed=seed, device="cpu")
    acts = dz.rl.Draws(seed, torch.arange(envs))
    draws = dz.rl.Draws(seed, torch.arange(settings.batch_size))
    look, clock, began, paid = worlds.reset().observation, 0, time.perf_counter(), 0.0
    for update in range(-(-total_steps // (envs * settings.num_steps))):
        for _ in range(settings.num_steps):
            uniform = acts.uniform("action", torch.tensor(clock), size)
            with torch.no_grad():
                chosen = (actor(look) + settings.exploration_noise * normal(uniform)).clamp(-1, 1)
            share = 2 * uniform - 1 if clock * envs < settings.learning_starts else chosen
            happened = worlds.step((low + high) / 2 + (high - low) / 2 * share)
            # What was seen last of a life that is over is not what is seen now.
            following = happened.observed.observation.index_copy(0, happened.final_index, happened.final.observation)
            replay.add(
                observation=look, share=share, reward=happened.reward, dead=happened.terminated, following=following
            )
            look, clock, paid = happened.observed.observation, clock + 1, paid + float(happened.reward.mean())
        if clock * envs < settings.learning_starts:
            continue
        gradients = settings.gradient_steps
        words = draws.words("replay", torch.tensor(update), gradients)
        noise = draws.uniform("replayed", torch.tensor(update), gradients * size).split(size, -1)
        for number in range(gradients):
            learner.learn(replay.sample(words[:, number]), noise[number])
        if say and (update + 1) % 50 == 0:
            speed = clock * envs / (time.perf_counter() - began)
            mean = paid / (50 * settings.num_steps)
            print(f"{clock * envs:>9,} steps  reward {mean:6.2f} a step  {speed:,.0f} steps/s")
            paid = 0.0
    worlds.check()
    return learner


def main() -> None:
    parser = argparse.ArgumentParser(description="TD3 on Pendulum, in one file")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    env = Pendulum()
    sizes = env.observation_space.shape[0], env.action_space.shape[0], (256, 256)
    train(Actor(*sizes), Critics(*sizes), env, Settings(), given.steps, given.seed)


if __name__ == "__main__":
    main()
