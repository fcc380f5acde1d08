"""Configuration: defaults, TOML over them, flags over both, strictly."""

import json
from pathlib import Path

import pytest


def kept(denizen, toml, *words):
    """What the manifest of a run with that file and those words has of its configuration."""
    Path("run.toml").write_text(toml)
    code, out, err = denizen("run", *words, "--config=run.toml", "--quiet")
    assert (code, err) == (0, "")
    return json.loads(Path(out.strip(), "manifest.json").read_text())["settings"]["config"]


def test_flags_win_over_the_file_and_the_file_over_defaults(denizen):
    toml = 'model = "covid"\npopulation = "synthetic:astoria:200"\nsteps = 2\nseed = 4\nsnapshots-every = 2\n'
    toml += "[set]\nR = [3.5, 4.2]\nreference = true\n"
    found = kept(denizen, toml, "--seed", "9", "--set", "R=1", "mortality=0.5")
    given = {"model": "covid", "steps": 2, "seed": 9, "replicates": 16, "snapshots_every": 2}
    assert found | given == found
    assert found["set"] == {"R": "1", "reference": "true", "mortality": "0.5"}
    assert "sir has no such parameter" in denizen("run", "sir", "--config", "run.toml")[2]


def test_equals_sign_and_compile(denizen):
    few = ("sir", "--agents", "20", "--steps", "0")
    for toml, words, expected in (
        ("compile = false\n", (), (False, True)),
        ("compile = true\n", (), (True, False)),
        ("compile = true\n", ("--no-compile",), (False, True)),
    ):
        found = kept(denizen, toml, *few, *words)
        assert (found["compile"], found["no_compile"]) == expected


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("stpes = 3", "unknown key 'stpes'; did you mean 'steps'"),
        ("mortality = 3", "parameter of covid: write it under [set]"),
        ("config = 'x'", "unknown key 'config'"),
        ("steps = '3'", "steps is '3', expected a whole number"),
        ("steps = 3.0", "expected a whole number"),
        ("steps = true", "expected a whole number"),
        ("symmetrize = 1", "expected true or false"),
        ("device = 'tpu'", "expected 'auto' or 'cpu' or 'cuda'"),
        ("set = 3", "expected a table"),
        ("[set]\nR = {a = 1}", "set.R is"),
        ("[set]\nR = []", "set.R is"),
        ("steps = ", "not valid TOML"),
        ("snapshots-every = 1\nsnapshots_every = 2", "snapshots_every is given twice, with - and with _ in its name"),
        ("start = 2020-01-01T00:00:00Z", "start is 2020-01-01T00:00:00+00:00, expected a day such as 2020-01-01"),
        ('model = "sir"\nstart = "2020-01-01T00:00:00Z"', "'2020-01-01T00:00:00Z' is not a date; expected YYYY-MM-DD"),
        ('model = "sir"\n[set]\ninfect_rate = """1\n2"""', "set.infect_rate is '1\\n2', expected a text in one line"),
        ('population = """a\nb"""', "population is 'a\\nb', expected a text in one line"),
    ],
)
def test_mistakes_in_a_file(denizen, toml, message):
    Path("run.toml").write_text(toml)
    code, out, err = denizen("run", "--config", "run.toml")
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


def test_a_file_that_cannot_be_read(denizen):
    assert "directory" in denizen("run", "sir", "--config", ".")[2]
    Path("x.toml").write_bytes(b"\xff\xfe")
    assert "not valid TOML" in denizen("run", "sir", "--config", "x.toml")[2]


@pytest.mark.parametrize(
    ("model", "pairs", "message"),
    [
        ("covid", {"R": "3.5;4"}, "numbers with commas"),
        ("covid", {"R": "3.5,"}, "numbers with commas"),
        ("covid", {"mortality": "0.1,0.2"}, "one number, got 2"),
        ("covid", {"mortality": "inf"}, "a number"),
        ("covid", {"reference": "yes"}, "true or false"),
        ("covid", {"reference": "1"}, "true or false"),
        ("covid", {"exposed_days": "4.0"}, "whole number"),
        ("covid", {"network": "1"}, "no such parameter"),
        ("sir", {"infectious_day": "2"}, "did you mean 'infectious_days'"),
    ],
)
def test_mistakes_of_set(denizen, model, pairs, message):
    code, out, err = denizen("run", model, "--set", *(f"{name}={value}" for name, value in pairs.items()))
    assert (code, out) == (2, "")
    assert message in err
