"""What commands say of a folder that they cannot use, and of one that is finished."""

import re
import shutil
from pathlib import Path

import pytest

import denizen as dz
from denizen.rl import read_manifest

STORED = Path(__file__).parents[1] / "data/folders_2026_11"
READERS = ("show", "resume", "evaluate", "watch")


@pytest.mark.parametrize("command", READERS)
def test_a_folder_without_a_run_is_told_alike_by_all_commands(denizen, command):
    Path("empty").mkdir()
    Path("file").write_text("mine")
    told = {
        "nowhere": "error run folder nowhere does not exist\n",
        "file": "error file is a file; expected a run folder, as a run with out= writes it\n",
        "empty": "error empty is not a run folder: it holds no manifest.json (or the run was killed before its first "
        "save)\n",
    }
    assert {name: denizen(command, name)[2] for name in told} == told
    assert denizen("compare", "nowhere", "empty")[2] == told["nowhere"]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("evaluate", "simulation"),
        ("evaluate", "dotgat"),
        ("watch", "simulation"),
        ("watch", "dotgat"),
        ("compare", "dotgat"),
    ],
)
def test_a_folder_of_another_kind_is_told_with_what_takes_it(denizen, command, kind):
    shutil.copytree(STORED / kind, "r")
    code, out, err = denizen(command, "r", *(["r"] if command == "compare" else []))
    assert (code, out) == (2, "")
    told = re.fullmatch(
        f"error r holds a run of kind {kind}, and denizen {command} takes one of kind (.*); for {kind} there is "
        "denizen (.*)\n",
        err,
    )
    assert told
    kinds, commands = told[1].split(" or "), told[2].replace(" and ", ", ").split(", ")
    assert "training" in kinds
    assert kind not in kinds
    assert {"show", "resume"} <= set(commands)
    assert command not in commands


def test_simulations_are_compared(denizen):
    words = ["run", "sir", "--agents", "300", "--steps", "8", "--replicates", "4", "--quiet"]
    assert denizen(*words, "--out", "a")[0] == 0
    assert denizen(*words, "--out", "b", "--set", "infect_rate=0.01")[0] == 0
    code, out, _ = denizen("compare", "a", "b", "b")
    assert code == 0
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[:3] == ["a: a", "b: b", "4 worlds of 8 steps, with the same draws on both sides"]
    assert lines.count("b: b") == 2
    found = dz.run.load("a").compare(dz.run.load("b"), names=("a", "b"))
    assert f"{found['cases'].difference:.3g}" in out
    page = Path("compare.html").read_text()
    assert page.count("<h2>b minus a</h2>") == 2
    assert "Differences in time" in page
    told = "error --out c.png: expected a name that ends in .html, for the page of a comparison\n"
    assert denizen("compare", "a", "b", "--out", "c.png")[::2] == (2, told)
    shutil.copytree(STORED / "training_ppo", "t")
    assert denizen("compare", "a", "t")[::2] == (
        2, "error compare: the folders hold runs of kinds simulation and training, expected one\n"
    )  # fmt: skip
    assert denizen("compare", "a")[::2] == (
        2, "error compare: give two folders of simulations or more; the first is what others differ from\n"
    )  # fmt: skip
    told = "error --draws is for calibrations; name folders of such, or leave it out\n"
    assert denizen("compare", "a", "b", "--draws", "9")[::2] == (2, told)
    assert denizen("compare", "a", "b", "--level", "90")[::2] == (
        2, "error --level 90: expected a share above 0 and below 1, such as 0.9\n"
    )  # fmt: skip


def test_a_finished_training_says_so_and_how_to_go_on(denizen):
    words = ["--steps", "100", "--no-compile", "--set", "num_envs=2", "num_steps=8", "--seed", "3"]
    code, out, _ = denizen("train", "cartpole", *words, "--out", "r")
    assert code == 0
    assert "cartpole by ppo: 112 steps (100 rounded up to whole updates of 16), into r\n" in out
    before = Path("r/manifest.json").read_bytes()
    code, out, _ = denizen("resume", "r")
    told = "r is finished: nothing is missing; --steps MORE trains it further"
    assert (code, out.splitlines()[0]) == (0, told)
    assert Path("r/manifest.json").read_bytes() == before
    assert denizen("resume", "r", "--steps", "0")[::2] == (
        2, "error --steps 0: expected a whole number, at least 1\n"
    )  # fmt: skip
    assert denizen("resume", "r", "--steps", "17", "--quiet")[:2] == (0, "r\n")
    assert read_manifest("r")["updates"] == 9
    assert denizen("resume", "r", "--quiet")[1] == "r\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--set", "num_envs=10", "num_steps=7", "num_minibatches=4"],
            "PPO: num_envs=10 worlds x num_steps=7 steps do not divide into num_minibatches=4; take num_minibatches=2 "
            "or 5, or num_envs=8 or 12, or num_steps=6 or 8, since a ragged minibatch would weigh its samples more",
        ),
        (
            ["--batch-size", "10", "--max-steps", "7", "--set", "num_minibatches=4"],
            "PPO: --batch-size 10 worlds x --max-steps 7 steps do not divide into num_minibatches=4; take "
            "num_minibatches=2 or 5, or --batch-size 8 or 12, or --max-steps 6 or 8, since a ragged minibatch would "
            "weigh its samples more",
        ),
        (
            ["--algo", "grpo", "--batch-size", "10", "--set", "num_minibatches=4"],
            "GRPO: --batch-size 10 does not divide into num_minibatches=4; take num_minibatches=2 or 5, or "
            "--batch-size 8 or 12, since each minibatch takes an equal share of every group",
        ),
        (["--batch-size", "0"], "--batch-size 0: expected a whole number, at least 1"),
    ],
)
def test_sizes_that_do_not_fit_are_told_by_the_names_that_were_typed(denizen, words, said):
    assert denizen("train", "cartpole", *words) == (2, "", f"error {said}\n")


@pytest.mark.parametrize("algo", ["grpo", "sac", "td3", "dqn"])
def test_roles_are_for_ppo(denizen, algo):
    said = f"error --algo {algo}: a world with roles, here predator, prey, trains with ppo alone\n"
    assert denizen("train", "predator_prey", "--algo", algo) == (2, "", said)


@pytest.mark.parametrize(
    ("words", "there"),
    [
        (["run", "sir"], "cpu"),
        (["train", "cartpole"], "cpu"),
        (["train", "dotgat"], "cpu"),
        (["resume", "nowhere"], "cpu"),
        (["experiment"], "cpu"),
        (["bench", "cartpole"], "cpu"),
        (["doctor", "cartpole"], "cpu or simulated"),
    ],
)
def test_a_device_that_is_not_there_is_told_by_its_flag(denizen, monkeypatch, words, there):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, out, err = denizen(*words, "--device", "cuda")
    assert (code, out) == (2, "")
    assert err.startswith("error --device cuda: torch sees no CUDA device here")
    assert err.endswith(f"; give --device {there}, or leave it out\n")
    assert not Path("runs").exists()


def test_a_model_of_cells_alone_is_no_model_of_0_agents(denizen):
    code, out, _ = denizen("run", "life", "--steps", "2", "--replicates", "1", "--out", "r")
    assert (code, out.splitlines()[0]) == (0, "Life: 6,400 cells")
    assert "agents" not in denizen("show", "r")[1]
