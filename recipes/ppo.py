"""PPO in one file: copy it, read it, change it. `python recipes/ppo.py` learns CartPole in half a minute.

The worlds and the random numbers are denizen's; everything that learns is here, in plain torch, and learns what
`dz.train(env, dz.rl.mlp(env), dz.PPO(...))` learns, by test. What the library adds: one recorded or captured graph for
an iteration, memory, masks, several actors, PopArt, mixed precision, run folders and resume.
"""

import argparse
import dataclasses
import time

import torch
from torch import Tensor, nn

import denizen as dz
from denizen.zoo.cartpole import CartPole


@dataclasses.dataclass(frozen=True)
class Settings:
    """Those of CleanRL's ppo.py."""

    num_envs: int = 4
    num_steps: int = 128
    update_epochs: int = 4
    num_minibatches: int = 4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    learning_rate: float = 2.5e-4  # falls to 0 over the run
    clip_coef: float = 0.2
    vf_coef: float = 0.25
    ent_coef: float = 0.01
    max_grad_norm: float = 0.5


class Policy(nn.Module):
    """An actor and a critic, two hidden layers each."""

    def __init__(self, observations: int, actions: int, hidden: int = 64) -> None:
        super().__init__()
        self.actor, self.critic = (
            nn.Sequential(
                layer(observations, hidden), nn.Tanh(), layer(hidden, hidden), nn.Tanh(), layer(hidden, outputs, gain)
            )
            for outputs, gain in ((actions, 0.01), (1, 1.0))
        )

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """(log-probabilities `[rows, actions]`, values `[rows]`)."""
        return torch.log_softmax(self.actor(observation), -1), self.critic(observation).squeeze(-1)


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """A linear layer with orthogonal weights."""
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


