"""GRPO in several processes learns what it learns in one: groups are shared out whole."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import denizen as dz
from denizen.zoo.cartpole import CartPole
from trainings import TIMES, read_metrics

WORDS = [
    "train",
    "cartpole",
    "--algo",
    "grpo",
    "--steps",
    "960",
    "--device",
    "cpu",
    "--quiet",
    "--policy",
    "hidden=8",
    "--set",
    "groups=4",
    "group_size=4",
    "max_steps=20",
    "num_minibatches=2",
    "micro_batches=2",
    "scale=batch",
    "beta=0.1",
    "loss=grpo",
    "learning_rate=1e-2",
    "shared_stream=false",
    "drop_flat_groups=true",
]


def call(folder, *launch):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, *launch, "-m", "denizen", *WORDS]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    done = call(tmp_path / "a", str(Path(__file__).parents[1] / "ranks.py"))
    assert done.returncode == 0, done.stderr
    done = call(tmp_path / "b")
    assert done.returncode == 0, done.stderr
    two, one = (next((tmp_path / name / "runs").iterdir()) for name in ("a", "b"))
    mine, theirs = (load_file(next((run / "checkpoints").glob("update-*"))) for run in (one, two))
    for name in mine:
        if name.startswith(("policy.", "best.", "reference.")):
            assert torch.allclose(mine[name], theirs[name], atol=1e-6), name
    for row, other in zip(read_metrics(one), read_metrics(two), strict=True):
        for name in row.keys() - set(TIMES):
            assert row[name] == pytest.approx(other[name], abs=1e-5), name


def test_groups_that_cannot_be_shared_out_are_named(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    env = CartPole()
    with pytest.raises(dz.errors.InputError, match="3 groups do not divide among 2 processes"):
        dz.GRPO(groups=3).init(env, dz.rl.mlp(env), total_steps=1, device="cpu")
