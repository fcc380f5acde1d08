"""Values behind `--set`, `--world`, `--policy` and `--validation` are read by the kind that is declared."""

import shutil
from pathlib import Path

import pytest

from trainings import read_manifest

PROGRAMS = Path(__file__).with_name("programs")


@pytest.fixture
def town(denizen):
    shutil.copy(PROGRAMS / "town.py", "town.py")
    return denizen


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ("low=abc", "expected a number"),
        ("low=nan", "expected a number"),
        ("size=2.5", "expected a whole number"),
        ("size=none", "expected a value, not none"),
        ("hard=1", "expected true or false"),
        ("way=c", "valid: a, b"),
        ("widths=1,x", "expected whole numbers with commas between them"),
        ("gain=x", "expected a number"),
        ("gain=1:x", "expected a number"),
    ],
)
@pytest.mark.parametrize("world", ["Walk", "walk", "make"])
def test_an_option_of_another_kind_is_told_where_it_enters(town, world, pair, expected):
    for flag, words in (("--world", ["train"]), ("--set", ["check"])):
        code, out, err = town(*words, f"town.py:{world}", flag, pair)
        assert (code, out, err) == (2, "", f"error {flag} {pair}: {expected}\n")
    assert not Path("runs").exists()


def test_values_are_of_the_declared_kind(town):
    small = ["train", "town.py:Walk", "--steps", "16", "--no-compile", "--set", "num_envs=2", "num_steps=8"]
    texts = ["size=1e3", "low=2", "hard=true", "way=b", "name=5", "widths=3,4,5", "gain=2"]
    assert town(*small, "--quiet", "--out", "r", "--world", *texts) == (0, "r\n", "")
    assert read_manifest(Path("r"))["env"]["fields"] == {
        "gain": "float32 number 2.0",
        "size": "1000",
        "low": "2",  # as it was before kinds were read: fingerprints of folders tell 2 from 2.0
        "hard": "True",
        "way": "'b'",
        "name": "'5'",
        "widths": "[3, 4, 5]",
    }
    assert "did you mean 'size'" in town(*small, "--world", "sizes=3")[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "shared=3"], "--policy shared=3: expected true or false"),
        (["--policy", "memory_size=x"], "--policy memory_size=x: expected a whole number"),
        (["--validate-every", "2", "--validation", "greedy=3"], "--validation greedy=3: expected true or false"),
        (["--validate-every", "2", "--validation", "num_envs=x"], "--validation num_envs=x: expected a whole number"),
        (["--world", "food_range=x"], "--world food_range=x: expected whole numbers with commas between them"),
    ],
)
def test_other_pairs_are_read_by_their_kind_too(denizen, words, said):
    assert denizen("train", "foraging" if "--world" in words else "cartpole", *words) == (2, "", f"error {said}\n")


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_number_of_agents_is_given_once(town, command):
    code, out, err = town(command, "town.py:Flu", "--agents", "30", "--set", "num_agents=20")
    assert (code, out, err) == (2, "", "error --agents 30 and --set num_agents=20: give one of the two\n")


def test_models_lists_all_of_a_file(town):
    code, out, _ = town("models", "town.py")
    assert code == 0
    titles = [line.strip() for line in out.splitlines() if line.startswith("town.py")]
    assert titles[0] == "town.py:Flu: A flu that goes around. 100 steps by default"
    assert titles[1] == "town.py:Undocumented: 100 steps by default"  # not what dataclasses write
    assert [title.partition(",")[0] for title in titles[2:]] == ["town.py:Walk", "town.py:walk", "town.py:make"]
    rows = [[cell.strip() for cell in line.strip("│|").split("│")] for line in out.splitlines() if "size" in line]
    assert rows[0][:2] == ["size", "5"]
    assert rows[0][-1] == "where the walk ends."
    assert rows[2][:2] == ["size", "3"]  # the function's own default


@pytest.mark.parametrize("name", ["cartpole", "foraging", "town.py:Walk"])
def test_models_tells_of_a_world_by_name(town, name):
    code, out, _ = town("models", name)
    assert (code, f"{name}, a world: " in out, "--world" in out) == (0, True, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "cartpole", "--patience", "0"], "--patience 0: expected a whole number, at least 1"),
        (["train", "cartpole", "--validate-every", "0"], "--validate-every 0: expected a whole number, at least 1"),
        (["check", "sir", "--steps", "1"], "--steps 1: expected a whole number, at least 2"),
        (["doctor", "sir", "--steps", "3"], "--steps 3: expected a whole number, at least 4"),
        (["run", "sir", "--set", "seed=3"], "--set seed: sir has no such parameter; did you mean --seed 3?"),
        (
            ["experiment", "learners", "--steps", "abc"],
            "--steps: expected a whole number such as 5000, 500k, 1.5M or 1e3, got 'abc'",
        ),
    ],
)
def test_numbers_are_told_by_their_flags(denizen, words, said):
    assert denizen(*words) == (2, "", f"error {said}\n")
    assert not Path("runs").exists()


@pytest.mark.parametrize(("typed", "meant"), [("lr", "learning_rate"), ("n_steps", "num_steps"), ("lam", "gae_lambda")])
def test_settings_of_other_libraries_lead_to_ours(denizen, typed, meant):
    code, _, err = denizen("train", "cartpole", "--set", f"{typed}=3")
    assert (code, f"--set {typed}=3: unknown; did you mean '{meant}'?" in err) == (2, True)
