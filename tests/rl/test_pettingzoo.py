"""Worlds of several actors as PettingZoo's ParallelEnv."""

import pickle
import sys
import warnings

import numpy as np
import pytest
import torch
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
from pettingzoo.utils import parallel_to_aec

import denizen as dz
from denizen.errors import InputError, MissingExtra, ModelError
from denizen.zoo.cartpole import CartPole
from denizen.zoo.catch import Catch
from denizen.zoo.probes import Padded


@pytest.mark.parametrize("env", [Padded(), CartPole(), Catch()], ids=repr)
def test_pettingzoos_own_tests_pass(env, capsys):
    parallel_api_test(dz.rl.to_pettingzoo(env), num_cycles=60)
    parallel_seed_test(lambda: dz.rl.to_pettingzoo(env), num_cycles=20)


@pytest.mark.filterwarnings("ignore:Observation is a single number")  # as Padded's are
@pytest.mark.filterwarnings("ignore:Agent's m.*imum observation space value is")  # without bounds, as Padded's
def test_pettingzoo_makes_agents_act_one_by_one(capsys):
    api_test(parallel_to_aec(dz.rl.to_pettingzoo(Padded(actors=2), device="cpu")), num_cycles=20)
    seed_test(lambda: parallel_to_aec(dz.rl.to_pettingzoo(Padded(actors=2), device="cpu")), num_cycles=10)
    by_turns, together = parallel_to_aec(dz.rl.to_pettingzoo(Padded(actors=2))), dz.rl.to_pettingzoo(Padded(actors=2))
    by_turns.reset(seed=3)
    seen, _ = together.reset(seed=3)
    while together.agents:
        actions = {}
        for agent in list(together.agents):
            assert by_turns.agent_selection == agent
            look, *_ = by_turns.last()
            assert np.array_equal(look, seen[agent])
            actions[agent] = int(look[0] > 0)
            by_turns.step(actions[agent])
        seen, rewards, dead, *_ = together.step(actions)
        assert by_turns.rewards == rewards
        assert by_turns.terminations == dead
        while by_turns.agents and by_turns.terminations[by_turns.agent_selection]:
            by_turns.step(None)


def test_a_life_is_that_of_the_world():
    env = Padded(actors=3, length=6, stays=0.8)
    given, worlds = dz.rl.to_pettingzoo(env, seed=2), dz.rl.Worlds(env, 1, seed=2, device="cpu", max_resets=0)
    seen, _ = given.reset()
    observed = worlds.reset()
    left = []
    while given.agents:
        acted = list(given.agents)
        assert acted == [f"agent_{k}" for k in range(3) if observed.acting[0, k]]
        for name in acted:
            assert np.array_equal(seen[name], observed.observation[0, int(name[-1])])
        actions = {name: int(seen[name][0] > 0) for name in acted}
        padded = torch.tensor([[actions.get(f"agent_{k}", 0) for k in range(3)]])
        step = worlds.step(padded)
        seen, rewards, dead, cut, _ = given.step(actions)
        assert rewards == dict.fromkeys(acted, 1.0)
        assert not any(cut.values())
        left += [name for name in acted if dead[name]]
        observed = step.observed
    assert bool(step.terminated)
    assert sorted(left) == ["agent_0", "agent_1", "agent_2"]


def test_resets_without_a_seed_begin_another_life():
    given = dz.rl.to_pettingzoo(CartPole())
    starts = [given.reset(seed)[0]["agent_0"][0] for seed in (None, None, 0, 5)]
    assert starts[0] == starts[2]
    assert len(set(starts)) == 3


def test_wrong_actions_are_named():
    given = dz.rl.to_pettingzoo(Padded(actors=2))
    given.reset()
    with pytest.raises(InputError, match="lacks 'agent_1'"):
        given.step({"agent_0": 0})
    with pytest.raises(InputError, match="has 'agent_7', which does not act"):
        given.step({"agent_0": 0, "agent_7": 0})
    with pytest.raises(InputError, match=r"shape \(2,\), expected \(\)"):
        given.step({"agent_0": 0, "agent_1": [0, 1]})
    with pytest.raises(ModelError, match="outside the action space"):
        given.step({"agent_0": 0, "agent_1": 4})


class Pushing(dz.Env):
    """Three actors push with 1 to 2 each; one after the other goes out."""

    num_actors = 3
    time_limit = 4
    action_space = dz.rl.Box([1.0, 0.0], [2.0, torch.inf], (2,))
    observation_space = dz.rl.Box(0.0, torch.inf, (1,))

    def init(self, rng):
        return Pushed(by=torch.zeros(3))

    def step(self, now, action, rng):
        return now.replace(by=now.by + action.sum(-1))

    def observe(self, now):
        return now.by[:, None]

    def reward(self, before, action, now):
        return now.by - before.by

    def terminated(self, now):
        return now.by.sum() < 0

    def acting(self, now):
        return torch.arange(3) >= now.time.step


class Pushed(dz.State):
    by: torch.Tensor = dz.real("agents")


def test_who_is_out_needs_no_action_within_bounds_without_zero():
    given = dz.rl.to_pettingzoo(Pushing(), device="cpu")
    seen, _ = given.reset(seed=0)
    assert np.array_equal(given.action_space("agent_1").low, [1.0, 0.0])
    assert np.array_equal(given.action_space("agent_1").high, [2.0, np.inf])
    while given.agents:
        seen, rewards, *_ = given.step({name: np.array([1.5, 2.0]) for name in given.agents})
        assert set(rewards.values()) == {3.5}
    given.reset(seed=0)
    with pytest.raises(ModelError, match="outside the action space"):
        given.step({name: np.array([0.5, 2.0]) for name in given.agents})


def test_fractions_are_no_choices():
    given = dz.rl.to_pettingzoo(Padded(actors=2), device="cpu")
    given.reset()
    with pytest.raises(InputError, match="expected whole numbers from 0 to 1"):
        given.step({"agent_0": 0, "agent_1": 1.7})


def test_pictures():
    given = dz.rl.to_pettingzoo(Catch())
    given.reset()
    assert given.render().shape == (80, 40, 3)
    assert dz.rl.to_pettingzoo(Padded()).render() is None


def test_without_pettingzoo_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(MissingExtra, match=r"pip install 'denizen\[gym\]'"):
        dz.rl.to_pettingzoo(CartPole())


def test_a_world_can_be_pickled_for_another_process():
    world = dz.rl.to_pettingzoo(Padded())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch, about its own trees
        again = pickle.loads(pickle.dumps(world))
    assert type(again) is type(world)
    one, other = again.reset(seed=1)[0], world.reset(seed=1)[0]
    assert all(np.array_equal(one[name], other[name]) for name in other)
