"""Worlds as a VecEnv of Stable-Baselines3, and its learners in them."""

import pickle
import sys
import warnings

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.errors import InputError, MissingExtra, ModelError
from denizen.zoo.cartpole import CartPole
from denizen.zoo.catch import Catch
from denizen.zoo.pendulum import Pendulum
from denizen.zoo.probes import Padded

sb3 = pytest.importorskip("stable_baselines3", reason="the extra sb3 is not installed")

from gymnasium.wrappers import TimeLimit  # noqa: E402
from sb3_contrib import MaskablePPO  # noqa: E402
from sb3_contrib.common.maskable.utils import get_action_masks  # noqa: E402
from stable_baselines3.common.env_checker import check_env  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecMonitor, VecNormalize  # noqa: E402


class Line(dz.State):
    """A place on a line."""

    at: torch.Tensor = dz.real()


class Walk(dz.Env):
    """From 0 to 3: left and right by a tenth of the strength, where no wall is; 5 steps at most."""

    strength: torch.Tensor = dz.param(10.0, low=0)
    time_limit = 5
    action_space = dz.rl.Discrete(2)
    observation_space = dz.rl.Box(-10, 10, (1,))

    def init(self, rng):
        return Line(at=torch.zeros(()))

    def step(self, now, action, rng):
        return now.replace(at=now.at + torch.where(action == 1, 0.1, -0.1) * self.strength)

    def observe(self, now):
        return now.at[None]

    def reward(self, before, action, now):
        return now.at - before.at

    def terminated(self, now):
        return now.at >= 3

    def action_mask(self, now):
        return torch.stack([now.at > 0, now.at < 10])

    @dz.series
    def walked(self, before, now):
        return (now.at - before.at).abs()


def test_ends_cuts_series_masks_and_parameters_are_told_as_that_library_tells_them():
    vector = dz.rl.to_sb3(Walk(), 3, device="cpu", params={"strength": torch.tensor([10.0, 5.0, 6.0])})
    assert isinstance(vector, VecEnv)
    assert vector.reset().tolist() == [[0], [0], [0]]
    assert [value.item() for value in vector.get_attr("strength", [0, 1])] == [10, 5]
    assert vector.get_attr("time_limit", 1) == [5]
    assert vector.has_attr("action_masks")
    assert not vector.has_attr("wings")
    assert get_action_masks(vector).tolist() == [[False, True]] * 3
    for number in range(1, 6):
        seen, reward, done, infos = vector.step(np.ones(3, dtype=np.int64))
        assert (reward.dtype, done.dtype) == (np.float32, np.bool_)
        assert infos[1]["walked"] == pytest.approx(0.5)
        if number == 3:
            assert done.tolist() == [True, False, False]
            assert infos[0]["terminal_observation"].tolist() == [3]
            assert infos[0]["TimeLimit.truncated"] is False
            assert seen[0].tolist() == [0]
    assert done.tolist() == [False, True, True]
    assert infos[1]["terminal_observation"].tolist() == [2.5]
    assert infos[1]["TimeLimit.truncated"] is True
    assert infos[2]["TimeLimit.truncated"] is False  # it arrived as time ran out
    assert "terminal_observation" not in infos[0]
    assert vector.env_method("action_masks", indices=[1])[0].tolist() == [False, True]
    assert vector.env_is_wrapped(TimeLimit) == [False] * 3
    with pytest.raises(InputError, match="to_sb3"):
        vector.set_attr("strength", 1.0)
    with pytest.raises(InputError, match="Walk has no method 'fly'"):
        vector.env_method("fly")
    with pytest.raises(InputError, match="no step was begun"):
        vector.step_wait()
    with pytest.raises(ModelError, match="outside the action space"):
        vector.step(np.full(3, 2))
    vector.set_options({"low": 0})
    with pytest.raises(InputError, match="options"):
        vector.reset()


def test_seeds_pictures_and_copies():
    vector = dz.rl.to_sb3(CartPole(), 2, device="cpu")
    assert vector.seed(4) == [4, 5]
    first, other = vector.reset(), vector.reset()
    vector.seed(4)
    assert np.array_equal(vector.reset(), first)
    assert not np.array_equal(other, first)
    tall, wide, _ = vector.env_method("render")[0].shape
    assert vector.render().size == 2 * tall * wide * 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch, about its own trees
        again = pickle.loads(pickle.dumps(vector))
    again.seed(4)
    assert np.array_equal(again.reset(), first)


