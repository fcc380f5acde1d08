"""Training in environments of Gymnasium, which are stepped on the host."""

import json

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import denizen as dz
from denizen.errors import InputError, ModelError
from rl_worlds import Numbered

SMALL = dz.PPO(num_envs=4, num_steps=16, num_minibatches=2, update_epochs=2)
REPLAY = {"num_envs": 4, "num_steps": 4, "batch_size": 8, "learning_starts": 16, "gradient_steps": 2}


def numbered():
    return dz.rl.to_gymnasium(Numbered(), device="cpu")


def hosted(make=numbered, count=4, **options):
    return dz.rl.FromGymnasium(make, count, device="cpu", processes=False, **options)


def learned(row):
    """A row of metrics without what the clock and the GPU's counters say."""
    return {name: value for name, value in row.items() if "second" not in name and not name.startswith("gpu_")}


@pytest.mark.parametrize(
    ("make", "algorithm"),
    [
        (dz.rl.mlp, SMALL),
        (dz.rl.q_mlp, dz.rl.DQN(**REPLAY, buffer_size=100)),
        (dz.rl.q_mlp, dz.rl.DQN(**REPLAY, n_steps=3, priority=0.6, normalise_rewards=True)),
    ],
    ids=["ppo", "dqn", "prioritised"],
)
def test_an_environment_by_way_of_gymnasium_trains_as_on_the_device(make, algorithm):
    """Lives begin alike whenever they do, and draws of actions are those of the seed: nothing may differ."""
    rows = []
    for env in (Numbered(), hosted()):
        policy = make(Numbered(), (8,), seed=3)
        result = dz.train(env, policy, algorithm, 128, seed=5, device="cpu", progress=False, compile=False)
        rows.append([learned(row) for row in result.metrics])
    mine, theirs = rows
    assert set(mine[0]) - set(theirs[0]) == {"pushed"}  # of series Gymnasium knows nothing
    for here, there in zip(mine, theirs, strict=True):
        for name, value in there.items():
            assert value == pytest.approx(here[name], rel=1e-6, nan_ok=True), name
    assert sum(row["episodes"] for row in mine) > 10
    assert result.path == "eager"
    assert "numbered was stepped on the host" in str(result)
    assert "copies and no wait for the device a step" in str(result)


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_what_is_learnt_from_is_what_the_environment_did(mode):
    worlds, policy = hosted(autoreset=mode), dz.rl.mlp(Numbered(), (8,), seed=3)
    training = SMALL.init(worlds, policy, total_steps=640, seed=5, device="cpu")
    lives = {"over": 0, "cut": 0, "dead": 0}
    for _ in range(2):
        training.rollout.collect()
        fields = training.rollout.fields
        value = policy.with_value(fields["observation"].flatten(0, 1), torch.zeros(64, 0))[1].view(16, 4)
        assert torch.allclose(value, fields["value"], atol=1e-6)
        for step in range(16):
            for row in range(4):
                at, number, age = fields["observation"][step, row].tolist()
                ended = bool(fields["terminated"][step, row] | fields["truncated"][step, row])
                if not fields["valid"][step, row]:
                    assert mode == "next_step"
                    assert not ended
                    assert fields["reward"][step, row] == 0
                    lives["dead"] += 1
                    continue
                new = at + (0.9 if fields["action"][step, row] == 1 else -0.2)
                assert fields["reward"][step, row].item() == pytest.approx(new - at, abs=1e-5)
                assert bool(fields["terminated"][step, row]) == (new > 3)
                assert bool(fields["truncated"][step, row]) == (age == 5)
                assert bool(fields["first"][step, row]) == (age == 0)
                lives["over"] += new > 3
                if ended:
                    last = torch.tensor([[new, number, age + 1]])
                    judged = policy.with_value(last, torch.zeros(1, 0))[1].item()
                    if not fields["terminated"][step, row]:
                        lives["cut"] += 1
                        assert training.rollout.bootstrap[step, row].item() == pytest.approx(judged, abs=1e-5)
                elif step < 15:
                    assert fields["observation"][step + 1, row].tolist() == pytest.approx([new, number, age + 1])
    assert lives["over"] > 0
    assert lives["cut"] > 0
    assert (lives["dead"] > 0) == (mode == "next_step")


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("priority", [0.0, 0.6])
def test_what_a_replay_holds_is_what_the_environment_did(mode, priority):
    """Also of lives that were lost in their midst, as in a resume: they go on in value from their last looks."""
    policy, algorithm = dz.rl.q_mlp(Numbered(), (8,)), dz.rl.DQN(**REPLAY, buffer_size=128, priority=priority)
    training = algorithm.init(hosted(autoreset=mode), policy, total_steps=640, seed=5, device="cpu")
    update, replay = dz.rl.Updates(training), training.replay
    for number in range(12):  # more than fit
        if number in (5, 9):
            training.begin_anew()
        update()
    words = torch.arange(0, 2**32, 2**22)
    age, row = training.priorities.steps(training.priorities.draw(words)) if priority else replay.draw(words)
    drawn = replay.batch(age, row)
    at, number, steps = drawn.observation.unbind(1)
    new = at + torch.where(drawn.action == 1, 0.9, -0.2)
    over = new > 3
    torch.testing.assert_close(drawn.reward, new - at, atol=1e-5, rtol=0)
    assert torch.equal(drawn.discount, torch.where(over, 0.0, 0.99))
    follows = torch.stack([new, number, steps + 1], 1)
    torch.testing.assert_close(drawn.following[~over], follows[~over], atol=1e-5, rtol=0)
    assert {0, 31} <= set(age.tolist())
    if not priority:
        assert len({*zip(age.tolist(), row.tolist(), strict=True)}) == replay.stored() > 60
    assert (steps == 5).any()
    assert over.any()


