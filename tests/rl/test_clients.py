"""Loops that others wrote, over worlds: by the calls that they make, as CleanRL's ppo.py does."""

import numpy as np
import pytest
import torch
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from torch import nn

import denizen as dz
from denizen.zoo.cartpole import CartPole


def orthogonal(width, to, gain=2**0.5):
    layer = nn.Linear(width, to)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class SinglePagePPO:
    """PPO over any `gymnasium.vector.VectorEnv` that begins anew in the same step; knows nothing of denizen."""

    def __init__(self, envs, steps, seed):
        torch.manual_seed(seed)
        self.envs, self.steps, self.seed = envs, steps, seed
        width, choices = int(np.prod(envs.single_observation_space.shape)), int(envs.single_action_space.n)
        self.actor = nn.Sequential(orthogonal(width, 64), nn.Tanh(), orthogonal(64, choices, 0.01))
        self.critic = nn.Sequential(orthogonal(width, 64), nn.Tanh(), orthogonal(64, 1, 1.0))
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, 1e-3, eps=1e-5)
        self.returns = []

    def acts(self, seen):
        return torch.distributions.Categorical(logits=self.actor(seen))

    def learn(self, updates):
        seen, _ = self.envs.reset(seed=self.seed)
        for _ in range(updates):
            rows = []
            for _ in range(self.steps):
                look = torch.as_tensor(seen)
                with torch.no_grad():
                    choice = self.acts(look)
                    action, value = choice.sample(), self.critic(look)[:, 0]
                seen, reward, terminated, truncated, infos = self.envs.step(action.numpy())
                over = torch.as_tensor(terminated | truncated)
                rows.append((look, action, choice.log_prob(action), value, torch.as_tensor(reward).float(), over))
                if "episode" in infos:
                    self.returns += infos["episode"]["r"][infos["_episode"]].tolist()
            self.improve(*(torch.stack(column) for column in zip(*rows, strict=True)), torch.as_tensor(seen))

    def improve(self, look, action, before, value, reward, over, last):
        with torch.no_grad():
            following = torch.cat([value[1:], self.critic(last).T])
        gained, ahead = torch.zeros_like(value), torch.zeros(value.shape[1])
        for step in reversed(range(self.steps)):
            on = ~over[step]
            ahead = reward[step] + 0.99 * on * following[step] - value[step] + 0.99 * 0.95 * on * ahead
            gained[step] = ahead
        rows = [tensor.flatten(0, 1) for tensor in (look, action, before, gained, gained + value)]
        for _ in range(4):
            for part in torch.randperm(len(rows[0])).split(128):
                look, action, before, gained, target = (tensor[part] for tensor in rows)
                choice = self.acts(look)
                ratio = (choice.log_prob(action) - before).exp()
                gained = (gained - gained.mean()) / (gained.std() + 1e-8)
                policy = -torch.minimum(ratio * gained, ratio.clamp(0.8, 1.2) * gained).mean()
                error = (self.critic(look)[:, 0] - target).square().mean()
                self.optimizer.zero_grad()
                (policy + 0.25 * error - 0.01 * choice.entropy().mean()).backward()
                nn.utils.clip_grad_norm_(self.parameters, 0.5)
                self.optimizer.step()


@pytest.mark.parametrize(("updates", "least"), [(2, 10), pytest.param(24, 70, marks=pytest.mark.slow)])
def test_a_loop_over_gymnasiums_vectors_learns_in_worlds(updates, least):
    worlds = dz.rl.Worlds(CartPole(), 8, device="cpu", max_resets=8)
    learner = SinglePagePPO(RecordEpisodeStatistics(dz.rl.to_gymnasium(worlds)), 64, seed=1)
    learner.learn(updates)
    assert np.mean(learner.returns[-20:]) > least  # random actions come to 22
