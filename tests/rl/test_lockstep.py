"""CartPole through every adapter against Gymnasium's own, from the same starts."""

import gymnasium
import numpy as np
import pytest

import denizen as dz
from denizen.zoo.cartpole import CartPole

SEED = 3


def single(actions):
    world = dz.rl.to_gymnasium(CartPole(), device="cpu")
    seen = world.reset(seed=SEED)[0]
    for action in actions:
        last, reward, terminated, truncated, _ = world.step(action)
        now = world.reset()[0] if terminated or truncated else last
        yield seen, action, last, reward, terminated, truncated
        seen = now


def vector(actions, mode, tensors=False):
    worlds = dz.rl.Worlds(CartPole(), 1, device="cpu", max_resets=1)
    given = dz.rl.to_gymnasium(worlds, autoreset=mode, tensors=tensors)
    seen = given.reset(seed=SEED)[0]
    dead = False
    for action in actions:
        now, reward, terminated, truncated, infos = given.step(np.array([action]))
        last, ended = now, bool(terminated[0] or truncated[0])
        if mode == "same_step" and ended:
            last = infos["final_obs"]
        if mode == "disabled" and ended:
            now = given.reset(options={"reset_mask": terminated | truncated})[0]
        if dead:
            assert float(reward[0]) == 0
        else:
            yield seen[0], action, last[0], reward[0], terminated[0], truncated[0]
        dead = mode == "next_step" and ended
        seen = now


def sb3(actions):
    pytest.importorskip("stable_baselines3", reason="the extra sb3 is not installed")
    given = dz.rl.to_sb3(CartPole(), 1, device="cpu")
    given.seed(SEED)
    seen = given.reset()
    for action in actions:
        now, reward, done, infos = given.step(np.array([action]))
        cut = infos[0]["TimeLimit.truncated"]
        last = infos[0]["terminal_observation"] if done[0] else now[0]
        yield seen[0], action, last, reward[0], bool(done[0]) and not cut, cut
        seen = now


def pettingzoo(actions):
    world = dz.rl.to_pettingzoo(CartPole(), device="cpu")
    seen = world.reset(seed=SEED)[0]
    for action in actions:
        last, *flags, _ = world.step({"agent_0": action})
        yield seen["agent_0"], action, last["agent_0"], *(flag["agent_0"] for flag in flags)
        seen = last if world.agents else world.reset()[0]


def numbers(rows):
    return [tuple(np.asarray(part, dtype=np.float64).tolist() for part in row) for row in rows]


@pytest.mark.parametrize("steps", [120, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_adapter_agrees_with_gymnasiums_cartpole(steps):
    actions = np.random.default_rng(0).integers(0, 2, steps)
    original = gymnasium.make("CartPole-v1").unwrapped
    ways = {
        "single": single(actions),
        "same step": vector(actions, "same_step"),
        "tensors": vector(actions, "same_step", tensors=True),
        "next step": vector(actions, "next_step"),
        "disabled": vector(actions, "disabled"),
        "sb3": sb3(actions),
        "pettingzoo": pettingzoo(actions),
    }
    found = {name: numbers(way) for name, way in ways.items()}
    for name in ("same step", "tensors", "sb3"):
        assert found[name] == found["single"], name
    for name, rows in found.items():
        assert len(rows) > 0.9 * steps
        lives, expected, age = 0, None, 0
        for seen, action, last, reward, terminated, truncated in rows:
            if expected is None:
                assert np.all(np.abs(seen) <= 0.05), name
                original.reset()
                original.state, age = np.array(seen), 0
            else:
                assert seen == expected, name
            theirs, paid, over, _, _ = original.step(int(action))
            age += 1
            assert np.allclose(last, theirs, rtol=0, atol=1e-4), name
            assert (reward, bool(terminated), bool(truncated)) == (paid, over, age == 500), name
            expected = None if over or age == 500 else last
            lives += expected is None
        assert lives > steps / 30