def test_that_librarys_checker_and_wrappers_take_worlds():
    check_env(dz.rl.to_gymnasium(CartPole(), device="cpu"))
    stacked = VecFrameStack(VecNormalize(VecMonitor(dz.rl.to_sb3(CartPole(), 2, device="cpu"))), 3)
    assert stacked.reset().shape == (2, 12)
    for _ in range(12):
        *_, done, infos = stacked.step(np.ones(2, dtype=np.int64))
        assert all("episode" in info and info["terminal_observation"].shape == (12,) for info in np.array(infos)[done])


class Parted(Walk):
    """Shows its place and how old it is."""

    observation_space = dz.rl.Dict({"at": dz.rl.Box(-10, 10, (1,)), "age": dz.rl.Discrete(6)})

    def observe(self, now):
        return {"at": now.at[None], "age": now.time.step}


def test_what_is_seen_may_have_parts():
    check_env(dz.rl.to_gymnasium(Parted(), device="cpu"))
    vector = dz.rl.to_sb3(Parted(), 2, device="cpu", params={"strength": torch.tensor([5.0, 6.0])})
    learner = MaskablePPO("MultiInputPolicy", vector, n_steps=8, batch_size=16, n_epochs=1, seed=0, device="cpu")
    learner.learn(16)
    vector.reset()
    for _ in range(5):
        seen, _, done, infos = vector.step(np.ones(2, dtype=np.int64))
    assert done.all()
    assert seen["age"].tolist() == [0, 0]
    assert infos[0]["terminal_observation"]["age"] == 5
    assert infos[0]["terminal_observation"]["at"].tolist() == [2.5]


class Choosing(Walk):
    """Walks by two of its choices, which have parts; the first way is closed at 0."""

    action_space = dz.rl.Tuple(
        (dz.rl.Discrete(3, start=4), dz.rl.Dict({"way": dz.rl.MultiDiscrete((2, 2)), "on": dz.rl.MultiBinary(1)}))
    )

    def step(self, now, action, rng):
        walks = (action[0] == 5) & (action[1]["on"][0] == 1)
        return now.replace(at=now.at + 0.1 * self.strength * walks * (2 * action[1]["way"][1] - 1))

    def action_mask(self, now):
        open_ = torch.ones(9, dtype=torch.bool)
        return torch.where(torch.arange(9) == 5, now.at > 0, open_)


class Pushing(Walk):
    """Walks by the sum of numbers of several parts."""

    action_space = dz.rl.Dict({"b": dz.rl.Box(-1, [0.5, 1.0], (2,)), "a": dz.rl.Tuple((dz.rl.Box(-3, 2, (1, 1)),))})
    action_mask = dz.Env.action_mask

    def step(self, now, action, rng):
        return now.replace(at=now.at + action["b"][1] + 10 * action["a"][0].sum())


def test_actions_of_several_parts_are_flat_there():
    vector = dz.rl.to_sb3(Choosing(), 2, device="cpu")
    assert vector.action_space.nvec.tolist() == [3, 2, 2, 2]
    vector.reset()
    seen, *_ = vector.step(np.array([[1, 0, 1, 1], [0, 0, 1, 1]]))
    assert seen.tolist() == [[1], [0]]
    assert get_action_masks(vector)[:, 5].tolist() == [True, False]
    learner = MaskablePPO("MlpPolicy", vector, n_steps=8, batch_size=16, n_epochs=1, seed=0, device="cpu")
    learner.learn(16)

    vector = dz.rl.to_sb3(Pushing(), 2, device="cpu")
    assert vector.action_space.low.tolist() == [-1, -1, -3]
    assert vector.action_space.high.tolist() == [0.5, 1, 2]
    vector.reset()
    seen, *_ = vector.step(np.array([[0.5, 1, 0.1], [-1, -0.25, 0]], np.float32))
    assert seen[:, 0].tolist() == pytest.approx([2, -0.25])
    vector = dz.rl.to_sb3(Choosing(), 1, device="cpu")
    vector.reset()
    with pytest.raises(ModelError, match=r"outside the action space at \[1\]\['way'\]"):
        vector.step(np.array([[1, 0, 2, 1]]))


