"""The recipes of SAC, TD3 and DQN learn what the library learns."""

import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

import denizen as dz
from denizen.zoo.cartpole import CartPole
from denizen.zoo.pendulum import Pendulum

RECIPES = Path(__file__).parents[2] / "recipes"
SMALL = {"num_envs": 4, "num_steps": 2, "gradient_steps": 2, "batch_size": 8, "buffer_size": 60, "learning_starts": 32}
RATES = {"learning_rate": 1e-3, "gamma": 0.98}
STEPS, HIDDEN = 136, (16, 16)  # round the ring of 60, and 13 updates that learn


def linear(*modules):
    return [layer for module in modules for layer in module.modules() if isinstance(layer, nn.Linear)]


def take(layers, others):
    for layer, other in zip(layers, others, strict=True):
        layer.load_state_dict(other.state_dict())


def same(layers, others):
    for layer, other in zip(layers, others, strict=True):
        torch.testing.assert_close(layer.weight, other.weight, atol=2e-5, rtol=0)
        torch.testing.assert_close(layer.bias, other.bias, atol=2e-5, rtol=0)


def critic_layers(critics, number):
    """One of the library's critics as linear layers."""
    made = []
    for weight, bias in zip(critics.weights, critics.biases, strict=True):
        layer = nn.Linear(*weight.shape[1:])
        layer.load_state_dict({"weight": weight[number].detach().T, "bias": bias[number, 0].detach()})
        made.append(layer)
    return made


@pytest.mark.parametrize(
    ("name", "make", "algorithm"),
    [("sac", dz.rl.soft_mlp, dz.rl.SAC), ("td3", dz.rl.deterministic_mlp, dz.rl.TD3)],
    ids=["sac", "td3"],
)
def test_actors_and_critics_equal_those_of_the_library(name, make, algorithm):
    recipe, env = runpy.run_path(str(RECIPES / f"{name}.py"), run_name="recipe"), Pendulum()
    ours = make(env, HIDDEN, seed=3)
    actor, critics = recipe["Actor"](3, 1, HIDDEN), recipe["Critics"](3, 1, HIDDEN)
    take(linear(actor), linear(ours.body, ours.actor))
    for number, critic in enumerate((critics.one, critics.two)):
        take(linear(critic), critic_layers(ours.critics, number))
    first = [layer.weight.detach().clone() for layer in linear(actor)]
    recipe["train"](actor, critics, env, recipe["Settings"](**SMALL, **RATES), STEPS, seed=5, say=False)
    dz.train(env, ours, algorithm(**SMALL, **RATES), STEPS, seed=5, device="cpu", progress=False)
    same(linear(actor), linear(ours.body, ours.actor))
    for number, critic in enumerate((critics.one, critics.two)):
        same(linear(critic), critic_layers(ours.critics, number))
    assert all((layer.weight - before).abs().max() > 1e-3 for layer, before in zip(linear(actor), first, strict=True))


def test_values_of_choices_equal_those_of_the_library():
    recipe, env = runpy.run_path(str(RECIPES / "dqn.py"), run_name="recipe"), CartPole()
    ours, network = dz.rl.q_mlp(env, HIDDEN, seed=3), recipe["layers"](4, *HIDDEN, 2)
    take(linear(network), linear(ours))
    settings = {**SMALL, "learning_rate": 1e-3, "target_every": 5}
    recipe["train"](network, env, recipe["Settings"](**settings), STEPS, seed=5, say=False)
    trained = dz.train(env, ours, dz.rl.DQN(**settings), STEPS, seed=5, device="cpu", progress=False)
    same(linear(network), linear(ours))
    assert sum(trained["episodes"]) > 3


@pytest.mark.parametrize("name", ["sac", "td3", "dqn"])
def test_stays_readable(name):
    assert len((RECIPES / f"{name}.py").read_text().splitlines()) < 250
