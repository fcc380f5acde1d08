"""Predators and prey: in lockstep with MPE's simple_tag, and what is learnt in it."""

import json
from pathlib import Path

import pytest
import torch

import denizen as dz
from denizen.zoo.predator_prey import Chase, PredatorPrey

# Written by mpe2 1.1.1: starts, actions, rewards and last observations of its own lives.
LIVES = json.loads((Path(__file__).parents[1] / "data" / "simple_tag.json").read_text())["lives"]


def begun(places):
    place = torch.tensor(places)
    x, y = place[:5].unbind(1)
    still = torch.zeros(5)
    return Chase(x=x, y=y, dx=still, dy=still, obstacle_x=place[5:, 0], obstacle_y=place[5:, 1])


@pytest.mark.parametrize("life", LIVES)
def test_a_life_is_that_of_the_original(life):
    env, now, paid = PredatorPrey(prey=2), begun(life["start"]), []
    for chosen in torch.tensor(life["actions"]):
        action = {"predator": chosen[:3], "prey": chosen[3:]}
        before, now = now, env.step(now, action, None)
        paid.append(torch.cat(list(env.reward(before, action, now).values())))
    torch.testing.assert_close(torch.stack(paid), torch.tensor(life["rewards"]), rtol=1e-4, atol=1e-4)
    seen = env.observe(now)
    for mine, theirs in zip([*seen["predator"], *seen["prey"]], life["last"], strict=True):
        torch.testing.assert_close(mine, torch.tensor(theirs), rtol=0, atol=2e-3)  # in float32, over many contacts


def test_touches_are_counted_and_paid_by_both_sides():
    env = PredatorPrey(predators=2, prey=1, obstacles=1)
    far = torch.tensor([0.9])
    at = torch.tensor([0.0, 0.5, 0.1])  # the first predator touches the prey between them
    now = Chase(x=at, y=torch.zeros(3), dx=torch.zeros(3), dy=torch.zeros(3), obstacle_x=far, obstacle_y=far)
    paid = env.reward(now, {}, now)
    assert paid["predator"].tolist() == [10.0, 10.0]
    assert paid["prey"].tolist() == [-10.0]
    assert int(env.touches(now, now)) == 1


def test_worlds_of_it_keep_the_rules():
    assert dz.check(PredatorPrey(), steps=2).ok


def test_starts_are_uniform():
    worlds = dz.rl.Worlds(PredatorPrey(), 4096, device="cpu")
    look = worlds.reset().observation
    place = torch.cat([look["predator"][..., 2:4], look["prey"][..., 2:4]], 1)
    assert place.abs().max() <= 1
    # Of 32,768 uniform numbers from -1 to 1 the mean is 0 and the mean square 1/3, within 5 standard errors.
    assert abs(float(place.mean())) < 5 * (1 / 3 / place.numel()) ** 0.5
    assert abs(float(place.square().mean()) - 1 / 3) < 5 * (4 / 45 / place.numel()) ** 0.5


def played(predator, prey, num_envs=256):
    return dz.rl.evaluate(PredatorPrey(), {"predator": predator, "prey": prey}, num_envs=num_envs, seed=5)


@pytest.mark.slow
def test_predators_learn_to_catch_and_prey_to_escape_them():
    env = PredatorPrey()
    algorithm = dz.PPO(num_envs=64, num_steps=25, learning_rate=1e-3, gamma=0.95, value_clip=None)

    def fresh(role, seed):
        return dz.rl.mlp(env.role(role), seed=seed)

    hunter, victim = fresh("predator", 0), fresh("prey", 1)
    both = {"predator": hunter, "prey": victim.requires_grad_(False)}
    dz.train(env, both, algorithm, 60 * algorithm.samples, device="cpu", progress=False, compile=False)
    learnt, random = played(hunter, victim)["predator"], played(fresh("predator", 2), victim)["predator"]
    assert learnt.interval[0] > 2 * random.interval[1]

    runner = fresh("prey", 3)
    both = {"predator": hunter.requires_grad_(False), "prey": runner}
    dz.train(env, both, algorithm, 60 * algorithm.samples, device="cpu", progress=False, compile=False)
    assert played(hunter, runner)["prey"].interval[0] > played(hunter, victim)["prey"].interval[1]
    assert played(hunter, runner)["predator"].mean < learnt.mean
