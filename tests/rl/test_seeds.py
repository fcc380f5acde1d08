"""Several seeds at once: each equals the lone training, folders, Ctrl-C, wrong inputs."""

import pytest
import torch

import denizen as dz
from denizen.zoo.breakout import Breakout
from denizen.zoo.cartpole import CartPole
from denizen.zoo.pendulum import Pendulum
from denizen.zoo.predator_prey import PredatorPrey
from trainings import interrupt_after, read_manifest, read_metrics

SETTINGS = dz.PPO(num_envs=4, num_steps=16)
STEPS = 4 * 16 * 4


def made(seed):
    return dz.rl.mlp(CartPole(), (8,), seed=seed)


def together(seeds=(0, 3), **more):
    more = {"policy": made, "device": "cpu", "progress": False, **more}
    return dz.rl.train_seeds(CartPole(), more.pop("policy"), SETTINGS, STEPS, seeds=seeds, **more)


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_each_equals_the_lone_training(tmp_path):
    told = together(folder=tmp_path)
    for seed, mine in zip((0, 3), told, strict=True):
        lone = dz.train(CartPole(), made(seed), SETTINGS, STEPS, seed=seed, device="cpu", progress=False)
        assert same(mine.policy.state_dict(), lone.policy.state_dict())
        assert same(mine.best_weights, lone.best_weights)
        assert mine["value_loss"] == lone["value_loss"]
        assert read_manifest(tmp_path / f"seed-{seed}")["seed"] == seed
        assert len(read_metrics(tmp_path / f"seed-{seed}")) == 4


OFF = {"num_envs": 4, "num_steps": 2, "gradient_steps": 2, "batch_size": 8, "buffer_size": 200, "learning_starts": 16}
ROLES = dz.PPO(num_envs=4, num_steps=4, num_minibatches=2, update_epochs=1)


def by_role(seed, **more):
    env = PredatorPrey()
    return {**{role: dz.rl.mlp(env.role(role), (4,), seed=seed) for role in env.roles}, **more}


@pytest.mark.parametrize(
    ("env", "make", "algorithm"),
    [
        (Pendulum(), lambda seed: dz.rl.soft_mlp(Pendulum(), (8,), seed=seed), dz.rl.SAC(**OFF)),
        (Pendulum(), lambda seed: dz.rl.deterministic_mlp(Pendulum(), (8,), seed=seed), dz.rl.TD3(**OFF)),
        (CartPole(), lambda seed: dz.rl.q_mlp(CartPole(), (8,), seed=seed), dz.rl.DQN(**OFF, priority=0.5)),
        (PredatorPrey(), by_role, ROLES),
    ],
    ids=["sac", "td3", "dqn", "roles"],
)
def test_other_learners_and_roles_take_turns_as_well(env, make, algorithm):
    """One object of settings makes several trainings, whose bits are those of each alone."""
    options = {"device": "cpu", "progress": False, "compile": False}
    told = dz.rl.train_seeds(env, make, algorithm, 40, seeds=(0, 3), **options)
    lone = dz.train(env, make(3), algorithm, 40, seed=3, **options)
    assert same(told[1].policy.state_dict(), lone.policy.state_dict())


def test_one_object_of_settings_serves_other_worlds_in_between():
    algorithm, bits = dz.rl.DQN(**OFF), []
    for env in (CartPole(), Breakout(), CartPole()):
        policy = dz.rl.q_mlp(env, (8,), seed=1)
        result = dz.train(env, policy, algorithm, 40, seed=2, device="cpu", progress=False, compile=False)
        bits.append(result.policy.state_dict())
    assert same(bits[0], bits[2])


def test_patience_ends_each_by_itself():
    stop = dz.rl.Patience(updates=1)
    for seed, mine in zip((0, 3), together(patience=stop), strict=True):
        lone = dz.train(CartPole(), made(seed), SETTINGS, STEPS, seed=seed, device="cpu", progress=False, patience=stop)
        assert same(mine.best_weights, lone.best_weights)


def test_an_interrupt_saves_all(tmp_path, monkeypatch):
    interrupt_after(2, monkeypatch, seed=3)
    with pytest.raises(KeyboardInterrupt):
        together(folder=tmp_path)
    assert [read_manifest(tmp_path / f"seed-{seed}")["status"] for seed in (0, 3)] == ["interrupted"] * 2
    monkeypatch.undo()
    rest = dz.rl.resume(tmp_path / "seed-0", CartPole(), made(7), SETTINGS, progress=False)
    lone = dz.train(CartPole(), made(0), SETTINGS, STEPS, device="cpu", progress=False)
    assert same(rest.policy.state_dict(), lone.policy.state_dict())


def test_a_folder_that_is_taken_begins_nothing(tmp_path):
    (tmp_path / "seed-3").mkdir()
    (tmp_path / "seed-3" / "mine.txt").touch()
    with pytest.raises(dz.errors.StorageError, match="not empty"):
        together(folder=tmp_path)
    assert not (tmp_path / "seed-0").exists()


def test_wrong_inputs():
    one = made(0)
    for seeds in ((), (1, 1), range(17)):
        with pytest.raises(dz.errors.InputError, match="expected 1 to 16 different ones"):
            together(seeds)
    for seeds, told in ((3, "=3, expected a list of whole"), ((1, -2), r"\[1\]=-2, "), (("1",), r"\[0\]='1', ")):
        with pytest.raises(dz.errors.InputError, match=rf"train_seeds: seeds{told}"):
            together(seeds)
    with pytest.raises(dz.errors.InputError, match="the same object for two seeds"):
        together(policy=lambda seed: one)
    shared = by_role(0)["prey"]
    make = lambda seed: by_role(seed, prey=shared)
    options = {"seeds": (0, 1), "device": "cpu", "progress": False}
    with pytest.raises(dz.errors.InputError, match="the same object for two seeds"):
        dz.rl.train_seeds(PredatorPrey(), make, ROLES, 16, **options)
    shared.requires_grad_(False)  # who learns nothing may play with all
    assert len(dz.rl.train_seeds(PredatorPrey(), make, ROLES, 16, **options)) == 2


@pytest.mark.cuda
@pytest.mark.slow
def test_captured_together_equals_captured_alone():
    told = together((0, 1, 2), device="cuda")
    assert {mine.path for mine in told} == {"captured"}
    for seed, mine in enumerate(told):
        lone = dz.train(CartPole(), made(seed), SETTINGS, STEPS, seed=seed, device="cuda", progress=False)
        assert same(mine.policy.state_dict(), lone.policy.state_dict())