class Told(gymnasium.Env):
    """Each kind of choice; pays for the right ones, which are observed."""

    def __init__(self, acts, sees=None):
        self.action_space, self.observation_space = acts, sees or spaces.Discrete(3, start=-1)
        self.seeds = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.seeds.append(seed)
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return self.observation_space.sample(), total(action), True, False, {}


def total(action):
    if isinstance(action, dict):
        action = tuple(action.values())
    return sum(total(part) for part in action) if isinstance(action, tuple) else float(np.sum(action))


CHOICES = [
    spaces.Discrete(4, start=2),
    spaces.MultiDiscrete([2, 5]),
    spaces.MultiBinary(3),
    spaces.Box(-1, 1, (2,), np.float64),
    spaces.Dict(b=spaces.Discrete(3, start=1), a=spaces.Tuple((spaces.MultiBinary(2), spaces.Discrete(2)))),
]


@pytest.mark.parametrize("space", CHOICES, ids=str)
def test_each_kind_of_choice_can_be_trained(space):
    with hosted(lambda: Told(space)) as worlds:
        policy = dz.rl.mlp(worlds.env, (4,))
        metrics = dz.train(worlds, policy, SMALL, 128, device="cpu", progress=False, seed=9).metrics
        assert metrics[-1]["episodes"] == 64
        assert [env.unwrapped.seeds for env in worlds.vector.envs] == [[9 + row] for row in range(4)]


PARTS = spaces.Dict(
    z=spaces.Box(-1, 1, (2,), np.float32), a=spaces.Tuple((spaces.Discrete(3, start=2), spaces.MultiBinary(4)))
)


