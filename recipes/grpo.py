"""GRPO in one file: copy it, read it, change it. `python recipes/grpo.py` learns to catch fruits in two minutes.

The worlds and the random numbers are denizen's; everything that learns is here, in plain torch, and learns what
`dz.train(env, dz.rl.mlp(env, shared=True), dz.GRPO(...))` learns, by test. What the library adds: one recorded or
captured graph for an iteration, the other advantages, scales, denominators and KL estimators, micro-batches, memory,
masks, several actors, mixed precision, run folders and resume.
"""

import argparse
import dataclasses
import time

import torch
from torch import Tensor, nn

import denizen as dz
from denizen.zoo.fruits import fruits


@dataclasses.dataclass(frozen=True)
class Settings:
    """Of the algorithm; `groups` starts, each lived `replicas` times."""

    groups: int = 32
    replicas: int = 8
    max_steps: int = 100
    update_epochs: int = 3
    num_minibatches: int = 8
    gamma: float = 0.95
    clip_coef: float = 0.2
    beta: float = 0.0  # of the KL to the policy as it was at first; 0: none
    ent_coef: float = 0.01
    learning_rate: tuple[float, float] = (5e-3, 1e-4)  # falls over the run
    max_grad_norm: float = 1.0


class Policy(nn.Module):
    """Two hidden layers; there is no value to learn."""

    def __init__(self, observations: int, actions: int, hidden: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            layer(observations, hidden), nn.Tanh(), layer(hidden, hidden), nn.Tanh(), layer(hidden, actions, 0.01)
        )

    def forward(self, observation: Tensor) -> Tensor:
        """Log-probabilities `[..., actions]`."""
        return torch.log_softmax(self.layers(observation), -1)


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """A linear layer with orthogonal weights."""
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


def of(log_probs: Tensor, action: Tensor) -> Tensor:
    """Log-probabilities of the actions that were taken."""
    return log_probs.gather(-1, action[..., None])[..., 0]


