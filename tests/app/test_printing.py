"""What is printed is what was meant: brackets, letters that a terminal lacks, readers that leave, numbers, origins."""

import ast
import io
import json
import os
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console as Foreign

import denizen as dz
from denizen import app
from denizen.perf import BenchCase, BenchReport

SOURCE = Path(app.__file__).parents[1]
NAME = "r[1] [bold]x[/] :smile: ü"
SMALL = ["sir", "--agents", "60", "--steps", "2", "--replicates", "2", "--no-compile"]


def test_everything_is_printed_in_one_place():
    """Rich's own consoles, tables and columns read markup, and no text of ours is any."""
    forbidden = re.compile(r"rich\.console import .*\bConsole\b|rich\.table|rich\.progress|rich\.markup")
    markup = re.compile(r"""["']\[(/|bold|dim|italic|red|green|yellow|cyan)[^\]]*\]""")
    for file in SOURCE.rglob("*.py"):
        if file.name == "_printing.py":
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            assert not ("rich" in line and forbidden.search(line)), f"{file}:{number}: {line}"
            assert not markup.search(line), f"{file}:{number}: {line}"
    for file in (SOURCE / "app").glob("*.py"):
        calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
        found = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
        assert file.name == "__init__.py" or not found, (file, found)


def test_names_in_brackets_are_printed_whole(denizen, monkeypatch):
    code, out, err = denizen("run", *SMALL, "--out", NAME)
    assert (code, err) == (0, "")
    assert f"run folder  {NAME}" in out
    assert f"curves      {NAME}/plot.png" in out
    code, out, err = denizen("show", NAME)
    assert (code, err) == (0, "")
    assert f"run folder  {NAME}" in out
    code, out, _ = denizen("resume", NAME, "--steps", "1")
    assert f"{NAME}: going on after step 2 with 1 more" in out
    assert code == 0
    assert f"run folder {NAME} does not" not in denizen("show", NAME)[2]
    code, _, err = denizen("show", f"{NAME}2")
    assert (code, err) == (2, f"error run folder {NAME}2 does not exist\n")
    code, _, err = denizen("bench", f"{NAME}.py:make")
    assert f"there is no file {NAME}.py" in err
    monkeypatch.setitem(sys.modules, "zarr", None)
    code, _, err = denizen("run", *SMALL, "--snapshots-every", "1", "--out", f"{NAME}3")
    assert "pip install 'denizen[storage]'" in err


def test_trainings_in_brackets_too(denizen, monkeypatch):
    small = ["--total-epochs", "1", "--batch-size", "4", "--max-steps", "8", "--no-compile"]
    code, out, err = denizen("train", "catch", *small, "--world", "rows=6", "--out", NAME)
    assert (code, err) == (0, "")
    assert f"catch (rows=6) by ppo: 32 steps, into {NAME}\n" in out
    assert f"next: denizen evaluate '{NAME}'" in out
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, _ = denizen("show", NAME)
    assert code == 0
    assert f"{NAME}: catch rows=6" in out
    assert "pip install 'denizen[plot]'" in out
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert "pip install 'denizen[plot]'" in denizen("watch", NAME, "--gif", "a.gif")[2]


