"""The classic control tasks against Gymnasium, from set states and along whole lives."""

import math

import gymnasium
import numpy as np
import pytest
import torch

import denizen as dz
from denizen.zoo.acrobot import Acrobot, Links
from denizen.zoo.cartpole import CartPole, Pole
from denizen.zoo.mountaincar import Car, MountainCar
from denizen.zoo.mountaincar_continuous import MountainCarContinuous
from denizen.zoo.pendulum import Pendulum, Swing

COUNT = 1_000
# (world, Gymnasium's, half the width of the box that set states are drawn from, its middle)
TASKS = [
    (CartPole(), "CartPole-v1", [3.0, 2.0, 0.25, 2.0], [0.0] * 4),
    (Acrobot(), "Acrobot-v1", [math.pi, math.pi, 4 * math.pi, 9 * math.pi], [0.0] * 4),
    (MountainCar(), "MountainCar-v0", [0.9, 0.07], [-0.3, 0.0]),
    (MountainCarContinuous(), "MountainCarContinuous-v0", [0.9, 0.07], [-0.3, 0.0]),
    (Pendulum(), "Pendulum-v1", [math.pi, 8.0], [0.0, 0.0]),
]
KINDS = {
    "CartPole-v1": Pole,
    "Acrobot-v1": Links,
    "MountainCar-v0": Car,
    "MountainCarContinuous-v0": Car,
    "Pendulum-v1": Swing,
}
IDS = [name for _, name, *_ in TASKS]


def begun(env, states):
    """Worlds in the given states `[worlds, numbers]`."""
    worlds = dz.rl.Worlds(env, len(states), device="cpu", max_resets=0)
    worlds.reset()
    worlds.run_state.leaves = list(torch.tensor(states, dtype=torch.float32).unbind(1))
    return worlds


def actions(env, count, generator):
    if isinstance(env.action_space, dz.rl.Discrete):
        return torch.tensor(generator.integers(0, env.action_space.n, count))
    return torch.tensor(generator.uniform(-2, 2, (count, 1)), dtype=torch.float32)


def theirs(name):
    env = gymnasium.make(name).unwrapped
    env.reset(seed=0)
    if name == "CartPole-v1":
        env.steps_beyond_terminated = None
    return env


@pytest.mark.parametrize(("env", "name", "width", "middle"), TASKS, ids=IDS)
def test_the_equations_are_gymnasiums_to_twelve_digits(env, name, width, middle):
    generator, other = np.random.default_rng(0), theirs(name)
    states = np.array(middle) + generator.uniform(-1, 1, (COUNT, len(width))) * width
    given = actions(env, COUNT, generator)
    kind = KINDS[name]
    now = kind(**dict(zip(kind.kinds, torch.tensor(states).unbind(1), strict=True)))
    given = given.double().movedim(-1, 0) if given.dim() > 1 else given.double()  # the entries of one action come first
    after = env.step(now, given, None)
    observed, paid, over = env.observe(after).T, env.reward(now, given, after), env.terminated(after)
    assert observed.dtype == torch.float64
    for row, state in enumerate(states):
        other.state = state
        if name == "CartPole-v1":
            other.steps_beyond_terminated = None
        action = given[..., row].numpy()
        _, reward, terminated, *_ = other.step(action if action.shape else int(action))
        reached = torch.tensor(np.array(other.state, dtype=np.float64))
        theirs_seen = env.observe(kind(**dict(zip(kind.kinds, reached, strict=True))))
        exact = 1e-7 if name == "MountainCarContinuous-v0" else 1e-12  # which keeps its state in float32
        torch.testing.assert_close(observed[row], theirs_seen, rtol=exact, atol=exact)
        assert float(paid[row]) == pytest.approx(reward, rel=1e-12)
        assert bool(over[row]) == terminated


