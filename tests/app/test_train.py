"""`denizen train`, `evaluate`, `compare`, and what `resume` and `show` make of trainings."""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest
from PIL import Image

from trainings import TIMES, interrupt_after, read_manifest, read_metrics

SMALL = ["train", "cartpole", "--steps", "512", "--set", "num_envs=4", "num_steps=16", "update_epochs=1"]
SMALL += ["--policy", "hidden=8"]


@pytest.fixture(scope="module")
def learnt(tmp_path_factory, prepared):
    """What `SMALL` learns with the seeds 0, 1 and 2, for tests that begin with something learnt: their folder."""
    folder = tmp_path_factory.mktemp("learnt") / "runs"
    prepared(*SMALL, "--seeds", "3", "--quiet", "--out", folder)
    return folder


def untimed(folder):
    """A training's metrics without how long they took."""
    return [{n: v for n, v in row.items() if n not in TIMES} for row in read_metrics(folder)]


def test_a_training_is_kept_shown_evaluated_and_compared(denizen, tmp_path, pictures):
    code, out, _ = denizen(*SMALL, "--out", "one")
    assert code == 0
    assert "denizen evaluate one" in out
    assert (tmp_path / "one/curves.png").stat().st_size > 10_000
    given = {"num_envs": "4", "num_steps": "16", "update_epochs": "1"}
    assert read_manifest(tmp_path / "one")["settings"]["set"] == given
    code, out, _ = denizen("show", "one")
    assert code == 0
    assert "cartpole, 8 updates, seed 0, finished" in out
    for words, told in (
        (["--worlds", "0"], "--worlds 0: expected a whole number, at least 1"),
        (["--steps", "0"], "--steps 0: expected"),
        (["--seed", "-1"], "--seed -1: expected a whole number, at least 0"),
        (["--world", "length=3"], "--world length=3: CartPole: unknown option 'length'"),
    ):
        code, _, err = denizen("evaluate", "one", *words)
        assert (code, told in " ".join(err.split())) == (2, True), err
    code, out, _ = denizen("evaluate", "one", "--worlds", "8", "--steps", "20", "--json", "told.json", "--best")
    assert code == 0
    assert json.loads((tmp_path / "told.json").read_text())[0]["run"] == "one"
    assert denizen(*SMALL, "gamma=0.9", "--seed", "1", "--out", "two")[0] == 2  # gamma is no option of the policy
    assert denizen(*SMALL, "--set", "gamma=0.9", "--seed", "1", "--out", "two", "--quiet")[0] == 0
    code, out, _ = denizen("compare", "one", "two")
    assert code == 0
    assert "gamma=0.9" in out
    assert (tmp_path / "compare.png").exists()


def test_several_seeds_go_into_folders_of_their_own(denizen, tmp_path, learnt):
    assert [read_manifest(learnt / f"seed-{seed}")["seed"] for seed in range(3)] == [0, 1, 2]
    several = ["--seeds", "2", "--seed", "1", "--out", "at-once", "--quiet", "--together"]
    assert denizen(*SMALL, *several)[:2] == (0, "at-once\n")
    assert [path.name for path in sorted((tmp_path / "at-once").glob("seed-*"))] == ["seed-1", "seed-2"]
    for seed in (1, 2):  # the same numbers, whichever way
        assert read_manifest(tmp_path / f"at-once/seed-{seed}")["seed"] == seed
        assert str(untimed(tmp_path / f"at-once/seed-{seed}")) == str(untimed(learnt / f"seed-{seed}"))
    code, out, _ = denizen("evaluate", "at-once", "--worlds", "8", "--steps", "10")
    assert code == 0
    assert re.search(r"over 2 training seeds: 10.00 \(95 % .* to .*\), standard deviation", out)
    code, _, err = denizen(*SMALL, "--seeds", "2", "--together", "--wandb", "project")
    assert code == 2
    assert "--together writes run folders only" in err


