"""Adapters: worlds as Gymnasium's VectorEnv, Gymnasium's environments as worlds."""

import pickle
import sys
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import denizen as dz
from denizen.errors import InputError, MissingExtra, ModelError
from denizen.zoo.breakout import Breakout
from denizen.zoo.cartpole import CartPole
from denizen.zoo.fruits import Fruits
from denizen.zoo.pendulum import Pendulum
from denizen.zoo.probes import Memory, Padded

COUNT = 6


def vector(env, count=COUNT, **options):
    return dz.rl.to_gymnasium(dz.rl.Worlds(env, count, device="cpu"), **options)


@pytest.mark.parametrize(
    ("env", "tensors"),
    [(CartPole(), False), (CartPole(), True), (Pendulum(), False), (Breakout(), False), (Fruits(), False)],
    ids=["CartPole", "CartPole as tensors", "Pendulum", "Breakout", "Fruits"],
)
def test_a_vector_env_gives_what_the_worlds_give(env, tensors):
    given, worlds = vector(env, tensors=tensors), dz.rl.Worlds(env, COUNT, device="cpu", seed=7)
    assert given.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    given.action_space.seed(0)
    seen, infos = given.reset(seed=7)
    assert np.array_equal(seen, worlds.reset().observation)
    assert infos == {}
    lives = 0
    for _ in range(60):
        action = given.action_space.sample()
        step = worlds.step(torch.as_tensor(action))
        seen, reward, terminated, truncated, infos = given.step(torch.as_tensor(action) if tensors else action)
        for mine, theirs in (
            (seen, step.observed.observation),
            (terminated, step.terminated),
            (truncated, step.truncated),
        ):
            assert isinstance(mine, torch.Tensor if tensors else np.ndarray)
            assert np.array_equal(mine, theirs)
        assert np.allclose(reward, step.reward)
        assert tensors or seen in given.observation_space
        for name, flow in step.flows.items():
            assert np.array_equal(infos[name], flow)
        for row in step.ended.nonzero().flatten().tolist():
            lives += 1
            assert bool(infos["_final_obs"][row])
            assert np.array_equal(infos["final_obs"][row], step.final.observation[row])
    assert lives > 0 or isinstance(env, Pendulum | Fruits)


def test_seeds_and_resets():
    given = vector(CartPole())
    first = given.reset()[0]
    second, third = given.reset()[0], given.reset()[0]
    assert len(np.unique(np.concatenate([first, second, third])[:, 0])) == 3 * COUNT
    assert np.array_equal(given.reset(seed=0)[0], first)
    assert not np.array_equal(given.reset(seed=1)[0], first)
    with pytest.raises(InputError, match="seed=-1"):
        given.reset(seed=-1)
    with pytest.raises(InputError, match="options"):
        given.reset(options={"low": 0})


def test_gymnasiums_wrappers_work():
    given = gymnasium.wrappers.vector.RecordEpisodeStatistics(vector(CartPole(), 4))
    given.reset(seed=0)
    total, told = np.zeros(4), []
    for _ in range(80):
        *_, infos = given.step(np.ones(4, dtype=np.int64))
        total += 1
        if "episode" in infos:
            ended = infos["_episode"]
            told += list(zip(infos["episode"]["r"][ended], total[ended], strict=True))
            total[ended] = 0
    assert len(told) > 10
    assert all(a == b for a, b in told)