@pytest.mark.parametrize(("env", "name", "width", "middle"), TASKS, ids=IDS)
def test_steps_of_a_batch_in_float32_are_gymnasiums(env, name, width, middle):
    generator = np.random.default_rng(1)
    width = [math.pi, math.pi, 3.0, 3.0] if name == "Acrobot-v1" else width  # fast links are too chaotic for float32
    states = (np.array(middle) + generator.uniform(-1, 1, (COUNT, len(width))) * width).astype(np.float32)
    given, other = actions(env, COUNT, generator), theirs(name)
    step = begun(env, states).step(given)
    for row, (state, action) in enumerate(zip(states.astype(np.float64), given.numpy(), strict=True)):
        other.state = state
        if name == "CartPole-v1":
            other.steps_beyond_terminated = None
        observation, reward, terminated, *_ = other.step(action if action.shape else int(action))
        observed, paid = step.observed.observation[row].numpy(), float(step.reward[row])
        np.testing.assert_allclose(observed, observation, rtol=2e-5, atol=5e-5, err_msg=f"{state} {action}")
        assert paid == pytest.approx(reward, rel=1e-5, abs=1e-5)
        assert bool(step.terminated[row]) == terminated, (state, observed)


@pytest.mark.parametrize(("env", "name", "width", "middle"), TASKS, ids=IDS)
def test_a_whole_life_is_gymnasiums(env, name, width, middle):
    """The same actions from the same start; float32 against float64 drifts apart, so chaos gets few steps."""
    steps = {"Acrobot-v1": 25}.get(name, env.time_limit)
    generator, other = np.random.default_rng(2), gymnasium.make(name)
    worlds = dz.rl.Worlds(env, 1, device="cpu", max_resets=0)
    observed = worlds.reset()
    other.reset(seed=0)
    other.unwrapped.state = np.array([float(leaf[0]) for leaf in worlds.run_state.leaves])
    for number in range(steps):
        given = actions(env, 1, generator)
        step = worlds.step(given)
        observation, reward, terminated, truncated, _ = other.step(given[0].numpy() if given.dim() > 1 else int(given))
        np.testing.assert_allclose(step.observed.observation[0].numpy(), observation, rtol=1e-3, atol=1e-3)
        assert float(step.reward) == pytest.approx(reward, rel=1e-3, abs=1e-3)
        assert (bool(step.terminated), bool(step.truncated)) == (terminated, truncated), number
        if terminated or truncated:
            break
    assert observed.observation.shape == (1, *env.observation_space.shape)


@pytest.mark.parametrize(("env", "name", "width", "middle"), TASKS, ids=IDS)
def test_starts_spaces_and_limits_are_gymnasiums(env, name, width, middle):
    other = gymnasium.make(name)
    starts = dz.rl.Worlds(env, 4_000, device="cpu").reset().observation.numpy()
    for_comparison = np.stack([other.reset(seed=seed)[0] for seed in range(1_000)])
    np.testing.assert_allclose(starts.mean(0), for_comparison.mean(0), atol=0.1)
    np.testing.assert_allclose(starts.std(0), for_comparison.std(0), rtol=0.1, atol=1e-3)
    np.testing.assert_allclose(starts.min(0), for_comparison.min(0), atol=0.02)
    np.testing.assert_allclose(starts.max(0), for_comparison.max(0), atol=0.02)
    assert env.time_limit == other.spec.max_episode_steps
    assert tuple(env.observation_space.shape) == other.observation_space.shape
    if isinstance(env.action_space, dz.rl.Discrete):
        assert env.action_space.n == other.action_space.n
    else:
        assert env.action_space.low == other.action_space.low
        assert env.action_space.high == other.action_space.high


def test_the_wall_of_the_valley_stops_the_car():
    worlds = begun(MountainCar(), [[-1.19, -0.05], [-1.19, 0.05]])
    worlds.step(torch.tensor([0, 0]))
    x, speed = worlds.run_state.leaves
    assert x[0] == torch.tensor(-1.2)
    assert speed[0] == 0
    assert speed[1] > 0
