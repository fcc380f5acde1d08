"""One world as Gymnasium's Env, and lives that begin anew a step later, or on demand."""

import copy
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import wrappers
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.zoo.cartpole import CartPole
from denizen.zoo.catch import Catch
from denizen.zoo.fruits import Fruits
from denizen.zoo.pendulum import Pendulum
from denizen.zoo.probes import Padded
from rl_worlds import Numbered

# What Gymnasium says of spaces that are the original's own.
KNOWN = ("is -infinity. This is probably too low", "is infinity. This is probably too high", "symmetric and normalized")


@pytest.mark.parametrize("env", [Catch(), Fruits(), CartPole(), Pendulum()], ids=lambda env: type(env).__name__)
def test_gymnasiums_checker_finds_nothing(env):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        check_env(dz.rl.to_gymnasium(env, device="cpu"))
    said = [str(one.message) for one in told]
    assert [one for one in said if not any(known in one for known in KNOWN)] == []
    assert not said or isinstance(env, CartPole | Pendulum)


def test_gymnasiums_wrappers_take_a_single_world():
    world = wrappers.TimeLimit(dz.rl.to_gymnasium(Catch(), device="cpu", render_mode="rgb_array"), 7)
    world = wrappers.RecordEpisodeStatistics(wrappers.OrderEnforcing(world))
    world = wrappers.FrameStackObservation(wrappers.NormalizeObservation(world), 3)
    world = wrappers.TransformReward(world, lambda reward: reward + 1)
    assert world.spec.max_episode_steps == 7
    seen, _ = world.reset(seed=3)
    assert seen.shape == (3, 10, 5)
    for number in range(1, 8):
        _, reward, terminated, truncated, info = world.step(np.int64(1))
        assert (reward, terminated, truncated) == (1, False, number == 7)
    assert (info["episode"]["r"], info["episode"]["l"]) == (0, 7)
    assert world.render().dtype == np.uint8


