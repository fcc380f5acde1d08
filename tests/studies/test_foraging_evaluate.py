"""Evaluation of foragers: books that balance, statistics that hold, nulls that are known."""

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.rl import Draws
from denizen.studies.foraging.evaluate import Foraged, forage, joined
from denizen.studies.foraging.nulls import memoryless_forager
from denizen.zoo.cartpole import CartPole
from denizen.zoo.foraging import for_evaluation, foraging
from denizen.zoo.foraging.agents import Learnt, OmniscientSeeker, ProxySeeker, Uniform

ENV = foraging("proxy", height=24, width=24, food_range=(4, 14), poison_range=(4, 14))


@pytest.fixture(scope="module")
def found():
    return forage(ENV, ProxySeeker(ENV), num_envs=24, steps=250, seed=7, device="cpu")


def test_books_equal_a_plain_count_of_what_happens(found):
    env, agent = for_evaluation(ENV), ProxySeeker(ENV)
    worlds = dz.rl.Worlds(env, 24, seed=7 + 2**31, device="cpu", max_resets=24)
    draws = Draws(7 + 2**31, torch.arange(24))
    observed, age, meals = worlds.reset(), [0] * 24, [[] for _ in range(24)]
    died, firsts, shares = [], {}, []
    food = torch.zeros(24)
    for t in range(250):
        step = worlds.step(agent.act(observed, draws.uniform("action", torch.tensor(t), 1)))
        observed = step.observed
        food += step.flows["food"]
        for world in range(24):
            age[world] += 1
            meals[world] += [1] * int(step.flows["food"][world]) + [0] * int(step.flows["poison"][world])
            if step.terminated[world]:
                died.append(age[world])
                firsts.setdefault(world, age[world])
                if meals[world]:
                    shares.append(np.mean(meals[world]))
                age[world], meals[world] = 0, []
    assert len(died) > 50
    assert found.died.tolist() == np.bincount(died, minlength=251).tolist()
    assert found.censored.tolist() == np.bincount(age, minlength=251).tolist()
    assert found.food.tolist() == food.tolist()
    assert found.fed.sum() == len(shares)
    assert found.life_efficiency.value == pytest.approx(np.mean(shares))
    for world in range(24):
        assert found.first_died[world] == (world in firsts)
        assert found.first_age[world] == firsts.get(world, 250)


def test_identities(found):
    assert found.budget == 250
    assert found.steps.tolist() == [250] * 24
    assert found.died.sum() == found.deaths.sum()
    assert found.censored.sum() == 24
    parts = {name: found.per_thousand(name).value for name in ("energy", "food", "poison")}
    assert parts["energy"] == pytest.approx(parts["food"] - 2 * parts["poison"] - 10)
    assert found.naive_age == pytest.approx(250 * 24 / (24 + found.deaths.sum()))
    first = found.first_lives
    assert first.died.sum() + first.censored.sum() == 24
    assert found.life_efficiency.value < found.efficiency.value
    with pytest.raises(dz.errors.InputError, match="expected 'food', 'poison', 'deaths' or 'energy'"):
        found.per_thousand("meals")


def test_saved_and_joined(found, tmp_path):
    found.save(tmp_path / "found.npz")
    back = Foraged.load(tmp_path / "found.npz")
    assert back.died.tolist() == found.died.tolist()
    assert (back.move_cost, back.poison_share) == (found.move_cost, found.poison_share)
    assert 0.3 < found.poison_share < 0.7
    both = joined([found, back])
    assert both.food.size == 48
    assert both.deaths.sum() == 2 * found.deaths.sum() == both.died.sum()
    assert both.per_thousand("food").value == pytest.approx(found.per_thousand("food").value)
    with pytest.raises(dz.errors.InputError, match="budgets"):
        joined([found, forage(ENV, Uniform(ENV), num_envs=2, steps=3, device="cpu")])


def test_each_life_in_a_world_of_its_own():
    env = ENV.replace(grid_lifetime="life")
    found = forage(env, Uniform(env), num_envs=8, steps=150, device="cpu")
    assert found.deaths.sum() > 5
    assert found.steps.sum() == 8 * 150


@pytest.mark.parametrize(
    ("eats", "poison", "life", "deaths", "efficiency", "per_life"),
    [
        (0.05, 0.5, 53, 19, 0.50, 0.28),
        (0.10, 0.5, 30, 33, 0.50, 0.27),
        (0.143, 0.5, 22, 46, 0.50, 0.27),
        (0.20, 0.5, 16, 63, 0.50, 0.27),
        (0.143, 0.447, 29, 34, 0.55, 0.30),
        (0.104, 0.434, 42, 24, 0.56, 0.32),
    ],
)
def test_the_forager_without_skill(eats, poison, life, deaths, efficiency, per_life):
    null = memoryless_forager(eats, poison)
    assert null.mean_life == pytest.approx(life, rel=0.08)
    assert null.deaths == pytest.approx(deaths, rel=0.08)
    assert null.efficiency == pytest.approx(efficiency, abs=0.012)
    assert null.life_efficiency == pytest.approx(per_life, abs=0.012)


def test_a_forager_that_nearly_lives_keeps_the_sum_of_its_energy():
    """Energy falls by 0.0127 a step on average, so lives last (1 + debt at death) / 0.0127 on average (Wald)."""
    null = memoryless_forager(0.085, 0.344)
    assert 1 / 0.0127 < null.mean_life < 3 / 0.0127
    assert null.deaths == pytest.approx(1000 / null.mean_life, rel=0.02)
    assert null.efficiency == pytest.approx(0.656, abs=0.01)
    assert memoryless_forager(0.0, 0.5).mean_life == 101


@pytest.mark.parametrize(
    ("options", "told"),
    [({"steps": 0}, "steps=0"), ({"seed": -1}, "seed=-1"), ({"num_envs": 0}, "num_envs=0")],
)
def test_wrong_arguments_are_named(options, told):
    with pytest.raises(dz.errors.InputError, match=told):
        forage(ENV, Uniform(ENV), **({"num_envs": 2, "steps": 2, "device": "cpu"} | options))
    with pytest.raises(dz.errors.InputError, match="env is CartPole"):
        forage(CartPole(), Uniform(ENV))
    with pytest.raises(dz.errors.InputError, match="eats=2"):
        memoryless_forager(2, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("teacher", "least", "most"), [(OmniscientSeeker, 0.9, 1.0), (ProxySeeker, 0.5, 0.8)])
def test_a_clone_forages_as_its_teacher(teacher, least, most):
    env = foraging("ground_truth", height=32, width=32, food_range=(8, 16), poison_range=(8, 16))
    policy = dz.rl.conv(env, channels=(8,), hidden=32, critic_hidden=(8,))
    dz.rl.imitate(env, policy, teacher(env).act, updates=80, learning_rate=3e-3, device="cpu", progress=False)
    clone = forage(env, Learnt(policy), num_envs=64, steps=300, seed=42, device="cpu")
    original = forage(env, teacher(env), num_envs=64, steps=300, seed=42, device="cpu")
    assert least <= clone.efficiency.value <= most
    assert clone.per_thousand("food").value > 0.8 * original.per_thousand("food").value
