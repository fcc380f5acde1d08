"""CartPole in the manner of CleanRL's ppo.py until the last 100 lives have a mean return of 475; see `cartpole_cpu.py`.

    cleanrl_cartpole.py SEED STEPS

Its settings and its structure (Gymnasium's SyncVectorEnv, eager torch, a Python loop over steps, numbers read on the
host at every step), written anew.
"""

import collections
import sys

import gymnasium
import numpy as np
import torch
from torch import nn

ENVS, STEPS, EPOCHS, BATCH, GAMMA, LAMBDA = 4, 128, 4, 128, 0.99, 0.95


def layer(inputs, outputs, gain):
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


def tower(outputs, gain):
    return nn.Sequential(layer(4, 64, 2**0.5), nn.Tanh(), layer(64, 64, 2**0.5), nn.Tanh(), layer(64, outputs, gain))


def main():
    seed, total = int(sys.argv[1]), int(sys.argv[2])
    torch.manual_seed(seed)
    worlds = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1")) for _ in range(ENVS)],
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )
    actor, critic = tower(2, 0.01), tower(1, 1.0)
    weights = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(weights, lr=2.5e-4, eps=1e-5)
    seen = torch.zeros(STEPS, ENVS, 4)
    actions, logs, rewards, dones, values = (torch.zeros(STEPS, ENVS) for _ in range(5))
    look, done, lives = torch.Tensor(worlds.reset(seed=seed)[0]), torch.zeros(ENVS), collections.deque(maxlen=100)
    updates = total // (ENVS * STEPS)
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = 2.5e-4 * (1 - update / updates)
        for t in range(STEPS):
            seen[t], dones[t] = look, done
            with torch.no_grad():
                choice = torch.distributions.Categorical(logits=actor(look))
                action = choice.sample()
                values[t] = critic(look).flatten()
            actions[t], logs[t] = action, choice.log_prob(action)
            look, reward, over, cut, told = worlds.step(action.numpy())
            rewards[t], look, done = torch.Tensor(reward), torch.Tensor(look), torch.Tensor(np.logical_or(over, cut))
            if "final_info" in told:
                ended = told["final_info"]["episode"]
                lives.extend(ended["r"][told["_final_info"]].tolist())
        with torch.no_grad():
            after, advantages, advantage = critic(look).flatten(), torch.zeros(STEPS, ENVS), 0
            for t in reversed(range(STEPS)):
                going = 1 - (done if t == STEPS - 1 else dones[t + 1])
                delta = rewards[t] + GAMMA * going * (after if t == STEPS - 1 else values[t + 1]) - values[t]
                advantages[t] = advantage = delta + GAMMA * LAMBDA * going * advantage
        batch = [
            seen.reshape(-1, 4),
            *(x.reshape(-1) for x in (actions, logs, advantages, advantages + values, values)),
        ]
        for _ in range(EPOCHS):
            for part in torch.randperm(ENVS * STEPS).split(BATCH):
                obs, action, old, gain, target, value = (x[part] for x in batch)
                choice = torch.distributions.Categorical(logits=actor(obs))
                ratio = (choice.log_prob(action) - old).exp()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                surrogate = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
                new = critic(obs).flatten()
                near = value + (new - value).clamp(-0.2, 0.2)
                value_loss = 0.5 * torch.max((new - target) ** 2, (near - target) ** 2).mean()
                loss = surrogate - 0.01 * choice.entropy().mean() + 0.5 * value_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(weights, 0.5)
                optimizer.step()
        if len(lives) == 100 and sum(lives) / 100 >= 475:
            print((update + 1) * ENVS * STEPS)
            return
    print("never")


main()