def test_a_single_world_can_be_copied_and_sent_to_another_process():
    world = dz.rl.to_gymnasium(Catch(), device="cpu", seed=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch, about its own trees
        others = [pickle.loads(pickle.dumps(world)), copy.deepcopy(world), world.spec.make().unwrapped]
    seen = world.reset()[0]
    for other in others:
        assert type(other) is type(world)
        assert np.array_equal(other.reset()[0], seen)


def test_what_does_not_fit_a_single_world_is_refused():
    with pytest.raises(InputError, match="to_pettingzoo"):
        dz.rl.to_gymnasium(Padded())
    with pytest.raises(InputError, match=r"render_mode='human', expected None or 'rgb_array'"):
        dz.rl.to_gymnasium(Catch(), device="cpu", render_mode="human")
    with pytest.raises(InputError, match=r"tensors= and autoreset= are of a dz\.rl\.Worlds"):
        dz.rl.to_gymnasium(Catch(), autoreset="next_step")
    worlds = dz.rl.Worlds(Catch(), 2, device="cpu", max_resets=2)
    with pytest.raises(InputError, match="seed=, device= and render_mode= are of a single world"):
        dz.rl.to_gymnasium(worlds, seed=1)
    with pytest.raises(InputError, match=r"autoreset='next', did you mean 'next_step'"):
        dz.rl.to_gymnasium(worlds, autoreset="next")
    with pytest.raises(InputError, match="tensors=True with autoreset='disabled'"):
        dz.rl.to_gymnasium(worlds, tensors=True, autoreset="disabled")
    world = dz.rl.to_gymnasium(Catch(), device="cpu")
    with pytest.raises(InputError, match=r"call reset\(\) first"):
        world.step(0)
    world.reset()
    with pytest.raises(InputError, match=r"action has shape \(1,\), expected \(\)"):
        world.step([0])
    with pytest.raises(ModelError, match="an action outside the action space"):
        world.step(3)
    world.reset(seed=0)
    while not world.step(1)[2]:
        pass
    with pytest.raises(InputError, match="the life is over"):
        world.step(1)


def chosen_by(seen):
    """An action that depends on what is seen alone."""
    return (np.floor(seen[:, 0] * 7 + seen[:, 1]).astype(np.int64) % 3 > 0).astype(np.int64)


def rollout(mode, steps=60, count=4):
    """Rows `[steps, worlds]` of a loop over a vector environment, as a learner stores them, and what it sees last."""
    worlds = dz.rl.Worlds(Numbered(), count, device="cpu", max_resets=count)
    vector = dz.rl.to_gymnasium(worlds, autoreset=mode)
    seen, _ = vector.reset(seed=0)
    rows, dead = [], np.zeros(count, bool)
    for _ in range(steps):
        action = chosen_by(seen)
        new, reward, terminated, truncated, infos = vector.step(action)
        ended, last = terminated | truncated, new.copy()
        if mode == "same_step":
            for world in np.flatnonzero(ended):
                last[world] = infos["final_obs"][world]
        assert np.array_equal(infos["_pushed"], ~dead)
        assert np.allclose(infos["pushed"], reward)
        rows.append((seen, action, reward, last, terminated, truncated, ~dead))
        if mode == "disabled" and ended.any():
            with pytest.raises(InputError, match="is over"):
                vector.step(action)
            new, _ = vector.reset(options={"reset_mask": ended})
        if mode == "next_step":
            assert np.all(reward[dead] == 0)
            assert not ended[dead].any()
            dead = ended
        seen = new
    return [np.stack(column) for column in zip(*rows, strict=True)]


def value(seen):
    """What a critic may think."""
    return torch.as_tensor(seen[..., 0] * 0.5 - seen[..., 2] * 0.1, dtype=torch.float32)


def targets(mode):
    """Of each world its transitions, the advantage of each last: dead ones left out."""
    seen, action, reward, last, terminated, truncated, valid = rollout(mode)
    flags = [torch.as_tensor(flag) for flag in (terminated, truncated, valid)]
    paid = torch.as_tensor(reward, dtype=torch.float32)
    gained = dz.rl.advantages(paid, value(seen), value(last), *flags, 0.9, 0.8).advantage.numpy()
    columns = [seen, action[..., None], reward[..., None], last, terminated[..., None], truncated[..., None]]
    table = np.concatenate([*columns, gained[..., None]], axis=2)
    return [table[valid[:, world], world] for world in range(table.shape[1])]


def test_every_way_to_begin_anew_gives_the_same_learning_targets():
    same, later, never = (targets(mode) for mode in ("same_step", "next_step", "disabled"))
    for mine, other, third in zip(same, later, never, strict=True):
        assert np.array_equal(mine, third)
        assert mine[:, 8].any()
        assert mine[:, 9].any()
        whole = 1 + np.flatnonzero(other[:, 8] + other[:, 9])[-1]  # of the last life more or less is seen
        assert 30 < whole < len(mine)
        assert np.array_equal(mine[:whole], other[:whole])


def test_the_dead_step_takes_nothing_and_gives_the_first_look():
    worlds = dz.rl.Worlds(Numbered(), 3, device="cpu", max_resets=3)
    vector = dz.rl.to_gymnasium(worlds, autoreset="next_step")
    assert vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    vector.reset(seed=0)
    for _ in range(4):
        seen, _, terminated, *_ = vector.step(np.array([1, 0, 0]))
    assert terminated.tolist() == [True, False, False]
    assert seen[0, 0] == pytest.approx(3.6)
    seen, reward, terminated, *_ = vector.step(np.array([9, 0, 0]))  # what is no choice is not used either
    assert (reward[0], terminated[0]) == (0, False)
    assert seen[0].tolist() == [pytest.approx(0.37), 1, 0]
    seen, *_ = vector.step(np.array([1, 0, 0]))
    assert seen[0].tolist() == [pytest.approx(1.27), 1, 1]


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_gymnasiums_vector_wrappers_take_worlds(mode):
    worlds = dz.rl.Worlds(Numbered(), 3, device="cpu", max_resets=3)
    vector = dz.rl.to_gymnasium(worlds, autoreset=mode)
    if mode == "next_step":  # Gymnasium's own takes no other
        vector = wrappers.vector.NormalizeObservation(vector)
    vector = wrappers.vector.NormalizeReward(wrappers.vector.RecordEpisodeStatistics(vector))
    vector = wrappers.vector.ClipReward(vector, -10, 10)
    seen, _ = vector.reset(seed=0)
    told = []
    for _ in range(30):
        seen, _, _, _, infos = vector.step(np.ones(3, dtype=np.int64))
        if "episode" in infos:
            told += infos["episode"]["l"][infos["_episode"]].tolist()
    assert set(told) == {4, 3, 2}
    assert seen.shape == (3, 3)


def test_some_worlds_begin_anew_on_demand():
    vector = dz.rl.to_gymnasium(dz.rl.Worlds(CartPole(), 3, device="cpu", max_resets=3), autoreset="disabled")
    first, _ = vector.reset(seed=5)
    seen, *_ = vector.step(np.ones(3, dtype=np.int64))
    new, _ = vector.reset(options={"reset_mask": np.array([False, True, False])})
    assert np.array_equal(new[[0, 2]], seen[[0, 2]])
    assert not np.isin(new[1], first).any()
    assert np.all(np.abs(new[1]) <= 0.05)
    for mask in (np.zeros(3, bool), np.ones(2, bool), np.ones(3)):
        with pytest.raises(InputError, match="reset_mask is"):
            vector.reset(options={"reset_mask": mask})
    with pytest.raises(InputError, match="with a reset_mask of some worlds"):
        vector.reset(seed=1, options={"reset_mask": np.array([True, False, True])})
    assert np.array_equal(vector.reset(seed=5)[0], first)


def test_gymnasiums_own_vectors_are_made_of_single_worlds():
    made = gymnasium.vector.SyncVectorEnv([lambda: dz.rl.to_gymnasium(Catch(), device="cpu") for _ in range(2)])
    seen, _ = made.reset(seed=[1, 2])
    alone = dz.rl.to_gymnasium(Catch(), device="cpu")
    assert np.array_equal(seen[1], alone.reset(seed=2)[0])
    assert made.step(np.array([0, 1]))[0].shape == (2, 10, 5)


def test_the_zoo_is_made_by_name():
    ids = dz.zoo.register_gymnasium()
    assert dz.zoo.register_gymnasium() == ids  # a second time nothing is registered anew, nor warned of
    assert "denizen/cartpole-v0" in ids
    made = gymnasium.make("denizen/breakout-v0", sticky=0.1, device="cpu", render_mode="rgb_array")
    assert made.unwrapped.worlds.env.sticky == pytest.approx(0.1)
    assert made.spec.id == "denizen/breakout-v0"
    made.reset(seed=0)
    assert made.render().shape == (80, 80, 3)
    many = gymnasium.make_vec("denizen/cartpole-v0", num_envs=3, device="cpu", seed=4, autoreset="next_step")
    assert many.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    first = dz.rl.Worlds(CartPole(), 3, device="cpu", seed=4).reset().observation
    assert np.array_equal(many.reset()[0], first)
