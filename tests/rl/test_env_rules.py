"""What an environment or a network may not do, told where it is made or trained."""

import pytest
import torch

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.zoo.cartpole import CartPole


def refused(env, message, error=ModelError):
    with pytest.raises(error, match=message):
        dz.train(env, dz.rl.mlp(CartPole(), (8,)), dz.PPO(num_envs=4, num_steps=8), 64, device="cpu", progress=False)


def test_flags_are_no_numbers():
    class Slow(CartPole):
        def terminated(self, now):
            return now.angle / 100

    class Cut(CartPole):
        def truncated(self, now):
            return now.angle * torch.nan

    class Masked(CartPole):
        def action_mask(self, now):
            return torch.tensor([0.9, 0.0])

    class Listed(CartPole):
        def action_mask(self, now):
            return [True, False]

    refused(Listed(), r"Listed\.action_mask gave list \[True, False\]; expected \(2,\)")
    refused(Slow(), r"Slow\.terminated gave torch\.float32; expected bool, such as a comparison gives")
    refused(Cut(), r"Cut\.truncated gave torch\.float32")
    refused(Masked(), r"Masked\.action_mask gave torch\.float32")


@pytest.mark.parametrize("limit", [-1, 0, "10", 2.0, True])
def test_a_life_has_a_whole_number_of_steps(limit):
    class Limited(CartPole):
        time_limit = limit

    refused(Limited(), f"Limited.time_limit={limit!r}, expected a whole number of steps, at least 1, or None")


def test_what_changes_with_the_batch_is_no_policy():
    env, algorithm = CartPole(), dz.PPO(num_envs=4, num_steps=8)
    body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
    with pytest.raises(InputError, match="body does not take inputs"):
        dz.rl.ActorCritic(env, body)
    policy = dz.rl.ActorCritic(env, body.eval())
    with pytest.raises(InputError, match=r"has BatchNorm1d, .*use torch\.nn\.LayerNorm"):
        algorithm.init(env, policy, total_steps=64, device="cpu")


def test_what_is_no_value_head():
    class Wide(dz.rl.ValueHead):
        def training_value(self, features):
            return self.linear(features)

    for head, message in (
        (torch.nn.LayerNorm, "head gave LayerNorm, expected a dz.rl.ValueHead"),
        (Wide, r"Wide\.training_value gives \(2, 1\) for 2 rows, expected \(2,\)"),
    ):
        with pytest.raises(InputError, match=message):
            dz.rl.mlp(CartPole(), (8,), head=head)
