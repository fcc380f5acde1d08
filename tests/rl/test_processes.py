"""Several processes learn what one does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import denizen as dz
import ranks
from trainings import read_manifest, read_metrics

WORDS = [
    "train",
    "cartpole",
    "--steps",
    "512",
    "--device",
    "cpu",
    "--quiet",
    "--policy",
    "hidden=8",
    "head=popart",
    "normalise=true",
    "--set",
    "num_envs=8",
    "num_steps=16",
    "shuffle_groups=2",
    "entropy_floor=0.69",
    "floor_penalty=1",
    "value_clip=0.1",
    "target_kl=0.1",
    "normalise_rewards=true",
]


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
FORKED = ["forked"]  # the same two processes, without the seconds that imports take


def call(folder, *words, program=("-m", "denizen"), launch=FORKED):
    if launch is FORKED:
        return ranks.call(folder, [*program, *map(str, words)])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, *launch, *program, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def one(tmp_path_factory, prepared):
    """What one process learns: its folder."""
    folder = tmp_path_factory.mktemp("alone") / "one"
    prepared(*WORDS, "--out", folder)
    return folder


def last(folder):
    """The tensors of the last save."""
    return load_file(next((folder / "checkpoints").glob("update-*")))


def equal_policies(one, two):
    assert one.keys() - two.keys() == {name for name in one if name.startswith(("memo.", "rewards.going"))}
    for name in one:
        if name.startswith(("policy.", "best.")):
            assert torch.allclose(one[name], two[name], atol=1e-6), name


def equal_trainings(one, two):
    """Two processes learnt what one did, were told the same of it, and kept the same."""
    assert read_manifest(two)["status"] == "finished"
    rows = [read_metrics(folder) for folder in (one, two)]
    assert [row["step"] for row in rows[1]] == [1, 2, 3, 4]
    for mine, theirs in zip(*rows, strict=True):
        for name in ("episodes", "return_mean", "return_max", "explained_variance", "value_loss", "entropy"):
            assert mine[name] == pytest.approx(theirs[name], abs=1e-5), name
    one, two = last(one), last(two)
    equal_policies(one, two)
    assert torch.equal(torch.cat([two["rank0.memo.0"], two["rank1.memo.0"]]), one["memo.0"])


@pytest.mark.slow
def test_two_processes_equal_one_and_only_the_first_writes(one, tmp_path):
    done = call(tmp_path, *WORDS, "--out", "two", launch=TORCHRUN)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "two\n"
    equal_trainings(one, tmp_path / "two")


ROLES = [
    *("train", "predator_prey", "--steps", "192", "--device", "cpu", "--quiet", "--policy", "hidden=8"),
    *("normalise=true", "--set", "num_envs=8", "num_steps=8", "num_minibatches=2", "update_epochs=2"),
    "shuffle_groups=2",
]


@pytest.mark.slow
def test_two_processes_with_roles_equal_one(tmp_path, prepared):
    prepared(*ROLES, "--out", tmp_path / "one")
    done = call(tmp_path, *ROLES, "--out", "two")
    assert done.returncode == 0, done.stderr
    one, two = last(tmp_path / "one"), last(tmp_path / "two")
    names = [name for name in one if name.startswith(("policy.", "best."))]
    assert len(names) > 20
    for name in names:
        assert torch.allclose(one[name], two[name], atol=1e-6), name
    mine, theirs = (read_metrics(tmp_path / name)[-1] for name in ("one", "two"))
    shown = [name for name in mine if "second" not in name]
    assert {"predator/return_mean", "prey/entropy", "reward_mean"} <= set(shown)
    for name in shown:
        assert theirs[name] == pytest.approx(mine[name], rel=1e-4, abs=1e-5, nan_ok=True), name
    resumed = call(tmp_path, "resume", "two", "--steps", "64", "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    assert len(read_metrics(tmp_path / "two")) == 4


FAULTY = Path(__file__).with_name("programs") / "faulty_third_update.py"


def test_two_processes_save_when_due_and_go_on_from_there(one, tmp_path):
    """They learn what one does, and only the first writes, before the fault and after it."""
    done = call(tmp_path, *WORDS, "--out", "two", program=[str(FAULTY)])
    assert done.returncode != 0
    assert "the third update fails" in done.stderr
    assert read_manifest(tmp_path / "two")["updates"] == 2
    done = call(tmp_path, "resume", "two", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "two\n"
    equal_trainings(one, tmp_path / "two")


def test_a_folder_that_is_taken_is_told_by_all_in_words(tmp_path):
    (tmp_path / "two").mkdir()
    (tmp_path / "two/mine.txt").touch()
    done = call(tmp_path, *WORDS, "--out", "two")
    assert done.returncode != 0
    assert "run folder two is not empty" in done.stderr
    assert "the first process cannot write it" in done.stderr
    assert "[rank1]: Traceback" not in done.stderr


def test_worlds_that_cannot_be_shared_out_are_named():
    from denizen.zoo.cartpole import CartPole

    env = CartPole()
    with pytest.raises(dz.errors.InputError, match="8 worlds do not divide into 3 groups"):
        dz.PPO(num_envs=8, shuffle_groups=3).init(env, dz.rl.mlp(env), total_steps=1, device="cpu")
    with pytest.raises(dz.errors.InputError, match="learns from whole worlds"):
        dz.PPO(num_envs=8, num_minibatches=8, shuffle_groups=2).init(
            env, dz.rl.mlp(env, memory_size=4), total_steps=1, device="cpu"
        )
