"""Behaviour cloning."""

import pytest
import torch

import denizen as dz
from denizen.zoo import probes
from denizen.zoo.cartpole import CartPole


def balance(observed, uniform):
    """Push towards where the pole falls."""
    angle, turn = observed.observation[:, 2], observed.observation[:, 3]
    return (angle + 0.5 * turn > 0).to(torch.int64)


def test_a_clone_acts_and_fares_as_its_teacher():
    env = CartPole()
    policy = dz.rl.mlp(env, (32,))
    told = dz.rl.imitate(
        env, policy, balance, updates=150, num_envs=32, learning_rate=1e-2, device="cpu", progress=False
    )
    assert told.agreement[-10:].mean() > 0.8  # near balance the teacher turns on the smallest differences
    assert told.loss[-10:].mean() < 0.8 * told.loss[:3].mean()
    assert (
        dz.rl.evaluate(env, policy, num_envs=16, greedy=True).mean > 200
    )  # where the teacher never comes, the clone is lost


def test_actors_that_are_out_teach_nothing():
    env = probes.Padded()
    policy = dz.rl.mlp(env, (8,))
    told = dz.rl.imitate(
        env,
        policy,
        lambda observed, uniform: (uniform[:, 0] * 0).to(torch.int64),
        updates=40,
        num_envs=8,
        learning_rate=0.05,
        device="cpu",
        progress=False,
    )
    assert told.agreement[-1] == 1


def test_a_frozen_body_stays_as_it_is():
    env = CartPole()
    policy = dz.rl.mlp(env, (8,))
    policy.body.requires_grad_(False)
    body, actor = policy.body[1].weight.clone(), policy.actor.weight.clone()
    dz.rl.imitate(env, policy, balance, updates=2, num_envs=4, device="cpu", progress=False)
    assert torch.equal(policy.body[1].weight, body)
    assert not torch.equal(policy.actor.weight, actor)


def test_wrong_arguments_are_named():
    env = CartPole()
    with pytest.raises(dz.errors.InputError, match="updates=0"):
        dz.rl.imitate(env, dz.rl.mlp(env), balance, updates=0)
    with pytest.raises(dz.errors.InputError, match="has a memory"):
        dz.rl.imitate(env, dz.rl.mlp(env, memory_size=4), balance)


def test_teachers_that_leave_the_space_or_take_what_is_closed_are_told_and_teach_nothing():
    class Shut(CartPole):
        def action_mask(self, now):
            return torch.arange(2) < 1

    quiet = {"updates": 2, "num_envs": 4, "num_steps": 2, "device": "cpu", "progress": False}
    with pytest.raises(dz.errors.ModelError, match="CartPole: an action outside the action space"):
        dz.rl.imitate(CartPole(), dz.rl.mlp(CartPole(), (8,)), lambda seen, _: balance(seen, _) * 0 + 7, **quiet)
    policy = dz.rl.mlp(Shut(), (8,))
    before = policy.actor.weight.clone()
    with pytest.raises(dz.errors.InputError, match=r"a choice that Shut.action_mask closes, first in update 0"):
        dz.rl.imitate(Shut(), policy, lambda seen, _: balance(seen, _) * 0 + 1, **quiet)
    assert torch.equal(policy.actor.weight, before)
