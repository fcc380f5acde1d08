"""Epidemic control: the city within is the COVID model, costs add up, and learning beats constant policies."""

import pytest
import torch

import denizen as dz
from denizen.zoo.control import control


def lived(env, action, worlds=4, weeks=None):
    made = dz.rl.Worlds(env, worlds, device="cpu", max_resets=worlds)
    made.reset()
    steps = [made.step(torch.full((worlds,), action)) for _ in range(weeks or env.weeks)]
    made.check()
    return steps


def test_without_measures_the_city_is_the_covid_model():
    env = control(size=1000, weeks=4)
    steps = lived(env, 0, worlds=64, weeks=3)
    cases = torch.stack([step.flows["infections"] for step in steps], 1).sum(1)
    run = dz.simulate(env.model, steps=21, replicates=64, seed=1, device="cpu", progress=False)
    plain = run["daily_infected"].sum(1) * 100 / 1000
    spread = (cases.var() / 64 + plain.var() / 64).sqrt()
    assert abs(cases.mean() - plain.mean()) < 4 * spread


def test_costs_add_up_and_measures_work():
    env, costs = control(size=1000), {0: 0.0, 1: 0.3, 4: 1.0, 5: 1.3}
    worlds = dz.rl.Worlds(env, 16, worlds=[0, 1, 2, 3] * 4, device="cpu", max_resets=16)  # the same four, four times
    worlds.reset()
    actions = torch.tensor(list(costs)).repeat_interleave(4)
    steps = [worlds.step(actions) for _ in range(env.weeks)]
    worlds.check()
    sums = sum(step.flows["infections"] for step in steps).unflatten(0, (4, 4)).mean(1).tolist()
    assert sums[0] > sums[2] > sums[3]
    assert sums[0] > sums[1]
    cost = torch.tensor(list(costs.values())).repeat_interleave(4)
    assert torch.allclose(steps[0].reward, -(steps[0].flows["infections"] + cost))
    assert steps[-1].truncated.all()
    assert steps[8].observed.observation[12:, 2].tolist() == pytest.approx([0.54] * 4)


def test_wrong_options_are_named():
    with pytest.raises(dz.errors.InputError, match="weeks=0"):
        control(weeks=0)
    with pytest.raises(dz.errors.InputError, match="shots"):
        control(size=1000, shots=2.0)
    with pytest.raises(dz.errors.InputError, match="nobody of 300 is ill"):
        control(size=300)


@pytest.mark.slow
def test_learning_beats_every_constant_policy():
    env = control(size=1000)
    algorithm = dz.PPO(
        num_envs=32,
        num_steps=16,
        update_epochs=8,
        gamma=1.0,
        learning_rate=dz.rl.Linear(3e-3, 0.0),
        value_clip=None,
        ent_coef=dz.rl.Linear(0.02, 0.0),
    )
    policy = dz.rl.mlp(env, (32, 32), head=dz.rl.PopArt)
    dz.train(env, policy, algorithm, 32 * 16 * 80, device="cpu", progress=False)
    learnt = dz.rl.evaluate(env, policy, num_envs=64, greedy=True)
    best = max(sum(step.reward for step in lived(env, action, worlds=64)).mean().item() for action in range(6))
    assert learnt.mean > best + 3