def test_reports_keep_brackets_in_any_console():
    report = BenchReport(
        cases=[BenchCase("a[b].py", None, "eager", failure="no [memory]")],
        ratios=[],
        drift=1.0,
        device="cpu",
        facts={"torch": "[x]"},
    )
    console = Foreign(file=io.StringIO(), width=120)
    console.print(report)
    for text in ("a[b].py, eager", "no [memory]", "torch [x]"):
        assert text in console.file.getvalue()


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def left():
    """A stream whose reader has left."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", encoding="utf-8", buffering=1) as stream:
        yield stream
        os.dup2(os.open(os.devnull, os.O_WRONLY), write)


def called(monkeypatch, stream, *words):
    monkeypatch.setattr(sys, "argv", ["denizen", *words])
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(SystemExit) as stop:
        app.main()
    return stop.value.code or 0


@pytest.mark.parametrize("words", [["--help"], ["models"], ["run", *SMALL, "--out", "r"], ["show", "nowhere"]])
def test_a_reader_that_leaves_ends_nothing(monkeypatch, tmp_path, left, words):
    monkeypatch.chdir(tmp_path)
    assert called(monkeypatch, left, *words) == (2 if "nowhere" in words else 0)
    if words[0] == "run":
        assert dz.run.load("r").steps == 2
        assert Path("r/plot.png").exists()


@pytest.mark.parametrize("words", [["--help"], ["models"]])
def test_a_full_disk_behind_the_output_is_told(monkeypatch, capsys, words):
    with open("/dev/full", "w", encoding="utf-8") as full:
        assert called(monkeypatch, full, *words) == 2
    assert capsys.readouterr().err == "error No space left on device\n"


def test_no_output_at_all(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert called(monkeypatch, None, "models") == 0


def test_letters_that_the_encoding_lacks(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    held = io.BytesIO()
    stream = io.TextIOWrapper(held, encoding="ascii", write_through=True)
    assert called(monkeypatch, stream, "run", *SMALL, "--out", "ü\udcff") == 0
    assert b"run folder  \\xfc\\udcff" in held.getvalue()


# --- numbers and their origin -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1.5", "1e-3", "1.0", "x", "", "1e", "nan"])
def test_what_is_no_whole_number_is_told_alike(denizen, text):
    for words in (["run", "sir", "--agents"], ["train", "cartpole", "--batch-size"], ["train", "dotgat", "--agents"]):
        code, _, err = denizen(*words, text)
        assert code == 2
        assert "expected a whole number such as 5000, 500k, 1.5M or 1e3" in " ".join(err.split())


@pytest.mark.parametrize(
    ("toml", "words", "message"),
    [
        ('[set]\ninfect_rate = "x"', [], "error --config city.toml: set.infect_rate=x: expected a number\n"),
        ('[set]\ninfect_rate = "x"', ["--set", "infect_rate=y"], "error --set infect_rate=y: expected a number\n"),
        ("[set]\ninfect_rat = 1", [], "error --config city.toml: set.infect_rat: sir has no such parameter"),
        ("steps = -3", [], "error --config city.toml: --steps -3: expected a whole number"),
        ("steps = -3", ["--steps", "-4"], "error --steps -4: expected a whole number"),
        ("mean_degree = 3", ["--population", "x"], "error --config city.toml: --mean-degree makes a random graph"),
    ],
)
def test_a_wrong_value_of_a_file_is_not_blamed_on_a_flag(denizen, toml, words, message):
    Path("city.toml").write_text(f'model = "sir"\n{toml}\n')
    code, out, err = denizen("run", "--config", "city.toml", *words)
    assert (code, out) == (2, "")
    assert err.startswith(message)


@pytest.mark.parametrize(
    ("toml", "words", "message"),
    [
        ('[set]\nnum_envs = "many"', [], "error --config pole.toml: set.num_envs=many: expected a whole number"),
        ('[set]\nnum_envs = "many"', ["--set", "num_envs=few"], "error --set num_envs=few: expected a whole number"),
        ("[world]\nrow = 3", [], "error --config pole.toml: world.row=3: Catch: unknown option"),
        ("[world]\nrow = 3", ["--world", "rows=9"], "error --world row=3 rows=9: Catch: unknown option"),
        ('[policy]\nhead = "big"', [], "error --config pole.toml: policy.head=big: expected popart or plain"),
        ('steps = "lots"', [], "error --config pole.toml: --steps lots: expected a whole number"),
        ('mode = "x"', [], "error --config pole.toml: world.mode=x: Catch: unknown option"),
        ('mode = "x"', ["--mode", "y"], "error --world mode=y: Catch: unknown option"),
    ],
)
def test_the_same_of_trainings(denizen, toml, words, message):
    Path("pole.toml").write_text(f'world_name = "catch"\n{toml}\n')
    code, out, err = denizen("train", "--config", "pole.toml", *words)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert words == ["--world", "rows=9"] == ("(row from --config pole.toml)" in err and words) or "from --c" not in err


# --- folders and traces of others -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": 1}, "has no list traceEvents"),
        ([], "none of its 0 events is an operator, a kernel or a copy"),
        ({"traceEvents": []}, "none of its 0 events"),
        ({"traceEvents": [{"ph": "X", "name": "a", "cat": "blink", "ts": 1, "dur": 1}]}, "none of its 1 events"),
        ({"traceEvents": [{"ph": "X", "name": "a", "cat": "cpu_op", "ts": 1, "args": None}]}, "an event is malformed"),
        ({"traceEvents": [{"ph": "X", "name": "a", "cat": "cpu_op", "ts": 1e999}]}, "an event is malformed"),
        ("[" * 100_000, "maximum recursion depth"),
    ],
)
def test_a_foreign_file_is_no_trace(denizen, content, message):
    Path("t[1].json").write_text(content if isinstance(content, str) else json.dumps(content))
    code, out, err = denizen("profile", "t[1].json")
    assert (code, out) == (2, "")
    assert message in err
    assert "t[1].json" in err


MANIFESTS = {
    "other": '{"a": 1}',
    "list": "[1]",
    "deep": "[" * 100_000,
    "training": '{"format": "denizen training 1", "updates": 3}',
    "settings": '{"format": "denizen training 1", "updates": 3, "seed": 0, "status": "x", "settings": {"a": 1}}',
    "typed": '{"format": "denizen training 1", "updates": 3, "seed": 0, "status": "x", "settings": 7}',
    "dotgat": '{"format": "denizen dotgat 1"}',
}


@pytest.mark.parametrize("kind", MANIFESTS)
@pytest.mark.parametrize(
    "words",
    [
        ["show", "f"],
        ["resume", "f"],
        ["evaluate", "f"],
        ["watch", "f"],
        ["compare", "f", "f"],
        ["export", "f", "--csv"],
        ["train", "dotgat", "--resume", "f"],
    ],
)
def test_a_foreign_folder_is_told_as_such(denizen, kind, words):
    Path("f/seed-x").mkdir(parents=True)
    Path("f/seed-x/manifest.json").touch()
    Path("f/manifest.json").write_text(MANIFESTS[kind])
    code, _, err = denizen(*words)
    assert code == 2
    assert err.startswith("error ")
    assert "denizen-error" not in err
