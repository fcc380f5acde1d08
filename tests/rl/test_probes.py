"""PPO on the probes: values and actions that are known, each isolating a part of the trainer."""

import pytest
import torch

import denizen as dz
from denizen.zoo import probes

GAMMA = 0.9


def trained(env, updates=60, memory=0, rate=1e-2, **more):
    settings = {
        "num_envs": 64,
        "num_steps": 8,
        "update_epochs": 4,
        "num_minibatches": 2,
        "gamma": GAMMA,
        "value_clip": None,
        "learning_rate": dz.rl.Linear(rate, 0.0),
        "ent_coef": 0.0,
        "vf_coef": 0.5,
        "max_grad_norm": None,
    } | more
    algorithm = dz.PPO(**settings)
    policy = dz.rl.mlp(env, (32,), memory_size=memory)
    return dz.train(env, policy, algorithm, updates * algorithm.samples, device="cpu", progress=False)


def looks(env, steps=8):
    """Observations that worlds of this kind give."""
    worlds = dz.rl.Worlds(env, 32, device="cpu")
    seen = [worlds.reset().observation]
    space = env.action_space
    for _ in range(steps):
        action = torch.zeros(32, *space.shape, dtype=space.dtype)
        seen.append(worlds.step(action).observed.observation)
    return torch.cat(seen)


def judged(policy, observation):
    with torch.no_grad():
        told = policy(observation, policy.first_memory(len(observation), observation.device))
        return told.actions, policy.head.value(told.features)


@pytest.mark.parametrize(
    "env",
    [probes.Constant(), probes.ObsValue(), probes.Delayed(), probes.Mortal(life=3), probes.Resets(), probes.Both()],
    ids=lambda env: type(env).__name__,
)
def test_values_become_what_they_must(env):
    policy = trained(env, 40).policy
    observation = looks(env)
    actions, value = judged(policy, observation)
    assert torch.allclose(value, env.value(observation, GAMMA), atol=0.05 * max(1.0, 1 / (1 - GAMMA) / 10))


def test_a_life_that_is_cut_off_goes_on_in_value():
    env = probes.Endless(limit=3)
    _, value = judged(trained(env, 60, rate=0.02).policy, looks(env))
    assert value.mean().item() == pytest.approx(1 / (1 - GAMMA), rel=0.03)


def test_actions_become_what_they_must():
    actions, _ = judged(trained(probes.Action(), 30).policy, torch.zeros(1, 1))
    assert actions.log_probs.exp()[0, 1] > 0.95
    actions, _ = judged(trained(probes.Both(), 40).policy, torch.tensor([[-1.0], [1.0]]))
    assert actions.log_probs.exp().diagonal().min() > 0.95


def test_a_memory_is_what_the_memory_probe_needs():
    env = probes.Memory(length=3)
    with_one = trained(env, 60, memory=16, rate=2e-2)
    without = trained(env, 20)
    told = [dz.rl.evaluate(env, t.policy, num_envs=256, max_steps=3).mean for t in (with_one, without)]
    assert told[0] > 0.95
    assert abs(told[1]) < 0.2


def test_continuous_actions_find_the_cue():
    env = probes.Continuous()
    trained_ = trained(env, 70, rate=2e-2)
    observation = torch.linspace(-1, 1, 9)[:, None]
    actions, _ = judged(trained_.policy, observation)
    assert torch.allclose(actions.mode(), observation, atol=0.15)
    assert actions.log_std.exp().item() < 0.4


def test_padded_actors_learn_as_if_alone():
    env = probes.Padded()
    told = trained(env, 40, num_envs=32)
    assert told["return_mean"][-1] > 0.9 * max(told["return_mean"])
    assert told["return_mean"][-1] > told["return_mean"][0]
