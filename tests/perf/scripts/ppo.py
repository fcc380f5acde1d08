"""PPO on cart-pole in one file, as such scripts are written; `make` with its faults, `mended` without.

`make(device)` and `mended(device)` return a function that does one update: a rollout and its minibatches. A comment
names the fault of its line; in parentheses: not one that counting can see.
"""

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

ENVS, STEPS, EPOCHS, MINIBATCHES = 4, 6, 2, 2


class Carts:
    """Carts with poles in NumPy; each starts again when its pole falls."""

    def __init__(self):
        self.random = np.random.default_rng(0)
        self.state = self.random.uniform(-0.05, 0.05, (ENVS, 4))

    def step(self, actions):
        x, v, angle, spin = self.state.T
        force = np.where(actions == 1, 10.0, -10.0)
        push = (force + 0.05 * spin**2 * np.sin(angle)) / 1.1
        turn = (9.8 * np.sin(angle) - np.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        change = np.stack([v, push - 0.05 * turn * np.cos(angle) / 1.1, spin, turn], 1)
        self.state = self.state + 0.02 * change
        done = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.2095)
        self.state[done] = self.random.uniform(-0.05, 0.05, (int(done.sum()), 4))
        return self.state.astype(np.float32), np.ones(ENVS, np.float32), done.astype(np.float32)


class CartsOnDevice:
    """The same in torch."""

    def __init__(self, device):
        self.state = (torch.rand(ENVS, 4, device=device) - 0.5) / 10
        self.one = torch.ones(ENVS, device=device)

    def step(self, actions):
        x, v, angle, spin = self.state.unbind(1)
        force = actions * 20.0 - 10.0
        push = (force + 0.05 * spin**2 * angle.sin()) / 1.1
        turn = (9.8 * angle.sin() - angle.cos() * push) / (0.5 * (4 / 3 - 0.1 * angle.cos() ** 2 / 1.1))
        change = torch.stack([v, push - 0.05 * turn * angle.cos() / 1.1, spin, turn], 1)
        state = self.state + 0.02 * change
        done = (state[:, 0].abs() > 2.4) | (state[:, 2].abs() > 0.2095)
        self.state = torch.where(done[:, None], (torch.rand_like(state) - 0.5) / 10, state)
        return self.state, self.one, done.float()


class Agent(nn.Module):
    def __init__(self, validate=None):
        super().__init__()
        torch.manual_seed(0)
        self.actor = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
        self.critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        self.validate = validate

    def value(self, x):
        return self.critic(x).flatten()

    def act(self, x, action=None):
        chances = Categorical(logits=self.actor(x), validate_args=self.validate)  # host-sync-bool
        action = chances.sample() if action is None else action
        return action, chances.log_prob(action), chances.entropy(), self.value(x)  # host-sync-bool


def losses(agent, obs, actions, old, advantages, returns):
    _, logprob, entropy, value = agent.act(obs, actions)
    ratio = (logprob - old).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy = torch.max(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2)).mean()
    kl = ((ratio - 1) - (logprob - old)).mean()
    return policy + 0.5 * (value - returns).square().mean() - 0.01 * entropy.mean(), kl, ratio


def make(device):
    carts, agent = Carts(), Agent().to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    state = {"obs": torch.tensor(carts.state, dtype=torch.float32).to(device), "done": torch.zeros(ENVS).to(device)}
    log = []

    def step():
        kept = {name: [] for name in ("obs", "action", "logprob", "reward", "done", "value")}
        for _ in range(STEPS):
            with torch.no_grad():
                action, logprob, _, value = agent.act(state["obs"])
            observed, reward, done = carts.step(action.cpu().numpy())  # host-sync-copy d2h-accumulate
            rewards = torch.tensor(reward).to(device)  # h2d-fresh
            for name, part in zip(kept, (state["obs"], action, logprob, rewards, state["done"], value), strict=True):
                kept[name].append(part)
            state["obs"] = torch.Tensor(observed).to(device)  # h2d-fresh
            state["done"] = torch.Tensor(done).to(device)  # h2d-fresh
        obs, action, logprob, reward, done, value = (torch.stack(part) for part in kept.values())
        with torch.no_grad():
            following, last = agent.value(state["obs"]), 0
            advantages = torch.zeros_like(reward).to(device)
            for t in reversed(range(STEPS)):
                alive = 1 - (state["done"] if t == STEPS - 1 else done[t + 1])
                delta = reward[t] + 0.99 * (following if t == STEPS - 1 else value[t + 1]) * alive - value[t]
                advantages[t] = last = delta + 0.99 * 0.95 * alive * last
            returns = advantages + value
        flat = [part.flatten(0, 1) for part in (obs, action, logprob, advantages, returns)]
        clipped, indices = [], np.arange(ENVS * STEPS)
        for _ in range(EPOCHS):
            carts.random.shuffle(indices)
            for rows in np.split(indices, MINIBATCHES):
                loss, kl, ratio = losses(agent, *(part[rows] for part in flat))  # h2d-index
                clipped += [((ratio - 1.0).abs() > 0.2).float().mean().item()]  # host-sync-item
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
            if kl > 0.5:  # host-sync-bool
                break
        predicted, true = value.cpu().numpy(), returns.cpu().numpy()  # host-sync-copy
        log.append((loss.item(), np.mean(clipped), np.var(true - predicted)))  # host-sync-item

    return step


def mended(device):
    carts, agent = CartsOnDevice(device), Agent(validate=False).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    state = {"obs": carts.state, "done": torch.zeros(ENVS, device=device)}
    log = torch.zeros(4, device=device)

    def step():
        kept = {name: [] for name in ("obs", "action", "logprob", "reward", "done", "value")}
        for _ in range(STEPS):
            with torch.no_grad():
                action, logprob, _, value = agent.act(state["obs"])
                observed, reward, done = carts.step(action)
            for name, part in zip(kept, (state["obs"], action, logprob, reward, state["done"], value), strict=True):
                kept[name].append(part)
            state["obs"], state["done"] = observed, done
        obs, action, logprob, reward, done, value = (torch.stack(part) for part in kept.values())
        with torch.no_grad():
            following, last = agent.value(state["obs"]), 0
            advantages = torch.zeros_like(reward)
            for t in reversed(range(STEPS)):
                alive = 1 - (state["done"] if t == STEPS - 1 else done[t + 1])
                delta = reward[t] + 0.99 * (following if t == STEPS - 1 else value[t + 1]) * alive - value[t]
                advantages[t] = last = delta + 0.99 * 0.95 * alive * last
            returns = advantages + value
        flat = [part.flatten(0, 1) for part in (obs, action, logprob, advantages, returns)]
        going = torch.ones((), device=device)  # 0 once the policy has moved too far: later minibatches weigh nothing
        for _ in range(EPOCHS):
            order = torch.randperm(ENVS * STEPS, device=device)
            for rows in order.chunk(MINIBATCHES):
                loss, kl, ratio = losses(agent, *(part[rows] for part in flat))
                optimizer.zero_grad()
                (loss * going).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
            going = going * (kl <= 0.5)
        with torch.no_grad():
            clipped = ((ratio - 1.0).abs() > 0.2).float().mean()
            log.copy_(torch.stack([loss, kl, clipped, (returns - value).var() / returns.var()]))

    return step
