"""The recipe learns what the library learns."""

import runpy
from pathlib import Path

import pytest
import torch

import denizen as dz
from denizen.zoo.cartpole import CartPole
from denizen.zoo.fruits import fruits

PATH = Path(__file__).parents[2] / "recipes/grpo.py"
RECIPE = runpy.run_path(str(PATH), run_name="recipe")


@pytest.mark.parametrize(("env", "beta"), [(fruits(max_steps=30), 0.0), (CartPole(), 0.1)])
def test_equals_the_library(env, beta):
    settings = RECIPE["Settings"](groups=4, replicas=4, max_steps=30, minibatches=2, beta=beta)
    ours = dz.rl.mlp(env, shared=True, seed=3)
    plain = RECIPE["Policy"](env.observation_space.shape[0], env.action_space.n)
    linear = [one for one in plain.layers if isinstance(one, torch.nn.Linear)]
    theirs = [*[one for one in ours.body if isinstance(one, torch.nn.Linear)], ours.actor]
    for layer, other in zip(linear, theirs, strict=True):
        layer.load_state_dict(other.state_dict())
    returns = RECIPE["train"](plain, env, settings, 4, seed=5, say=False)
    algorithm = dz.GRPO(
        groups=4, group_size=4, max_steps=30, epochs=3, minibatches=2, gamma=settings.gamma, beta=beta,
        learning_rate=dz.rl.Linear(*settings.learning_rate),
    )  # fmt: skip
    trained = dz.train(env, ours, algorithm, 4 * algorithm.samples, seed=5, device="cpu", progress=False)
    for layer, other in zip(linear, theirs, strict=True):
        torch.testing.assert_close(layer.weight, other.weight, rtol=0, atol=1e-5)
    assert returns == pytest.approx(trained["return_mean"], abs=1e-5)


def test_stays_readable():
    assert len(PATH.read_text().splitlines()) < 350