class Rollout:
    """What happened, `[steps, worlds, …]`."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Tensor]] = {}

    def add(self, **row: Tensor) -> None:
        for name, value in row.items():
            self.rows.setdefault(name, []).append(value)

    def stacked(self) -> dict[str, Tensor]:
        return {name: torch.stack(values) for name, values in self.rows.items()}


@torch.no_grad()
def collect(
    worlds: dz.rl.Worlds, policy: Policy, draws: dz.rl.Draws, look: Tensor, clock: int, settings: Settings
) -> tuple[dict[str, Tensor], Tensor]:
    """Act for a number of steps: what happened, and what is seen then."""
    rollout = Rollout()
    for t in range(settings.num_steps):
        log_probs, value = policy(look)
        uniform = draws.uniform("action", torch.tensor(clock + t), 1)
        edges = log_probs.exp().cumsum(-1)
        action = (edges <= uniform * edges[:, -1:]).sum(-1).clamp(max=log_probs.shape[1] - 1)
        step = worlds.step(action)
        # A truncated life would have gone on: its last state, before the reset, is worth its value.
        last = torch.zeros_like(value).index_copy(0, step.final_index, policy(step.final.observation)[1])
        rollout.add(
            observation=look,
            action=action,
            log_prob=log_probs.gather(1, action[:, None])[:, 0],
            value=value,
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            last=last,
        )
        look = step.observed.observation
    happened = rollout.stacked()
    following = torch.cat([happened["value"][1:], policy(look)[1][None]])
    cut = happened["truncated"] & ~happened["terminated"]
    happened["bootstrap"] = torch.where(cut, happened.pop("last"), following)
    return happened, look


def advantages(happened: dict[str, Tensor], settings: Settings) -> Tensor:
    """Generalised advantages, backwards in time; nothing crosses the end of a life."""
    later = torch.zeros_like(happened["reward"][0])
    found = []
    for t in reversed(range(settings.num_steps)):
        dead, over = happened["terminated"][t], happened["terminated"][t] | happened["truncated"][t]
        delta = happened["reward"][t] + settings.gamma * happened["bootstrap"][t] * ~dead - happened["value"][t]
        later = delta + settings.gamma * settings.gae_lambda * later * ~over
        found.append(later)
    return torch.stack(found[::-1])


def loss(policy: Policy, part: dict[str, Tensor], settings: Settings) -> Tensor:
    """The clipped surrogate, the clipped value error, the entropy."""
    log_probs, value = policy(part["observation"])
    ratio = (log_probs.gather(1, part["action"][:, None])[:, 0] - part["log_prob"]).exp()
    gain = (part["advantage"] - part["advantage"].mean()) / (part["advantage"].std() + 1e-8)
    low, high = part["advantage"].aminmax()
    gain = torch.where(high - low > 8 * 2**-23 * torch.maximum(high.abs(), low.abs()), gain, 0.0)  # rounding is no gain
    surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - settings.clip_coef, 1 + settings.clip_coef) * gain).mean()
    near = part["value"] + (value - part["value"]).clamp(-settings.clip_coef, settings.clip_coef)
    error = torch.maximum((value - part["returns"]) ** 2, (near - part["returns"]) ** 2).mean()
    entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
    return -surrogate + settings.vf_coef * error - settings.ent_coef * entropy


def learn(
    policy: Policy,
    adam: torch.optim.Optimizer,
    happened: dict[str, Tensor],
    shuffles: dz.rl.Shuffles,
    update: int,
    settings: Settings,
) -> None:
    """All epochs over a rollout."""
    happened = {**happened, "advantage": advantages(happened, settings)}
    happened["returns"] = happened["advantage"] + happened["value"]
    flat = {name: value.flatten(0, 1) for name, value in happened.items()}
    for epoch in range(settings.update_epochs):
        order = shuffles.order(torch.tensor(update * settings.update_epochs + epoch), len(flat["action"]))
        for index in order.chunk(settings.num_minibatches):
            adam.zero_grad()
            loss(policy, {name: value[index] for name, value in flat.items()}, settings).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), settings.max_grad_norm)
            adam.step()


class Returns:
    """Returns of lives that ended."""

    def __init__(self, worlds: int) -> None:
        self.now, self.ended = torch.zeros(worlds), [0.0]

    def add(self, happened: dict[str, Tensor]) -> None:
        over = happened["terminated"] | happened["truncated"]
        for t, reward in enumerate(happened["reward"]):
            self.now = self.now + reward
            self.ended += self.now[over[t]].tolist()
            self.now = torch.where(over[t], 0.0, self.now)


def train(policy: Policy, env: dz.Env, settings: Settings, total_steps: int, seed: int, say: bool = True) -> Returns:
    """The whole of it."""
    worlds = dz.rl.Worlds(env, settings.num_envs, seed=seed, device="cpu")
    draws = dz.rl.Draws(seed, torch.arange(settings.num_envs))
    shuffles = dz.rl.Shuffles(seed, torch.device("cpu"))
    adam = torch.optim.Adam(policy.parameters(), lr=settings.learning_rate, eps=1e-5)
    returns, look = Returns(settings.num_envs), worlds.reset().observation
    samples = settings.num_envs * settings.num_steps
    updates, began = -(-total_steps // samples), time.perf_counter()
    for update in range(updates):
        adam.param_groups[0]["lr"] = settings.learning_rate * (1 - update / updates)
        happened, look = collect(worlds, policy, draws, look, update * settings.num_steps, settings)
        learn(policy, adam, happened, shuffles, update, settings)
        returns.add(happened)
        if say and (update + 1) % 50 == 0:
            recent, speed = returns.ended[-20:], (update + 1) * samples / (time.perf_counter() - began)
            print(f"{(update + 1) * samples:>9,} steps  return {sum(recent) / len(recent):6.1f}  {speed:,.0f} steps/s")
    worlds.check()
    return returns


def main() -> None:
    parser = argparse.ArgumentParser(description="PPO on CartPole, in one file")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    env = CartPole()
    train(Policy(env.observation_space.shape[0], env.action_space.n), env, Settings(), given.steps, given.seed)


if __name__ == "__main__":
    main()
