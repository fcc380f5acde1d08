"""`denizen train`, `evaluate`, `compare`, and what `resume` and `show` make of trainings."""

import contextlib
import json
import signal

import pytest
from PIL import Image

from denizen.app._settings import fill, guess, pairs, whole
from denizen.errors import ConfigError
from denizen.rl import PPO, Linear
from denizen.rl._training_folder import read_manifest, read_metrics

SMALL = ["train", "cartpole", "--steps", "512", "--set", "num_envs=4", "num_steps=16", "--policy", "hidden=8"]


def test_a_training_is_kept_shown_evaluated_and_compared(denizen, tmp_path):
    code, out, _ = denizen(*SMALL, "--out", "one")
    assert code == 0
    assert "denizen evaluate one" in out
    assert (tmp_path / "one/curves.png").stat().st_size > 10_000
    assert read_manifest(tmp_path / "one")["settings"]["set"] == {"num_envs": "4", "num_steps": "16"}
    code, out, _ = denizen("show", "one")
    assert code == 0
    assert "cartpole, 8 updates, seed 0, finished" in out
    code, out, _ = denizen("evaluate", "one", "--worlds", "8", "--steps", "20", "--json", "told.json", "--best")
    assert code == 0
    assert json.loads((tmp_path / "told.json").read_text())[0]["run"] == "one"
    assert denizen(*SMALL, "gamma=0.9", "--seed", "1", "--out", "two")[0] == 2  # gamma is no option of the policy
    assert denizen(*SMALL, "--set", "gamma=0.9", "--seed", "1", "--out", "two")[0] == 0
    code, out, _ = denizen("compare", "one", "two")
    assert code == 0
    assert "gamma=0.9" in out
    assert (tmp_path / "compare.png").exists()


def test_several_seeds_go_into_folders_of_their_own(denizen, tmp_path):
    assert denizen(*SMALL, "--seeds", "2", "--seed", "5", "--out", "runs", "--quiet")[1] == "runs\n"
    assert [read_manifest(tmp_path / f"runs/seed-{seed}")["seed"] for seed in (5, 6)] == [5, 6]
    code, out, _ = denizen("evaluate", "runs", "--worlds", "8", "--steps", "10")
    assert code == 0
    assert "over 2 training seeds" in out
    assert denizen(*SMALL, "--seeds", "2", "--seed", "5", "--out", "at-once", "--quiet", "--together")[0] == 0
    for seed in (5, 6):  # the same numbers, whichever way
        one, other = (read_metrics(tmp_path / f"{name}/seed-{seed}") for name in ("runs", "at-once"))
        assert str(one) == str(other)
    code, _, err = denizen(*SMALL, "--seeds", "2", "--together", "--wandb", "project")
    assert code == 2
    assert "--together writes run folders only" in err


def test_an_interrupted_training_is_resumed(denizen, tmp_path, monkeypatch):
    from denizen.rl import _train

    denizen(*SMALL, "--out", "whole")
    plain = _train.Loop._judge

    def judge(self, metrics):
        plain(self, metrics)
        if self.done == 3:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(_train.Loop, "_judge", judge)
        code, _, err = denizen(*SMALL, "--out", "part")
    assert code == 130
    assert "denizen resume part" in err
    code, out, _ = denizen("resume", "part")
    assert code == 0
    assert str(read_metrics(tmp_path / "part")) == str(read_metrics(tmp_path / "whole"))


def test_a_file_gives_what_flags_leave_open(denizen, tmp_path):
    (tmp_path / "pole.toml").write_text(
        'world_name = "cartpole"\nsteps = 256\nseed = 3\n'
        "[set]\nnum_envs = 4\nnum_steps = 16\n[policy]\nhidden = [8, 8]\n"
    )
    assert denizen("train", "--config", "pole.toml", "--set", "num_envs=8", "--out", "run")[0] == 0
    manifest = read_manifest(tmp_path / "run")
    assert manifest["settings"]["set"] == {"num_envs": "8", "num_steps": "16"}
    assert (manifest["seed"], manifest["updates"]) == (3, 2)
    assert manifest["policy"]["body.3.weight"] == "torch.float32[8, 8]"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train"], "which world"),
        (["train", "cartpol"], "did you mean 'cartpole'"),
        (["train", "cartpole", "--set", "num_env=4"], "did you mean 'num_envs'"),
        (["train", "cartpole", "--set", "num_envs=many"], "expected a whole number"),
        (["train", "cartpole", "--set", "num_envs"], "expected NAME=VALUE"),
        (["train", "cartpole", "--set", "gamma=2"], "expected a number from 0 to 1"),
        (["train", "cartpole", "--policy", "head=big"], "expected popart or plain"),
        (["train", "cartpole", "--policy", "hidden=a"], "widths with commas"),
        (["train", "cartpole", "--world", "size=3"], "--world size=3"),
        (["train", "cartpole", "--steps", "lots"], "--steps lots"),
        (["train", "cartpole", "--compile", "--no-compile"], "one of the two"),
        (["train", "--config", "none.toml"], "cannot be read"),
        (["evaluate", "nowhere"], "holds no training"),
        (["compare", "nowhere"], "two run folders or more"),
    ],
)
def test_wrong_words_are_named(denizen, tmp_path, words, told):
    code, _, err = denizen(*words)
    assert code == 2
    assert told in err
    assert not (tmp_path / "runs").exists()


