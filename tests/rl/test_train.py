"""The training loop: folders, resume bit for bit, warm-up without a trace, kills, wrong inputs, what people see."""

import dataclasses
import json
import os
import signal
import time

import pytest
import torch

import denizen as dz
from denizen.zoo.cartpole import CartPole
from denizen.zoo.catch import Catch
from forked import end_of, fork
from trainings import TIMES, interrupt_after, read_manifest, read_metrics, rewrite_checkpoint

SETTINGS = dz.PPO(num_envs=4, num_steps=16)
STEPS = 4 * 16 * 6


def go(folder=None, steps=STEPS, seed=0, policy=None, algorithm=SETTINGS, env=None, **more):
    env = env or CartPole()
    policy = policy or dz.rl.mlp(env, (16,))
    return dz.train(env, policy, algorithm, steps, seed=seed, device="cpu", folder=folder, progress=False, **more)


def state(trained):
    return trained.policy.state_dict()


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def untimed(rows):
    """Metrics without how long they took."""
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


class Told(CartPole):
    """Lives one step, which pays where the cart began."""

    time_limit = 1

    def reward(self, before, action, now):
        return before.x


def test_evaluation_shares_no_world_with_training():
    env = Told()
    policy = dz.rl.mlp(env, (4,))
    theirs = dz.rl.evaluate(env, policy, num_envs=3, seed=5).returns
    training = SETTINGS.init(env, policy, total_steps=64, seed=5, device="cpu")
    mine = training.rollout.state.observed.observation[:, 0].clone()
    SETTINGS.update(training)
    assert torch.equal(training.rollout.fields["reward"][0], mine), "a return is where a world began"
    assert theirs.unique().numel() == 3
    assert not torch.isin(theirs, mine).any()


def test_the_best_score_is_told(tmp_path):
    scores = go()["best_score"]
    assert scores[-1] == max(score for score in scores if score == score)


def test_a_folder_holds_the_training(tmp_path):
    trained = go(tmp_path / "run")
    manifest = read_manifest(tmp_path / "run")
    assert (manifest["status"], manifest["updates"], manifest["seed"]) == ("finished", 6, 0)
    rows = read_metrics(tmp_path / "run")
    assert [row["step"] for row in rows] == list(range(1, 7))
    assert [row["steps"] for row in rows] == [64 * k for k in range(1, 7)]
    assert rows == trained.metrics or str(rows) == str(trained.metrics)  # NaN differs from itself
    assert len(trained["value_loss"]) == 6
    assert len(repr(trained)) < 500
    with pytest.raises(dz.errors.InputError, match="no metric 'loss'; there are"):
        trained["loss"]


@pytest.mark.parametrize("memory", [0, 4])
def test_resume_equals_the_uninterrupted_training(tmp_path, monkeypatch, memory):
    env = CartPole()
    whole = go(tmp_path / "whole", policy=dz.rl.mlp(env, (8,), head=dz.rl.PopArt, memory_size=memory))
    with monkeypatch.context() as patched:
        interrupt_after(2, patched)
        with pytest.raises(KeyboardInterrupt) as told:
            go(tmp_path / "part", policy=dz.rl.mlp(env, (8,), head=dz.rl.PopArt, memory_size=memory))
    assert "safe on disk: 2 updates" in told.value.__notes__[0]
    assert read_manifest(tmp_path / "part")["status"] == "interrupted"
    other = dz.rl.mlp(env, (8,), head=dz.rl.PopArt, memory_size=memory, seed=9)
    rest = dz.rl.resume(tmp_path / "part", env, other, SETTINGS, progress=False)
    assert same(state(whole), state(rest))
    assert same(whole.best_weights, rest.best_weights)
    both = [untimed(read_metrics(tmp_path / name)) for name in ("whole", "part")]
    assert str(both[0]) == str(both[1])


