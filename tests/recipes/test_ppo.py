"""The recipe learns what the library learns."""

import runpy
from pathlib import Path

import torch

import denizen as dz
from denizen.zoo.cartpole import CartPole

RECIPE = runpy.run_path(str(Path(__file__).parents[2] / "recipes/ppo.py"), run_name="recipe")


def test_equals_the_library():
    env, steps = CartPole(), 4 * 128 * 4
    ours = dz.rl.mlp(env, seed=3)
    plain = RECIPE["Policy"](4, 2)
    for mine, theirs in ((plain.actor, (ours.body, ours.actor)), (plain.critic, (ours.critic_body, ours.head.linear))):
        layers = [*[layer for layer in theirs[0] if isinstance(layer, torch.nn.Linear)], theirs[1]]
        for layer, other in zip([one for one in mine if isinstance(one, torch.nn.Linear)], layers, strict=True):
            layer.load_state_dict(other.state_dict())
    returns = RECIPE["train"](plain, env, RECIPE["Settings"](), steps, seed=5, say=False)
    trained = dz.train(env, ours, dz.PPO(num_envs=4), steps, seed=5, device="cpu", progress=False)
    assert torch.allclose(plain.actor[0].weight, ours.body[1].weight, atol=1e-5)
    assert torch.allclose(plain.critic[4].weight, ours.head.linear.weight, atol=1e-5)
    assert len(returns.ended) - 1 == sum(trained["episodes"])


def test_stays_readable():
    assert len((Path(__file__).parents[2] / "recipes/ppo.py").read_text().splitlines()) < 350