def test_values_are_read_by_type():
    read = fill(
        PPO, {"num_envs": "4k", "clip": "0.2:0.1", "value_clip": "none", "normalise_advantages": "false"}, "--set"
    )
    assert (read.num_envs, read.clip, read.value_clip, read.normalise_advantages) == (
        4000,
        Linear(0.2, 0.1),
        None,
        False,
    )
    assert fill(PPO, {"gamma": 0.5, "clip": 0.3}, "--set").gamma == 0.5
    for wrong in ({"num_envs": "1.5"}, {"gamma": "x"}, {"clip": "0.1:x"}, {"num_envs": "none"}, {"num_envs": True}):
        with pytest.raises(ConfigError):
            fill(PPO, wrong, "--set")
    with pytest.raises(ConfigError, match="given twice"):
        pairs([["a=1", "a=2"]], "--set")
    assert [guess(text) for text in ("3", "2.5", "true", "none", "proxy", 4)] == [3, 2.5, True, None, "proxy", 4]
    assert [whole(text) for text in ("12", "1_000", "1.5k", "2M")] == [12, 1000, 1500, 2_000_000]
    with contextlib.suppress(ValueError):
        whole("1.23456k")
        raise AssertionError


@pytest.mark.parametrize(("world", "words"), [("cartpole", ["--greedy"]), ("fruits", ["--best"])])
def test_a_policy_can_be_watched(denizen, tmp_path, world, words):
    small = ["--total-epochs", "2", "--batch-size", "4", "--max-steps", "8", "--out", "run", "--quiet"]
    algo = "grpo" if world == "fruits" else "ppo"
    assert denizen("train", world, "--algo", algo, *small)[0] == 0
    code, out, err = denizen("watch", "run", "--steps", "5", *words)
    assert code == 0, err
    assert "step 5, return" in out
    assert denizen("watch", "run", "--steps", "5", "--gif", "game.gif")[0] == 0
    with Image.open(tmp_path / "game.gif") as gif:
        assert gif.n_frames > 2
        width = gif.width
    assert denizen("watch", "run", "--steps", "3", "--gif", "brain.gif", "--brain")[0] == 0
    with Image.open(tmp_path / "brain.gif") as gif:
        assert gif.width > 2 * width
    assert "give --gif" in denizen("watch", "run", "--brain")[2]


def test_patience_has_its_least_gain(denizen, tmp_path):
    small = ["--total-epochs", "6", "--batch-size", "4", "--max-steps", "4", "--quiet"]
    assert (
        denizen("train", "fruits", "--algo", "grpo", *small, "--patience", "2", "--min-delta", "50", "--out", "a")[0]
        == 0
    )
    manifest = json.loads((tmp_path / "a/manifest.json").read_text())
    assert manifest["patience"] == {"updates": 2, "min_delta": 50.0, "restore_best": True}
    assert manifest["updates"] < 6
    assert "--min-delta goes with --patience" in denizen("train", "fruits", "--min-delta", "1", "--out", "b")[2]


def test_short_flags_stand_for_settings(denizen, tmp_path):
    assert (
        denizen("train", "cartpole", "--total-epochs", "3", "--batch-size", "8", "--max-steps", "4", "--out", "a")[0]
        == 0
    )
    manifest = read_manifest(tmp_path / "a")
    assert (manifest["updates"], manifest["settings"]["set"]) == (3, {"num_envs": "8", "num_steps": "4"})
    code, _, err = denizen("train", "cartpole", "--batch-size", "8", "--set", "num_envs=4", "--out", "b")
    assert code == 2
    assert "give one of the two" in err