def test_a_vector_env_can_be_pickled_for_another_process():
    vector = dz.rl.to_gymnasium(dz.rl.Worlds(CartPole(), 2, max_resets=2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch, about its own trees
        again = pickle.loads(pickle.dumps(vector))
    assert type(again) is type(vector)
    assert np.array_equal(again.reset(seed=1)[0], vector.reset(seed=1)[0])


def test_pictures():
    given = vector(Breakout(), 2)
    assert given.render_mode == "rgb_array"
    given.reset()
    assert [picture.shape for picture in given.render()] == [(80, 80, 3)] * 2
    words = vector(Fruits(), 1)
    words.reset()
    assert words.render_mode == "ansi"
    assert "score" in words.render()[0]
    assert vector(Memory(), 1).render_mode is None


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match=r"env is the class CartPole, expected a dz\.Env, such as"):
        dz.rl.to_gymnasium(CartPole)
    with pytest.raises(InputError, match="to_pettingzoo"):
        vector(Padded())
    with pytest.raises(InputError, match="max_resets=200"):
        dz.rl.to_gymnasium(dz.rl.Worlds(CartPole(), 200, max_resets=64, device="cpu"))
    given = vector(CartPole(), 3)
    given.reset()
    with pytest.raises(InputError, match=r"action is \(2,\), expected a tensor of shape \(3,\)"):
        given.step(np.zeros(2, dtype=np.int64))
    with pytest.raises(ModelError, match="an action outside the action space, in world 1 at step 0"):
        given.step(np.array([0, 5, 0]))


def test_without_gymnasium_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtra, match=r"pip install 'denizen\[gym\]'"):
        vector(CartPole())
    with pytest.raises(MissingExtra, match=r"pip install 'denizen\[gym\]'"):
        dz.rl.FromGymnasium("CartPole-v1", 2)


# --- in ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_gymnasiums_environments_are_stepped_as_worlds(name, processes):
    singles = [gymnasium.make(name) for _ in range(3)]
    generator = torch.Generator().manual_seed(0)
    with dz.rl.FromGymnasium(name, 3, seed=4, device="cpu", processes=processes) as worlds:
        observed = worlds.reset()
        expected = np.stack([single.reset(seed=4 + k)[0] for k, single in enumerate(singles)])
        assert np.array_equal(observed.observation, expected)
        ends = 0
        for _ in range(60 if name == "CartPole-v1" else 205):
            if name == "CartPole-v1":
                action = torch.randint(0, 2, (3,), generator=generator)
            else:
                action = 4 * torch.rand(3, 1, generator=generator) - 2
            step = worlds.step(action)
            assert bool(step.valid.all())
            for k, single in enumerate(singles):
                seen, reward, terminated, truncated, _ = single.step(action[k].numpy())
                assert np.array_equal(step.final.observation[k], seen)
                told = (float(step.reward[k]), bool(step.terminated[k]), bool(step.truncated[k]))
                assert told == (pytest.approx(reward, rel=1e-6), terminated, truncated)
                if terminated or truncated:
                    seen, ends = single.reset()[0], ends + 1
                assert np.array_equal(step.observed.observation[k], seen)
        assert ends > 0
        worlds.check()


def test_a_policy_can_be_made_for_it_and_play():
    with dz.rl.FromGymnasium("CartPole-v1", 2, device="cpu", processes=False) as worlds:
        policy = dz.rl.mlp(worlds.env, (8,))
        observed = worlds.reset()
        judged = policy(observed.observation, policy.first_memory(2, torch.device("cpu")))
        assert worlds.step(judged.actions.mode()).reward.tolist() == [1, 1]
        with pytest.raises(dz.errors.InputError, match="that of a FromGymnasium, whose worlds are on the host"):
            dz.train(worlds.env, policy, dz.PPO(), 100, device="cpu")  # nothing could ever be learnt there


class Odd(gymnasium.Env):
    """Actions from 1 to 3, a Discrete observation."""

    action_space = spaces.Discrete(3, start=1)
    observation_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        assert action in self.action_space
        return int(action), 0.0, False, False, {}


class Nested(Odd):
    observation_space = spaces.Dict({"a": spaces.Tuple((spaces.Discrete(2), spaces.Text(3)))})


def test_discrete_spaces_may_start_elsewhere_and_be_observed():
    with dz.rl.FromGymnasium(Odd, 2, device="cpu", processes=False) as worlds:
        assert worlds.env.action_space == dz.rl.Discrete(3, start=1)
        assert worlds.reset().observation.tolist() == [0, 0]
        assert worlds.step(torch.tensor([1, 3])).observed.observation.tolist() == [1, 3]