def test_an_interrupted_training_is_resumed(denizen, tmp_path, monkeypatch, learnt):
    with monkeypatch.context() as patched:
        interrupt_after(3, patched)
        code, _, err = denizen(*SMALL, "--out", "part")
    assert code == 130
    assert "denizen resume part" in err
    file = tmp_path / "part" / "manifest.json"
    file.write_text(file.read_text().replace('"status": "interrupted"', '"status": "running"'))  # as kill -9 leaves it
    assert "seed 0, killed" in denizen("show", "part")[1]
    code, out, _ = denizen("resume", "part")
    assert code == 0
    assert str(untimed(tmp_path / "part")) == str(untimed(learnt / "seed-0"))


def test_a_file_gives_what_flags_leave_open(denizen, tmp_path):
    (tmp_path / "pole.toml").write_text(
        'world_name = "cartpole"\nsteps = 2.56e2\nseed = 3\n'
        "[set]\nnum_envs = 4\nnum_steps = 16\n[policy]\nhidden = [8, 8]\n"
    )
    assert denizen("train", "--config", "pole.toml", "--set", "num_envs=8", "--out", "run", "--quiet")[0] == 0
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
        (["train", "cartpole", "--policy", "kind=cnn"], "kind=cnn: expected mlp or conv"),
        (
            ["train", "cartpole", "--policy", "kind=conv"],
            "conv: CartPole gives inputs (4,), expected (channels, height",
        ),
        (["train", "pendulum", "--algo", "sac", "--policy", "kind=conv"], "kind=conv: expected none with sac and td3"),
        (["train", "cartpole", "--policy", "hidden=a"], "widths with commas"),
        (["train", "cartpole", "--policy", "memory=lstm", "window=8"], "window=8: goes with memory=attention"),
        (["train", "cartpole", "--world", "size=3"], "--world size=3: CartPole: unknown option 'size'; valid: (none)"),
        (["train", "cartpole", "--mode", "x"], "--world mode=x: CartPole: unknown option 'mode'"),
        (["train", "catch", "--world", "row=3"], "did you mean 'rows'? valid: columns, rows"),
        (["train", "fruits", "--world", "spawn=1"], "fruits: unknown option 'spawn'; did you mean 'spawn_prob'?"),
        (["train", "control", "--world", "shot=3"], "control: unknown option 'shot'; did you mean 'shots'?"),
        (["train", "cartpole", "--steps", "lots"], "--steps lots"),
        (["train", "cartpole", "--steps", "1.5e0"], "--steps 1.5e0"),
        (["train", "cartpole", "--steps", "infk"], "--steps infk"),
        (["train", "cartpole", "--steps", "0"], "--steps 0: expected at least 1"),
        (["train", "cartpole", "--out", ""], "--out is empty; leave it out, or give a value"),
        (["train", "cartpole", "--compile", "--no-compile"], "one of the two"),
        (["train", "foraging", "--mode", "proxy", "--world", "mode=proxy"], "one of the two"),
        (["train", "foraging", "--mode", "prox"], "did you mean 'proxy'"),
        (["train", "--config", "none.toml"], "cannot be read"),
        (["evaluate", "nowhere"], "run folder nowhere does not exist"),
        (["compare", "nowhere"], "run folder nowhere does not exist"),
    ],
)
def test_wrong_words_are_named(denizen, tmp_path, words, told):
    code, _, err = denizen(*words)
    assert code == 2
    assert told in err
    assert not (tmp_path / "runs").exists()


def test_services_get_the_rest_after_a_resume(denizen, tmp_path, monkeypatch):
    seen = []

    class Board:
        def __init__(self, folder):
            assert folder.name == "run-tensorboard"

        def write(self, row):
            seen.append(row["step"])
            if row["step"] == 3 and seen.count(3) == 1:
                signal.raise_signal(signal.SIGINT)

        def sync(self):
            pass

        close = sync

    monkeypatch.setattr("denizen.tools.TensorBoard", Board)
    assert denizen(*SMALL, "--out", "run", "--tensorboard")[0] == 130
    assert denizen("resume", "run", "--quiet")[:2] == (0, "run\n")
    assert sorted(set(seen)) == list(range(1, 9))


