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


def test_advantages_that_differ_by_rounding_alone_teach_nothing():
    policy, settings = RECIPE["Policy"](4, 2), RECIPE["Settings"](ent_coef=0.0, vf_coef=0.0)
    part = {
        "observation": torch.randn(60, 4),
        "action": torch.randint(2, (60,)),
        "log_prob": torch.zeros(60),
        "value": torch.zeros(60),
        "returns": torch.zeros(60),
        "advantage": torch.tensor([0.1, 0.1 + 1e-8, 0.1 - 1e-8]).repeat(20),
    }
    assert float(RECIPE["loss"](policy, part, settings).detach().abs()) == 0


def test_stays_readable():
    assert len((Path(__file__).parents[2] / "recipes/ppo.py").read_text().splitlines()) < 350