def sampling(acts, sees):
    """An environment that shows samples of its space and insists on actions within."""

    class Sampling(gymnasium.Env):
        action_space, observation_space = acts, sees

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.observation_space.seed(seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            assert self.action_space.contains(np.asarray(action)), action
            return self.observation_space.sample(), float(np.sum(action)), False, False, {}

    return Sampling


SPACES = [
    spaces.Box(np.array([-1, 0, 0], np.float32), np.array([1, 1, 1], np.float32)),
    spaces.Box(np.array([[-np.inf, 0.1], [0, -3]], np.float32), np.array([[0.3, np.inf], [0, -2]], np.float32)),
    spaces.Box(0.1, 0.3, (2,), np.float64),
    spaces.Box(-0.1, 0.3, (2,), np.float16),
    spaces.Box(0.0, np.inf, (2,)),
    spaces.Box(1, 1, (2,)),
    spaces.Box(-3, 3, (2,), np.int32),
    spaces.Box(0, 500, (2,), np.uint16),
    spaces.Box(0, 255, (2, 3), np.uint8),
    spaces.Box(0, 1, (2,), np.bool_),
    spaces.Box(-1, 1, ()),
    spaces.Box(np.array([-5, 0]), np.array([-2, 9]), dtype=np.int64),
    spaces.MultiBinary((2, 3)),
    spaces.Discrete(4, start=-2),
    spaces.Discrete(1, start=5),
    spaces.MultiDiscrete([2, 5]),
    spaces.MultiBinary(3),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_what_gymnasium_samples_lies_in_the_space_and_the_bounds_are_its_own(space):
    with dz.rl.FromGymnasium(sampling(space, space), 3, device="cpu", processes=False) as worlds:
        acts, sees = worlds.env.action_space, worlds.env.observation_space
        space.seed(0)
        seen = worlds.reset().observation
        for _ in range(10):
            sampled = np.stack([space.sample() for _ in range(3)])
            step = worlds.step(torch.as_tensor(sampled))
            wanted = sampled.astype(np.float64).reshape(3, -1).sum(1)
            assert np.allclose(step.reward, wanted, rtol=1e-2)  # of the numbers as they were given
            assert not sees.fault(torch.cat([seen, step.observed.observation])).any()
        if isinstance(acts, dz.rl.Discrete):
            assert acts == sees == dz.rl.Discrete(space.n, space.start)
        if not isinstance(acts, dz.rl.Box):
            return
        far = torch.full((3, *acts.shape), 100.0).to(acts.dtype)
        for edge in (-far if acts.dtype.is_signed else far, far):
            worlds.step(acts.nearest(edge))
        low = getattr(space, "low", np.zeros(space.shape))
        outside = torch.as_tensor(np.array(np.where(np.isinf(low), 0, low), np.float64) - 1)
        for entry in np.argwhere(np.isfinite(low)):
            wide = torch.float64 if acts.dtype.is_floating_point else torch.int64
            action = acts.nearest(torch.zeros(3, *acts.shape, dtype=wide))
            action[(1, *entry)] = outside[tuple(entry)].to(wide)
            with pytest.raises(InputError, match="of environment 1 lies outside"):
                worlds.step(action)


@pytest.mark.parametrize("role", ["action", "observation"])
@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([2, 3], start=[1, 0]),
        spaces.MultiDiscrete([[2, 3]]),
        spaces.Text(3),
        spaces.Box(0, 5, (2,), np.uint64),
        spaces.Sequence(spaces.Discrete(2)),
    ],
    ids=str,
)
def test_spaces_that_there_are_not_are_refused_by_name(space, role):
    plain = spaces.Discrete(2)
    made = sampling(space, plain) if role == "action" else sampling(plain, space)
    with pytest.raises(InputError, match=rf"FromGymnasium: the {role} space is {type(space).__name__}\("):
        dz.rl.FromGymnasium(made, 2, processes=False)


def test_a_policy_draws_neither_whole_numbers_nor_flags_for_a_box():
    for space in (spaces.Box(-3, 3, (2,), np.int32), spaces.MultiBinary((2, 2))):
        with (
            dz.rl.FromGymnasium(sampling(space, SPACES[0]), 2, device="cpu", processes=False) as worlds,
            pytest.raises(InputError, match=r"of whole numbers.*dz\.rl\.Discrete"),
        ):
            dz.rl.mlp(worlds.env)
    single = sampling(spaces.Discrete(2), spaces.Box(-1, 1, ()))
    with (
        dz.rl.FromGymnasium(single, 2, device="cpu", processes=False) as worlds,
        pytest.raises(InputError, match=r"shape \(1,\)"),
    ):
        dz.rl.mlp(worlds.env)