def test_a_parameter_of_the_world_follows_a_schedule_also_after_a_resume(denizen, tmp_path):
    words = ["train", "fruits", "--steps", "400", "--set", "num_envs=4", "num_steps=25", "--policy", "hidden=8"]
    words.append("--quiet")
    assert denizen(*words, "--world", "spawn_prob=0.2:0.8", "--out", "one")[0] == 0
    assert [round(row["param_spawn_prob"], 5) for row in read_metrics(tmp_path / "one")] == [0.2, 0.35, 0.5, 0.65]
    assert denizen("resume", "one", "--quiet")[0] == 0
    assert denizen("evaluate", "one", "--worlds", "4")[0] == 0
    code, _, err = denizen("evaluate", "one", "--worlds", "4", "--world", "spawn_prob=0:1")
    assert code == 2
    assert "nothing is trained here; give one value" in err
    code, _, err = denizen(*words, "--world", "width=10:20")
    assert code == 2
    assert "START:END is for parameters" in err


def test_validation_has_lives_and_a_world_of_its_own(denizen, tmp_path, monkeypatch):
    words = ["train", "fruits", "--steps", "400", "--set", "num_envs=4", "num_steps=25", "--policy", "hidden=8"]
    words.append("--quiet")
    how = ["--validate-every", "2", "--validation", "num_envs=4", "greedy=true"]
    assert denizen(*words, *how, "win_score=1", "fail_score=-1", "stop_at_thresholds=true", "--out", "one")[0] == 0
    told = [row["validation_return"] for row in read_metrics(tmp_path / "one") if "validation_return" in row]
    assert len(told) == 2
    assert all(-1 <= value <= 1 for value in told)  # lives of one fruit
    assert denizen(*words, "--out", "plain")[0] == 0
    monkeypatch.setenv("COLUMNS", "200")
    told = " ".join(denizen("compare", "one", "plain")[1].split())
    assert "validation.num_envs=4, validation.greedy=true" in told
    assert " num_envs=4" not in told  # which both have
    assert denizen("resume", "one", "--quiet")[0] == 0
    for words_more, message in (
        (how[2:], "--validation goes with --validate-every"),
        ([*how, "width=abc"], "--validation width=abc: expected a whole number"),
        ([*how, "spawn_prob=0:1"], "--validation spawn_prob=0:1: expected one value"),
        ([*how, "colour=3"], "colour"),
        ([*how, "num_env=4"], "--validation num_env=4: "),
        ([*how, "num_env=4"], "did you mean 'num_envs'?"),
        ([*how, "env=4"], "--validation env=4: "),
    ):
        code, _, err = denizen(*words, *words_more)
        assert code == 2
        assert message in err


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
    code, out, _ = denizen("watch", "run", "--steps", "2", "--brain")
    assert code == 0
    assert re.search("▀{20,}  ▀{20,}", out)  # what is seen, and what of it moves the decision


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
    small = ["--total-epochs", "3", "--batch-size", "8", "--max-steps", "4", "--quiet"]
    assert denizen("train", "cartpole", *small, "--out", "a")[0] == 0
    manifest = read_manifest(tmp_path / "a")
    assert (manifest["updates"], manifest["settings"]["set"]) == (3, {"num_envs": "8", "num_steps": "4"})
    code, _, err = denizen("train", "cartpole", "--batch-size", "8", "--set", "num_envs=4", "--out", "b")
    assert code == 2
    assert "give one of the two" in err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('seeds = "5"', "seeds is '5', expected a whole number"),
        ('algo = "a2c"', "expected 'ppo'"),
        ("world_name = 3", "world_name is 3, expected a text"),
        ("steps = 2.5", "--steps 2.5: expected a whole number"),
        ("quiet = 'no'", "expected true or false"),
        ("set = 3", "expected a table [set]"),
        ("[set]\ngama = 1", "gamma"),
        ("sed = 3", "did you mean 'seed'"),
    ],
)
def test_wrong_words_of_a_file_are_named(denizen, tmp_path, line, told):
    world = "" if "world_name" in line else 'world_name = "cartpole"\n'
    (tmp_path / "pole.toml").write_text(world + line)
    code, _, err = denizen("train", "--config", "pole.toml")
    assert code == 2
    assert told in err