def test_what_does_not_fit_is_refused(monkeypatch):
    with pytest.raises(InputError, match=r"to_sb3: env is the class Catch, expected a dz\.Env"):
        dz.rl.to_sb3(Catch, 2)
    with pytest.raises(InputError, match=r"Padded has 3 actors.*to_pettingzoo"):
        dz.rl.to_sb3(Padded(actors=3), 2)
    with pytest.raises(InputError, match="num_envs=0"):
        dz.rl.to_sb3(Catch(), 0)
    for attribute, space, what in (
        ("action_space", dz.rl.Discrete(2, start=1), "counts from 0"),
        ("action_space", dz.rl.Box(0, 3, (2,), torch.int64), "draws real numbers for a Box"),
        ("observation_space", dz.rl.Discrete(4, start=-1), "counts from 0"),
        ("observation_space", dz.rl.Tuple((dz.rl.Discrete(4),)), "knows a flat Dict only"),
        ("action_space", dz.rl.Tuple((dz.rl.Discrete(4), dz.rl.Box(0, 1, ()))), "acts by choices or by numbers, not"),
        ("action_space", dz.rl.Tuple((dz.rl.Box(0, 3, (), torch.int8),)), "draws real numbers for a Box"),
    ):
        odd = type("Odd", (Walk,), {attribute: space})
        with pytest.raises(InputError, match=f"Odd has {attribute}.*, and Stable-Baselines3 {what}"):
            dz.rl.to_sb3(odd(), 2)
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(MissingExtra, match=r"pip install 'denizen\[sb3\]'"):
        dz.rl.to_sb3(Catch(), 2)


def test_masked_ppo_walks_into_no_wall():
    vector = VecMonitor(dz.rl.to_sb3(Walk(), 4, device="cpu"))
    learner = MaskablePPO("MlpPolicy", vector, n_steps=16, batch_size=32, n_epochs=2, seed=0, device="cpu")
    learner.learn(128)
    seen = vector.reset()
    action, _ = learner.predict(seen, action_masks=get_action_masks(vector))
    assert action.tolist() == [1] * 4


@pytest.mark.slow
def test_its_dqn_and_sac_run():
    vector = VecMonitor(dz.rl.to_sb3(CartPole(), 4, device="cpu"))
    sb3.DQN("MlpPolicy", vector, learning_starts=100, train_freq=8, seed=0, device="cpu").learn(800)
    vector = VecMonitor(dz.rl.to_sb3(Pendulum(), 4, device="cpu"))
    learner = sb3.SAC("MlpPolicy", vector, learning_starts=100, train_freq=8, seed=0, device="cpu").learn(1000)
    buffer = learner.replay_buffer
    cut = buffer.timeouts[: buffer.pos].astype(bool)
    assert cut.sum() == 4  # of 250 steps each world was cut off once, after 200
    assert buffer.dones[: buffer.pos].astype(bool)[cut].all()
    for row, world in np.argwhere(cut):  # the next observation is the last of that life: the pole cannot have jumped
        before, after = buffer.observations[row, world], buffer.next_observations[row, world]
        assert np.abs(np.arctan2(after[1], after[0]) - np.arctan2(before[1], before[0])) % (2 * np.pi) < 0.45


@pytest.mark.slow
def test_its_sac_pushes_by_several_parts():
    vector = VecMonitor(dz.rl.to_sb3(Pushing(), 4, device="cpu"))
    sb3.SAC("MlpPolicy", vector, learning_starts=40, train_freq=8, seed=0, device="cpu").learn(200)


@pytest.mark.long
def test_its_ppo_learns_to_balance():
    vector = VecMonitor(dz.rl.to_sb3(CartPole(), 8, device="cpu"))
    learner = sb3.PPO("MlpPolicy", vector, n_steps=128, batch_size=256, seed=0, device="cpu").learn(60_000)
    mean, _ = evaluate_policy(learner, vector, 20)
    assert mean > 150  # random actions come to 22