class Bounded(dz.Env):
    """Pays what was done; looks at nothing much."""

    acts: dz.rl.Box
    time_limit = 5
    observation_space = dz.rl.Box([0.0, -1.0], 1.0, (2,))

    @property
    def action_space(self):
        return self.acts

    def init(self, rng):
        return Paid(total=torch.zeros(()))

    def step(self, now, action, rng):
        return now.replace(total=now.total + action.to(torch.float32).sum())

    def observe(self, now):
        return torch.stack([now.total.cos().abs(), now.total.sin()])

    def reward(self, before, action, now):
        return now.total - before.total

    def terminated(self, now):
        return now.total > 1e6


class Paid(dz.State):
    total: torch.Tensor = dz.real()


GIVEN = [
    dz.rl.Box(0.0, np.inf, (2,)),
    dz.rl.Box([-1.0, 0.0], [1.0, np.inf], (2,)),
    dz.rl.Box(-3, 3, (2,), torch.int32),
    dz.rl.Box([-3, 1], [3, 7], (2,), torch.int64),
    dz.rl.Box(0, 1, (2,), torch.bool),
    dz.rl.Box(0, 3, (2,), torch.uint8),
    dz.rl.Box(-1.0, 1.0, (2,), torch.bfloat16),
    dz.rl.Box(0.1, 0.3, (2,), torch.float64),
]


@pytest.mark.parametrize("acts", GIVEN, ids=str)
def test_spaces_of_worlds_are_gymnasiums_too(acts):
    given = vector(Bounded(acts=acts), 3)
    for mine, theirs in (
        (acts, given.single_action_space),
        (Bounded.observation_space, given.single_observation_space),
    ):
        if isinstance(theirs, spaces.MultiBinary):
            continue
        for bound in ("low", "high"):
            assert np.array_equal(
                np.broadcast_to(getattr(mine, bound), mine.shape).astype(theirs.dtype), getattr(theirs, bound)
            )
    given.action_space.seed(0)
    given.reset(seed=0)
    for _ in range(8):
        action = given.action_space.sample()
        seen, reward, *_ = given.step(action)
        assert seen in given.observation_space
        assert np.allclose(reward, action.astype(np.float64).sum(1), atol=1e-2)


def test_actions_of_whole_numbers_are_not_cut_down_to_fit():
    given = vector(Bounded(acts=dz.rl.Box(0, 3, (2,), torch.uint8)), 3)
    given.reset(seed=0)
    with pytest.raises(InputError, match="expected whole numbers"):
        given.step(np.full((3, 2), 1.5))
    with pytest.raises(ModelError, match="outside the action space, in world 1"):
        given.step(np.array([[0, 0], [256, 0], [0, 0]]))  # in 8 bits 0


def test_wrong_arguments_are_named():
    with pytest.raises(InputError, match=r"the observation space\['a'\]\[1\] is Text.*no Text here"):
        dz.rl.FromGymnasium(Nested, 2, processes=False)
    with pytest.raises(InputError, match="Cartpole-v9"):
        dz.rl.FromGymnasium("Cartpole-v9", 2, processes=False)
    with pytest.raises(InputError, match="num_envs=0"):
        dz.rl.FromGymnasium("CartPole-v1", 0)
    with pytest.raises(InputError, match="make=3"):
        dz.rl.FromGymnasium(3, 2)
    with pytest.raises(InputError, match="go with an id"):
        dz.rl.FromGymnasium(Odd, 2, sutton_barto_reward=True)
    with dz.rl.FromGymnasium("CartPole-v1", 2, device="cpu", processes=False) as worlds:
        with pytest.raises(InputError, match=r"call reset\(\) first"):
            worlds.step(torch.zeros(2, dtype=torch.int64))
        worlds.reset()
        with pytest.raises(InputError, match=r"action is \(3,\)"):
            worlds.step(torch.zeros(3, dtype=torch.int64))
        with pytest.raises(InputError, match="whole numbers from 0 to 1"):
            worlds.step(torch.zeros(2))
        with pytest.raises(InputError, match=r"action 7 of environment 1 lies outside Discrete\(n=2\)"):
            worlds.step(torch.tensor([0, 7]))