class Parted(Told):
    """Shows how many steps it has lived in every part of what is seen; cut off after three."""

    def __init__(self):
        super().__init__(spaces.Discrete(2), PARTS)
        self.age = 0

    def seen(self):
        flags = np.array([self.age > k for k in range(4)], np.int8)
        return {"a": (2 + min(self.age, 2), flags), "z": np.full(2, self.age / 4, np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self.seen(), {}

    def step(self, action):
        self.age += 1
        return self.seen(), 1.0, False, self.age == 3, {}


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_what_is_seen_may_have_parts(mode):
    with hosted(Parted, 2, autoreset=mode) as worlds:
        sees = worlds.env.observation_space
        assert sees["a"][0] == dz.rl.Discrete(3, start=2)
        seen = worlds.reset().observation
        assert seen["a"][0].tolist() == [2, 2]
        for age in (1, 2, 3):
            step = worlds.step(torch.zeros(2, dtype=torch.int64))
            final = step.final.observation
            assert final["z"].tolist() == [[age / 4] * 2] * 2
            assert final["a"][1].tolist() == [[1] * age + [0] * (4 - age)] * 2
        now = 0 if mode == "same_step" else 3
        assert step.truncated.all()
        assert step.observed.observation["z"].tolist() == [[now / 4] * 2] * 2
        policy = dz.rl.mlp(worlds.env, (4,))
        algorithm = dz.PPO(num_envs=2, num_steps=12, num_minibatches=1)
        metrics = dz.train(worlds, policy, algorithm, 24, device="cpu", progress=False).metrics
        assert metrics[-1]["length_mean"] == 3
        assert metrics[-1]["waited"] == (0 if mode == "same_step" else 6)


def test_a_vector_environment_is_taken_as_it_is():
    made = SyncVectorEnv([numbered] * 3)
    with dz.rl.FromGymnasium(made, device="cpu") as worlds:
        assert (worlds.num_envs, worlds.autoreset) == (3, "next_step")
        first = worlds.reset().observation
        assert first.shape == (3, 3)
        for _ in range(6):
            step = worlds.step(torch.zeros(3, dtype=torch.int64))
        assert step.truncated.all()
        step = worlds.step(torch.ones(3, dtype=torch.int64))
        assert not step.valid.any()
        assert step.observed.observation[:, 0].tolist() == pytest.approx([0.37] * 3)


def test_a_resumed_training_says_that_the_environment_began_anew(tmp_path):
    kept = tmp_path / "run"
    with hosted(lambda: Told(CHOICES[0])) as worlds:
        policy = dz.rl.mlp(worlds.env, (4,))
        dz.train(worlds, policy, SMALL, 128, device="cpu", progress=False, folder=kept)
    with hosted(lambda: Told(CHOICES[0])) as worlds:
        with pytest.warns(UserWarning, match="on the host and was not kept, so it begins anew"):
            result = dz.rl.resume(kept, worlds, policy, SMALL, steps=64, progress=False)
        seeds = worlds.vector.envs[0].unwrapped.seeds
    assert result.updates == 3
    assert seeds[0] == 0
    assert seeds[1] > 1000  # another start than the training's
    assert "so it begins anew" in (kept / "log.txt").read_text()
    assert json.loads((kept / "manifest.json").read_text())["status"] == "finished"
    with hosted(lambda: Told(CHOICES[1])) as worlds, pytest.raises(InputError, match="was made for"):
        dz.rl.resume(kept, worlds, policy, SMALL, steps=64, progress=False)


def test_what_cannot_be_trained_is_refused():
    with hosted() as worlds:
        policy = dz.rl.mlp(worlds.env, (4,))

        def train(algorithm=SMALL, env=worlds, **options):
            dz.train(env, policy, algorithm, 64, device="cpu", progress=False, **options)

        with pytest.raises(InputError, match="num_envs=8, and the FromGymnasium has 4"):
            train(dz.PPO(num_envs=8))
        q = dz.rl.q_mlp(worlds.env, (4,))
        with pytest.raises(InputError, match=r"DQN: num_envs=8, and .* has 4 environments; take num_envs=4"):
            dz.rl.DQN(num_envs=8, learning_starts=128).init(worlds, q, total_steps=200)
        for env in (worlds.env, dz.rl.FrameStack(worlds.env, 2)):
            with pytest.raises(ModelError, match="numbered is stepped on the host by its FromGymnasium alone"):
                dz.rl.Worlds(env, 2, device="cpu").reset()
        with pytest.raises(InputError, match="soft_mlp: numbered has action_space"):
            dz.rl.soft_mlp(worlds.env)
        with pytest.raises(InputError, match="DQN: params="):
            dz.rl.DQN(**REPLAY).init(worlds, q, total_steps=64, params={"gravity": torch.ones(4)})
        with pytest.raises(InputError, match=r"SAC.init: .* expected a dz.rl.SoftActorCritic"):
            train(dz.rl.SAC(**REPLAY))
        with pytest.raises(InputError, match=r"algorithm is GRPO, whose groups .* take dz\.PPO"):
            train(dz.GRPO())
        with pytest.raises(InputError, match=r"give dz\.train the FromGymnasium itself"):
            train(env=worlds.env)
        with pytest.raises(InputError, match="params="):
            train(params={"gravity": torch.ones(4)})
        with pytest.raises(InputError, match="compile=True, and a FromGymnasium"):
            train(compile=True)
        with pytest.raises(InputError, match="validate_every=1: a FromGymnasium"):
            train(validate_every=1)
        with pytest.raises(InputError, match=r"train_seeds: env is a FromGymnasium"):
            dz.rl.train_seeds(worlds, lambda seed: policy, SMALL, 64, seeds=[1, 2])
    with pytest.raises(InputError, match="num_envs=2, and the vector environment has 3"):
        dz.rl.FromGymnasium(SyncVectorEnv([numbered] * 3), 2)
    with pytest.raises(InputError, match="autoreset='same_step', and the vector environment has 'next_step'"):
        dz.rl.FromGymnasium(SyncVectorEnv([numbered] * 3), autoreset="same_step")
    with pytest.raises(InputError, match="DISABLED"):
        dz.rl.FromGymnasium(SyncVectorEnv([numbered] * 3, autoreset_mode=AutoresetMode.DISABLED))
    with pytest.raises(InputError, match=r"'NoSuch-v9': .* doesn't exist; gymnasium.registry lists the ids"):
        dz.rl.FromGymnasium("NoSuch-v9", 2)
    with pytest.raises(InputError, match="autoreset='never'"):
        hosted(autoreset="never")


@pytest.mark.parametrize(
    "make", [(dz.rl.soft_mlp, dz.rl.SAC), (dz.rl.deterministic_mlp, dz.rl.TD3)], ids=["sac", "td3"]
)
def test_a_resumed_learner_has_its_replay_or_says_that_it_has_none(make, tmp_path):
    for save in (True, False):
        kept, algorithm = tmp_path / f"run-{save}", make[1](**REPLAY, save_replay=save)
        with hosted(lambda: Told(CHOICES[3])) as worlds:
            policy = make[0](worlds.env, (4,))
            dz.train(worlds, policy, algorithm, 64, device="cpu", folder=kept, progress=False)
        told = "and was not kept, so it begins anew" + ("" if save else ".*; its replay was not saved")
        with hosted(lambda: Told(CHOICES[3])) as worlds, pytest.warns(UserWarning, match=told):
            result = dz.rl.resume(kept, worlds, policy, algorithm, steps=64, progress=False)
        assert result.updates == 8


class Broken(Told):
    """Pays what is no number, or shows it."""

    def __init__(self, reward, look):
        super().__init__(spaces.Discrete(2), spaces.Box(-1, 1, (2,)))
        self.reward, self.look = reward, look

    def step(self, action):
        return np.full(2, self.look, np.float32), self.reward, False, False, {}


def test_numbers_that_are_none_are_told_at_once():
    for reward, look, what in ((np.nan, 0.0, "a reward"), (0.0, np.inf, "an observation")):
        with hosted(lambda r=reward, o=look: Broken(r, o), 2) as worlds:
            worlds.reset()
            with pytest.raises(ModelError, match=f"{what} of environment 0 is .* which is not finite"):
                worlds.step(torch.zeros(2, dtype=torch.int64))


@pytest.mark.cuda
def test_a_step_waits_once_for_the_gpu():
    with dz.rl.FromGymnasium("CartPole-v1", 4, device="cuda", processes=False) as worlds:
        policy = dz.rl.mlp(worlds.env, (16,))
        result = dz.train(worlds, policy, SMALL, 640, device="cuda", progress=False)
        assert worlds.waits == worlds.steps == 160
        assert 3 <= worlds.copies / worlds.steps <= 4.5
        assert "1 wait for the device a step" in result.host
        on_cpu = dz.rl.mlp(worlds.env, (16,))
    with hosted("CartPole-v1") as worlds:
        other = dz.train(worlds, on_cpu, SMALL, 640, device="cpu", progress=False)
    assert result["return_mean"][0] == pytest.approx(other["return_mean"][0], rel=0.2)


@pytest.mark.cuda
@pytest.mark.parametrize("priority", [0.0, 0.6])
def test_a_replay_on_the_gpu_of_what_the_host_did(priority):
    """As the test of an environment that goes out to Gymnasium and comes back, on the CPU."""
    algorithm, rows = dz.rl.DQN(**REPLAY, n_steps=3, priority=priority, normalise_rewards=True), []
    with dz.rl.FromGymnasium(numbered, 4, device="cuda", processes=False) as worlds:
        for env in (Numbered(), worlds):
            policy = dz.rl.q_mlp(Numbered(), (8,), seed=3)
            result = dz.train(env, policy, algorithm, 128, seed=5, device="cuda", progress=False, compile=False)
            rows.append([learned(row) for row in result.metrics])
    for here, there in zip(*rows, strict=True):
        for name, value in there.items():
            assert value == pytest.approx(here[name], rel=1e-4, abs=1e-5, nan_ok=True), name


@pytest.mark.slow
def test_ppo_learns_to_balance_gymnasiums_pole():
    algorithm = dz.PPO(num_envs=8, num_steps=64, learning_rate=2.5e-3)
    with hosted("CartPole-v1", 8, autoreset="next_step") as worlds:
        result = dz.train(worlds, dz.rl.mlp(worlds.env), algorithm, 20_000, device="cpu", progress=False)
    assert result["return_mean"][-1] > 80  # random actions come to 22
