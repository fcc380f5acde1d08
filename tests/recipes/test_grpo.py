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
    settings = RECIPE["Settings"](groups=4, replicas=4, max_steps=30, num_minibatches=2, beta=beta)
    ours = dz.rl.mlp(env, shared=True, seed=3)
    plain = RECIPE["Policy"](env.observation_space.shape[0], env.action_space.n)
    linear = [one for one in plain.layers if isinstance(one, torch.nn.Linear)]
    theirs = [*[one for one in ours.body if isinstance(one, torch.nn.Linear)], ours.actor]
    for layer, other in zip(linear, theirs, strict=True):
        layer.load_state_dict(other.state_dict())
    returns = RECIPE["train"](plain, env, settings, 4, seed=5, say=False)
    algorithm = dz.GRPO(
        groups=4,
        group_size=4,
        max_steps=30,
        update_epochs=3,
        num_minibatches=2,
        gamma=settings.gamma,
        beta=beta,
        learning_rate=dz.rl.Linear(*settings.learning_rate),
    )
    trained = dz.train(env, ours, algorithm, 4 * algorithm.samples, seed=5, device="cpu", progress=False)
    for layer, other in zip(linear, theirs, strict=True):
        torch.testing.assert_close(layer.weight, other.weight, rtol=0, atol=1e-5)
    assert returns == pytest.approx(trained["return_mean"], abs=1e-5)


@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_what_differs_by_rounding_alone_is_flat_in_both(offset):
    generator = torch.Generator().manual_seed(0)
    reward = torch.randn(200, 3, generator=generator)[..., None].repeat(1, 1, 4) + offset
    for k in range(4):
        reward[:-2, 0, k] = reward[:-2, 0, k][torch.randperm(198, generator=generator)]
    reward[0, 1, 0] += 1e-2
    reward[:, 2] = torch.randn(200, 4, generator=generator)
    valid, settings = torch.ones(200, 12, dtype=torch.bool), RECIPE["Settings"](groups=3, replicas=4, gamma=1.0)
    ours = dz.rl.group_advantages(
        reward, valid.view(200, 3, 4), advantage="reward_to_go", scale="group", gamma=settings.gamma
    ).advantage
    plain = RECIPE["advantages"](reward.flatten(1), valid, settings).view_as(ours)
    assert bool((plain[0, 0] == 0).all())
    assert bool((plain[-2:, 0] == 0).all())
    assert bool((plain[0, 1:] != 0).any(1).all())
    assert torch.equal(plain == 0, ours == 0)
    torch.testing.assert_close(plain, ours, rtol=0, atol=1e-5)


def test_stays_readable():
    assert len(PATH.read_text().splitlines()) < 350