def test_flags_win_over_a_file_also_with_the_values_of_defaults(denizen, tmp_path):
    (tmp_path / "pole.toml").write_text(
        'world_name = "cartpole"\nsteps = 64\nseed = 3\nquiet = true\ncompile = false\n'
        "[set]\nnum_envs = 4\nnum_steps = 16\n[policy]\nhidden = 8\n"
    )
    assert denizen("train", "--config=pole.toml", "--seed", "0", "--out", "run")[1] == "run\n"
    manifest = read_manifest(tmp_path / "run")
    assert (manifest["seed"], manifest["updates"], manifest["compile"]) == (0, 1, False)
    assert "given twice" in denizen("train", "--config=pole.toml", "--set", "gamma=0", "gamma=1")[2]


def test_seeds_that_were_not_begun_begin_at_a_resume(denizen, tmp_path, monkeypatch, learnt):
    with monkeypatch.context() as patched:
        interrupt_after(3, patched, seed=1)
        code, _, err = denizen(*SMALL, "--seeds", "3", "--out", "part")
    assert (code, "denizen resume part\n" in err) == (130, True)
    (tmp_path / "part/seed-2").mkdir()
    (tmp_path / "part/seed-2/log.txt").touch()  # killed while it was made
    assert denizen("resume", "part/seed-0", "--quiet")[0] == 0  # that one alone
    assert not list(tmp_path.glob("part/*/seed-*"))
    code, out, err = denizen("resume", "part")
    assert code == 0, err
    for seed in range(3):
        assert str(untimed(tmp_path / f"part/seed-{seed}")) == str(untimed(learnt / f"seed-{seed}"))
        assert out.count(f" seed-{seed} ") == 1
    assert "no life ended" not in out


def test_a_training_that_was_killed_before_its_first_save_can_begin_anew(denizen, tmp_path):
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "run/log.txt").touch()
    code, _, err = denizen("resume", "run")
    assert (code, "before its first save" in err, "begin a new one in it" in err) == (2, True, True)
    assert denizen(*SMALL, "--out", "run", "--steps", "64", "--quiet")[0] == 0


def test_a_training_that_was_killed_before_its_first_update_is_shown(denizen, tmp_path, learnt):
    shutil.copytree(learnt / "seed-0", "killed")
    (tmp_path / "killed/metrics.jsonl").unlink()
    assert "cannot be read" in denizen("show", "killed")[2]  # of a folder whose manifest tells of updates
    file = tmp_path / "killed/manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"updates": 0}))
    code, out, _ = denizen("show", "killed")
    assert (code, "no update is saved yet" in out, "denizen resume killed" in out) == (0, True, True)
    code, out, _ = denizen("compare", "killed", learnt / "seed-1", "--out", "beside.png")
    assert (code, "beside.png" in out) == (0, True)
    assert denizen("report", "killed", "--quiet")[0] == 0


def test_states_whose_manifest_was_lost_are_not_removed(denizen, tmp_path, learnt):
    shutil.copytree(learnt, "runs")
    (tmp_path / "runs/seed-1/manifest.json").unlink()
    states = sorted((tmp_path / "runs/seed-1/checkpoints").iterdir())
    code, _, err = denizen("resume", "runs")
    assert (code != 0, "seed-1 is not empty" in err) == (True, True)
    assert states
    assert sorted((tmp_path / "runs/seed-1/checkpoints").iterdir()) == states


def test_no_seed_begins_where_the_folder_of_one_is_taken(denizen, tmp_path):
    (tmp_path / "runs/seed-2").mkdir(parents=True)
    (tmp_path / "runs/seed-2/mine.txt").touch()
    code, _, err = denizen(*SMALL, "--seeds", "3", "--out", "runs")
    assert (code, "seed-2 is not empty" in err) == (2, True)
    assert not (tmp_path / "runs/seed-0").exists()