@torch.no_grad()
def collect(worlds: dz.rl.Worlds, policy: Policy, draws: dz.rl.Draws, clock: int, steps: int) -> dict[str, Tensor]:
    """One life in each world, of as many steps at most: what happened, `[steps, worlds, …]`.

    Worlds of one group have one number, so they begin alike and meet the same chances; only actions differ.
    """
    worlds.run_state, observed = worlds.begin(torch.tensor(clock))
    seen, rows = observed.observation, []
    for t in range(steps):
        log_probs = policy(seen)
        uniform = draws.uniform("action", torch.tensor(clock + t), 1)
        edges = log_probs.exp().cumsum(-1)
        action = (edges <= uniform * edges[:, -1:]).sum(-1).clamp(max=log_probs.shape[1] - 1)
        step = worlds.step(action)
        rows.append((seen, action, of(log_probs, action), step.reward, step.valid))
        seen = step.observed.observation
    names = ("observation", "action", "log_prob", "reward", "valid")
    return {name: torch.stack(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def advantages(reward: Tensor, valid: Tensor, settings: Settings) -> Tensor:
    """Rewards to go, less the mean of the group's living replicas at that step, over the group's deviation.

    Values that differ by the rounding of rewards alone are equal: exactly 0. Sums in float64 tell, and stand in where
    those in float32 are off by a hundredth of what differs.
    """
    alive = valid.unflatten(1, (settings.groups, settings.replicas))

    def to_go(rewards: Tensor) -> Tensor:
        later, sums = torch.zeros_like(rewards[0]), []
        for row in reversed(rewards):
            later = row + settings.gamma * later
            sums.append(later)
        return torch.stack(sums[::-1]).view_as(alive)

    def centred(values: Tensor) -> Tensor:
        return values - torch.where(alive, values, 0.0).sum(2, keepdim=True) / alive.sum(2, keepdim=True).clamp(min=1)

    def largest(values: Tensor, empty: float = 0.0) -> Tensor:
        return torch.where(alive, values, empty).amax(2, keepdim=True)

    exact, size = to_go(reward.double()), to_go(reward.double().abs())
    spread = largest(exact, -torch.inf) + largest(-exact, -torch.inf)
    differs = spread > largest(size) * (4 * 2**-23 + 2 * len(reward) * 2**-52)  # 4 roundings of a reward; the sums'
    found, better = centred(to_go(reward)), centred(exact)
    found = torch.where(largest((found - better).abs()) > 0.01 * spread, better.float(), found)
    found = torch.where(alive & differs, found, 0.0)
    count = alive.sum((0, 2), keepdim=True).clamp(min=1)
    middle = found.sum((0, 2), keepdim=True) / count
    variance = torch.where(alive, found - middle, 0.0).square().sum((0, 2), keepdim=True) / count
    return torch.where(alive, found / (variance.sqrt() + 1e-6), 0.0).flatten(1)


def loss(policy: Policy, reference: Policy | None, part: dict[str, Tensor], settings: Settings) -> Tensor:
    """The clipped surrogate, the weighted k3 to the reference, the entropy; each over lives times the longest."""
    log_probs, action, valid = policy(part["observation"]), part["action"], part["valid"]
    ratio = torch.where(valid, of(log_probs, action) - part["log_prob"], 0.0).exp()
    bounded = ratio.clamp(1 - settings.clip_coef, 1 + settings.clip_coef)
    gain = torch.minimum(ratio * part["advantage"], bounded * part["advantage"])
    gain = gain - settings.ent_coef * (log_probs.exp() * log_probs).sum(-1)
    if reference is not None:
        with torch.no_grad():
            theirs = of(reference(part["observation"]), action)
        log_u = torch.where(valid, theirs - of(log_probs, action), 0.0)
        gain = gain - settings.beta * ratio * (log_u.expm1() - log_u)
    return -(gain * valid).sum() / valid.numel()


def learn(
    policy: Policy,
    reference: Policy | None,
    adam: torch.optim.Optimizer,
    happened: dict[str, Tensor],
    shuffles: list[dz.rl.Shuffles],
    update: int,
    settings: Settings,
) -> None:
    """All epochs over a rollout, in parts that take an equal share of every group."""
    happened = {**happened, "advantage": advantages(happened["reward"], happened["valid"], settings)}
    replicas = settings.replicas
    for epoch in range(settings.update_epochs):
        number = torch.tensor(update * settings.update_epochs + epoch)
        order = torch.stack([one.order(number, replicas) + k * replicas for k, one in enumerate(shuffles)])
        for index in (part.flatten() for part in order.chunk(settings.num_minibatches, dim=1)):
            adam.zero_grad()
            loss(policy, reference, {name: value[:, index] for name, value in happened.items()}, settings).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), settings.max_grad_norm)
            adam.step()


def train(policy: Policy, env: dz.Env, settings: Settings, updates: int, seed: int, say: bool = True) -> list[float]:
    """The whole of it: the mean return of each rollout."""
    groups = [number for number in range(settings.groups) for _ in range(settings.replicas)]
    worlds = dz.rl.Worlds(env, len(groups), seed=seed, device="cpu", max_resets=0, worlds=groups)
    draws = dz.rl.Draws(seed, torch.arange(len(groups)))
    shuffles = [dz.rl.Shuffles(seed, torch.device("cpu"), group) for group in range(settings.groups)]
    adam = torch.optim.Adam(policy.parameters(), lr=settings.learning_rate[0])
    reference = None
    if settings.beta:
        reference = Policy(policy.layers[0].in_features, policy.layers[-1].out_features, policy.layers[0].out_features)
        reference.load_state_dict(policy.state_dict())
    first, last = settings.learning_rate
    returns, began = [], time.perf_counter()
    for update in range(updates):
        adam.param_groups[0]["lr"] = first + (last - first) * update / updates
        happened = collect(worlds, policy, draws, update * settings.max_steps, settings.max_steps)
        learn(policy, reference, adam, happened, shuffles, update, settings)
        returns.append(float(happened["reward"].sum(0).mean()))
        if say and (update + 1) % 20 == 0:
            speed = (update + 1) * len(groups) * settings.max_steps / (time.perf_counter() - began)
            print(f"update {update + 1:>4}  return {sum(returns[-20:]) / 20:6.2f}  {speed:,.0f} steps/s")
    worlds.check()
    return returns


def main() -> None:
    parser = argparse.ArgumentParser(description="GRPO on the fruit catcher, in one file")
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    env = fruits()
    policy = Policy(env.observation_space.shape[0], env.action_space.n)
    train(policy, env, Settings(), given.updates, given.seed)


if __name__ == "__main__":
    main()
