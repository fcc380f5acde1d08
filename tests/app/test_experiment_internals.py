"""The folder of an experiment and its plan."""

import json
from pathlib import Path

import pytest

from denizen import GRPO
from denizen.app._experiment import Experiment
from denizen.app._settings import fill
from denizen.errors import ConfigError
from denizen.rl import _loop
from denizen.studies._experiment import begin
from denizen.studies.goodhart import Goodhart
from denizen.studies.learners import ORIGINAL


def test_a_wrong_flag_does_not_bind_the_folder(tmp_path):
    begin(tmp_path / "out", {"steps": "abc"})
    begin(tmp_path / "out", {"steps": "300"})  # nothing had been trained
    (tmp_path / "out/cartpole").mkdir()
    begin(tmp_path / "out", {"steps": "300"})
    with pytest.raises(ConfigError, match="steps 300, not 400"):
        begin(tmp_path / "out", {"steps": "400"})


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "manifest.json").touch()
    with pytest.raises(ConfigError, match="something else than an experiment"):
        begin(tmp_path, {"steps": "300"})
    assert not (tmp_path / "experiment.json").exists()


def test_a_mode_that_is_named_twice_counts_once():
    command = Experiment("goodhart", ("proxy", "proxy"), "256", 1, 4, 20, out=Path("exp"))
    assert [mode for mode, _, _ in Goodhart(command.plan()).trainings()] == ["proxy"]


def test_a_training_that_was_killed_before_its_first_save_begins_anew(tmp_path, monkeypatch):
    def killed(loop):
        raise KeyboardInterrupt

    settings = {"world_name": "cartpole", "algo": "ppo", "steps": "256", "set": {}, "world": {}, "policy": {}}
    plan = Experiment("learners", device="cpu", quiet=True).plan()
    with monkeypatch.context() as patched:
        patched.setattr(_loop.Updates, "warm_up", killed)
        with pytest.raises(KeyboardInterrupt):
            plan.train(settings, 0, tmp_path / "seed-0")
    plan.train(settings, 0, tmp_path / "seed-0")
    assert json.loads((tmp_path / "seed-0/manifest.json").read_text())["status"] == "finished"


def test_the_original_objective_is_that_of_the_library():
    assert fill(GRPO, ORIGINAL, "--set") == GRPO.original()