def test_files_go_where_they_can_be_written(denizen, tmp_path, learnt):
    shutil.copytree(learnt / "seed-0", "run")
    shutil.copytree(learnt / "seed-1", "two")
    (tmp_path / "file").touch()
    assert denizen("watch", "run", "--steps", "2", "--gif", "new/game.gif")[0] == 0
    assert denizen("evaluate", "run", "--worlds", "2", "--steps", "2", "--json", "other/told.json")[0] == 0
    for words, told in (
        (["watch", "run", "--gif", "game.jpg"], "ends in .gif or .mp4"),
        (["watch", "run", "--steps", "0"], "--steps 0"),
        (["watch", "run", "--steps", "1", "--gif", "file/game.gif"], "cannot be written"),
        (["evaluate", "run", "--worlds", "2", "--steps", "2", "--json", "file/told.json"], "cannot be written"),
        (["compare", "run", "two", "--out", "curves.xyz"], "ends in .png"),
    ):
        code, _, err = denizen(*words)
        assert (code, told in err) == (2, True)


def test_foragers_are_evaluated_mortal(denizen, tmp_path):
    small = ["--set", "num_envs=2", "num_steps=4", "--policy", "channels=2", "hidden=4", "critic_hidden=4"]
    grid = ["--mode", "proxy", "--world", "height=8", "width=8", "food_range=3,5", "poison_range=9,9"]
    assert denizen("train", "foraging", "--steps", "8", *small, *grid, "--out", "run", "--quiet")[0] == 0
    code, out, err = denizen("evaluate", "run", "--worlds", "8", "--steps", "150", "--json", "told.json")
    assert code == 0, err
    told = json.loads((tmp_path / "told.json").read_text())[0]
    assert told["deaths_per_1000"] > 1000 / 150  # in training nobody dies in this mode
    assert told["energy_per_1000"] == pytest.approx(told["food_per_1000"] - 2 * told["poison_per_1000"] - 10, abs=0.01)
    assert "proxy 0" in out


def _precision(denizen, *words):
    small = ["--steps", "8", "--set", "num_envs=2", "num_steps=4"]
    policy = ["--policy", "channels=2", "hidden=4", "critic_hidden=4"]
    grid = ["--world", "height=8", "width=8", "food_range=3,5", "poison_range=9,9"]
    code, out, err = denizen("train", "foraging", *policy, *grid, "--out", "run", *small, *words)
    assert code == 0, err
    manifest = read_manifest(Path("run"))
    kept = manifest["settings"]["set"].get("precision")
    assert ("in bfloat16" in out) == ("precision='bfloat16'" in manifest["algorithm"]) == (kept == "bfloat16")
    return kept


def test_a_world_s_settings_on_a_gpu_are_not_a_cpu_s(denizen):
    assert _precision(denizen) is None


@pytest.mark.cuda
def test_a_world_s_settings_on_a_gpu(denizen, monkeypatch):
    monkeypatch.setenv("DENIZEN_DEVICE", "cuda")
    assert _precision(denizen) == "bfloat16"
    assert denizen("resume", "run", "--steps", "16", "--device", "cpu")[0] == 0
    shutil.rmtree("run")
    assert _precision(denizen, "precision=float32") == "float32"


def test_another_kind_of_network(denizen, tmp_path):
    world = ["--world", "rows=4", "columns=5", "openings=40"]
    words = ["train", "connect_four", "--steps", "64", "--set", "num_envs=4", "num_steps=8", *world, "--out", "conv"]
    assert denizen(*words, "--policy", "kind=conv", "channels=3", "hidden=8")[0] == 0
    manifest = json.loads((tmp_path / "conv" / "manifest.json").read_text())
    assert "torch.float32[3, 2, 3, 3]" in manifest["policy"].values()
    assert denizen("evaluate", "conv", "--worlds", "8")[0] == 0