@pytest.mark.parametrize("memory", [0, pytest.param(4, marks=pytest.mark.slow)])  # resumed with a memory above
def test_a_longer_training_equals_one_that_was_begun_that_long(tmp_path, memory):
    env, steady = CartPole(), dataclasses.replace(SETTINGS, learning_rate=1e-3)
    policies = [dz.rl.mlp(env, (8,), memory_size=memory, seed=seed) for seed in (0, 0, 9)]
    given = {"device": "cpu", "progress": False, "compile": False}
    whole = dz.train(env, policies[0], steady, STEPS, folder=tmp_path / "whole", **given)
    dz.train(env, policies[1], steady, STEPS // 3, folder=tmp_path / "part", **given)
    rest = dz.rl.resume(tmp_path / "part", env, policies[2], steady, steps=STEPS - STEPS // 3, progress=False)
    assert same(state(whole), state(rest))
    both = [untimed(read_metrics(tmp_path / name)) for name in ("whole", "part")]
    assert str(both[0]) == str(both[1])
    assert read_manifest(tmp_path / "part")["total_steps"] == STEPS
    again = dz.rl.resume(tmp_path / "part", env, policies[2], steady, progress=False)
    assert again.updates == whole.updates


def test_schedules_go_by_the_new_length(tmp_path):
    """Annealed to 0 at the end of six updates; of twelve, update 7 begins with half of the rate."""
    env = CartPole()
    go(tmp_path / "run")
    longer = dz.rl.resume(tmp_path / "run", env, dz.rl.mlp(env, (16,)), SETTINGS, steps=STEPS, progress=False)
    rates = [row["learning_rate"] for row in read_metrics(tmp_path / "run")]
    assert longer.updates == 12
    assert rates[6] == pytest.approx(rates[0] / 2)
    assert rates[11] == pytest.approx(rates[0] / 12)


def test_a_kill_at_any_moment_is_survived(tmp_path):
    folder, told = tmp_path / "run", tmp_path / "told.txt"
    child = fork(lambda: go(folder, 4 * 16 * 30, save_every=0), told)
    manifest, until = folder / "manifest.json", time.monotonic() + 300
    while not manifest.exists() or json.loads(manifest.read_text())["updates"] < 3:
        assert time.monotonic() < until, told.read_text()
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    assert end_of(child) == -signal.SIGKILL, told.read_text()
    assert 3 <= read_manifest(folder)["updates"] < 30
    env = CartPole()
    rest = dz.rl.resume(folder, env, dz.rl.mlp(env, (16,)), SETTINGS, progress=False)
    whole = go(steps=4 * 16 * 30)
    assert same(state(rest), state(whole))
    assert [row["step"] for row in read_metrics(folder)] == list(range(1, 31))


def test_updates_one_by_one_are_those_of_a_training():
    env = CartPole()
    training = SETTINGS.init(env, dz.rl.mlp(env, (16,)), total_steps=STEPS, device="cpu")
    update = dz.rl.Updates(training)
    update.warm_up()
    told = [float(update()["return_mean"]) for _ in range(training.num_updates)]
    whole = go()
    assert (update.path, update.seconds_to_ready > 0) == ("eager", True)
    assert same(training.policy.state_dict(), state(whole))
    assert str(told) == str(whole["return_mean"])  # none where no life ended


@pytest.mark.parametrize(("every", "saved"), [(0, 2), (3600.0, 0)])
def test_saves_are_as_far_apart_as_asked_for(every, saved, tmp_path, monkeypatch):
    def killed(algorithm, training):
        assert int(training.updates) < 2
        return update(algorithm, training)

    update = dz.PPO.update
    monkeypatch.setattr(dz.PPO, "update", killed)
    with pytest.raises(AssertionError):
        go(tmp_path / "run", save_every=every, compile=False)
    assert read_manifest(tmp_path / "run")["updates"] == saved


def test_a_warm_up_leaves_no_trace(monkeypatch):
    warm = go()
    monkeypatch.setattr(dz.rl.Updates, "warm_up", lambda self: None)
    cold = go()
    assert same(state(warm), state(cold))
    assert str(untimed(warm.metrics)) == str(untimed(cold.metrics))


@pytest.mark.compile
def test_compiled_training_agrees_and_resumes(tmp_path):
    eager, compiled = go(), go(compile=True)
    assert (eager.path, compiled.path) == ("eager", "compiled")
    for name, tensor in state(eager).items():
        assert torch.allclose(tensor, state(compiled)[name], atol=1e-4)


def test_a_machine_that_cannot_compile_says_so_and_trains(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.warns(UserWarning, match="run eagerly: no compiler here"):
        trained = go(compile=True)
    assert trained.path == "eager"
    assert same(state(trained), state(go()))


def test_the_best_policy_is_kept_by_validation():
    trained = go(validate_every=2, validation={"num_envs": 8, "max_steps": 50, "greedy": True})
    scores = [told.mean for _, told in trained.evaluations]
    assert [update for update, _ in trained.evaluations] == [2, 4, 6]
    best = dz.rl.mlp(CartPole(), (16,))
    best.load_state_dict(trained.best_weights)
    assert dz.rl.evaluate(CartPole(), best, num_envs=8, max_steps=50, greedy=True).mean == max(scores)


def test_validation_may_have_a_world_of_its_own_also_after_a_resume(tmp_path, monkeypatch):
    class Short(CartPole):
        time_limit = 3

    more = {"validate_every": 2, "validation": {"env": Short(), "num_envs": 8}}
    trained = go(tmp_path / "whole", **more)
    assert [told.mean for _, told in trained.evaluations] == [3.0, 3.0, 3.0]
    with monkeypatch.context() as patched:
        interrupt_after(2, patched)
        with pytest.raises(KeyboardInterrupt):
            go(tmp_path / "part", **more)
    for other in (None, CartPole()):
        with pytest.raises(dz.errors.InputError, match="validation_env differs"):
            dz.rl.resume(tmp_path / "part", CartPole(), dz.rl.mlp(CartPole(), (16,)), SETTINGS, validation_env=other)
    policy = dz.rl.mlp(CartPole(), (16,), seed=3)
    rest = dz.rl.resume(tmp_path / "part", CartPole(), policy, SETTINGS, validation_env=Short(), progress=False)
    assert [told.mean for _, told in rest.evaluations] == [3.0, 3.0]
    assert same(state(trained), state(rest))


@pytest.mark.parametrize(
    ("validation", "told"),
    [
        ({"num_envs": 0}, "num_envs=0"),
        ({"max_steps": 0}, "max_steps=0"),
        ({"greedy": 1}, "greedy=1"),
        ({"seed": -1}, "seed=-1"),
        ({"env": Catch()}, "policy was made for CartPole"),
        ({"env": None}, "env is NoneType"),
    ],
)
def test_a_validation_that_cannot_be_is_refused_before_anything_is_trained(tmp_path, validation, told):
    with pytest.raises(dz.errors.InputError, match=told):
        go(tmp_path / "run", validate_every=100, validation=validation)
    assert not (tmp_path / "run").exists()


def test_an_evaluation_counts_first_lives_only():
    env = CartPole()
    told = dz.rl.evaluate(env, dz.rl.mlp(env, (16,)), num_envs=32, max_steps=30)
    assert torch.equal(told.returns, told.lengths.float())
    assert (told.lengths[~told.finished] == 30).all()
    assert 0 < told.finished.sum() < 32
    assert f"{int((~told.finished).sum())} unfinished after 30 steps" in str(told)
    low, high = told.interval
    assert low < told.mean < high


class Broken(CartPole):
    """Gives a reward that is not finite once the pole leans."""

    def reward(self, before, action, now):
        return torch.where(now.angle.abs() > 0.1, torch.nan, 1.0)


def test_a_bad_reward_stops_the_training_and_names_world_and_step(tmp_path):
    with pytest.raises(
        dz.errors.ModelError, match=r"a reward that is not finite, in world [0-3] at step [0-9]+"
    ) as told:
        go(tmp_path / "run", env=Broken(), steps=10**5)  # of more, updates would be compiled
    assert "go on with dz.rl.resume" in told.value.__notes__[0]
    assert read_manifest(tmp_path / "run")["status"] == "failed"


def test_wrong_inputs_are_named(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(dz.errors.StorageError, match="is not empty"):
        go(tmp_path / "full")
    with pytest.raises(dz.errors.InputError, match="total_steps=0"):
        go(steps=0)
    for every in (0, True):
        with pytest.raises(dz.errors.InputError, match=f"validate_every={every}"):
            go(validate_every=every)
    with pytest.raises(dz.errors.InputError, match=r"validation=\{'greedy': True\} without validate_every"):
        go(validation={"greedy": True})
    env = CartPole()
    with pytest.raises(dz.errors.DataError, match="none does not exist"):
        dz.rl.resume(tmp_path / "none", env, dz.rl.mlp(env), SETTINGS)
    go(tmp_path / "run")
    with pytest.raises(dz.errors.InputError, match="the policy differs"):
        dz.rl.resume(tmp_path / "run", env, dz.rl.mlp(env, (32,)), SETTINGS)
    with pytest.raises(dz.errors.InputError, match="the algorithm differs"):
        dz.rl.resume(tmp_path / "run", env, dz.rl.mlp(env, (16,)), dz.PPO())


def test_a_checkpoint_of_another_version_is_refused(tmp_path, monkeypatch):
    go(tmp_path / "run")

    def older(tensors):  # once the checks of a world had an entry each
        tensors["memo.7"] = tensors["memo.7"][:, None].repeat(1, 3)

    rewrite_checkpoint(tmp_path / "run", older)
    env = CartPole()
    with pytest.raises(dz.errors.DataError, match=r"memo.7 has shape \(4, 3\) there, \(4,\) now; another version"):
        dz.rl.resume(tmp_path / "run", env, dz.rl.mlp(env, (16,)), SETTINGS)
    monkeypatch.setattr(CartPole, "reward", Broken.reward)
    with pytest.raises(dz.errors.InputError, match=r"the env differs .*/run; method reward has other code than it had"):
        dz.rl.resume(tmp_path / "run", env, dz.rl.mlp(env, (16,)), SETTINGS)


def test_another_default_of_denizens_own_base_is_no_other_environment(tmp_path, monkeypatch):
    go(tmp_path / "run")
    monkeypatch.setattr(dz.Env, "measures", lambda self, sums: {}, raising=True)
    monkeypatch.setattr(dz.Env, "of_a_later_version", lambda self: None, raising=False)
    env = CartPole()
    assert dz.rl.resume(tmp_path / "run", env, dz.rl.mlp(env, (16,)), SETTINGS, progress=False).updates == 6


def test_damage_is_told(tmp_path):
    go(tmp_path / "run")
    (checkpoint,) = (tmp_path / "run/checkpoints").glob("update-*")
    data = bytearray(checkpoint.read_bytes())
    data[-1] ^= 1
    checkpoint.write_bytes(data)
    env = CartPole()
    with pytest.raises(dz.errors.DataError, match="differs from what was written"):
        dz.rl.resume(tmp_path / "run", env, dz.rl.mlp(env, (16,)), SETTINGS)
