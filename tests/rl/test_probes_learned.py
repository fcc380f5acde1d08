"""PPO learns what each probe is about: values within 0.05, the better action in 95 of 100 cases."""

import pytest
import torch

import denizen as dz
from denizen.zoo.probes import (
    Action,
    Both,
    Constant,
    Continuous,
    Delayed,
    Endless,
    Memory,
    Mortal,
    ObsValue,
    Padded,
    Resets,
)

GAMMA = 0.8


def learned(env, updates, seed=0, **options):
    policy = dz.rl.mlp(env, (32,), seed=seed, **options)
    algorithm = dz.PPO(num_envs=32, num_steps=16, gamma=GAMMA, learning_rate=dz.rl.Linear(1e-2, 0.0), ent_coef=0.0)
    dz.train(env, policy, algorithm, 32 * 16 * updates, seed=seed, device="cpu", progress=False)
    return policy


def looks(env):
    """Observations of the first steps of some lives."""
    worlds = dz.rl.Worlds(env, 64, device="cpu", seed=9)
    seen, space = [worlds.reset().observation], env.action_space
    for _ in range(6):
        seen.append(worlds.step(torch.zeros(64, *space.shape, dtype=space.dtype)).observed.observation)
    return torch.cat(seen)


def judged(policy, observation):
    with torch.no_grad():
        out = policy(observation, policy.first_memory(len(observation), observation.device))
        return out.actions, policy.head.value(out.features)


@pytest.mark.parametrize(
    "env",
    [Resets(), Both(), Constant(), ObsValue(), Delayed(), Action(), Endless(), Mortal(), Continuous()],
    ids=lambda env: type(env).__name__,
)
@pytest.mark.slow  # in the default run test_probes.py learns them, and judges less closely
def test_values_become_those_of_the_probe(env):
    policy, seen = learned(env, 40), looks(env)
    actions, value = judged(policy, seen)
    torch.testing.assert_close(value, env.value(seen, GAMMA), rtol=0, atol=0.05)
    if isinstance(env, Both):
        right = (seen[:, 0] > 0).to(torch.int64)
        assert bool((actions.log_prob(right).exp() >= 0.95).all())
    elif isinstance(env, Action):
        assert bool((actions.log_prob(torch.ones(len(seen), dtype=torch.int64)).exp() >= 0.95).all())
    elif isinstance(env, Continuous):
        assert float((actions.mode().reshape(-1) - seen[:, 0]).abs().max()) < 0.1


@pytest.mark.slow
def test_only_a_memory_answers_for_its_cue():
    scores = []
    for size in (16, 0):
        env = Memory(length=3)
        policy = learned(env, 120, memory_size=size)
        scores.append(float(dz.rl.evaluate(env, policy, num_envs=400, greedy=True, device="cpu").returns.mean()))
    assert scores[0] >= 0.95
    assert abs(scores[1]) < 0.2


def test_rubbish_in_the_places_of_those_that_are_out_changes_nothing():
    weights = []
    for garbage in (0.0, 1.0, 1e4):
        policy = learned(Padded(garbage=garbage, actors=3), 3)
        weights.append(torch.cat([weight.detach().flatten() for weight in policy.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])
