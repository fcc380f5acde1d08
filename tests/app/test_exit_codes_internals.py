"""Exit codes where no words of a command lead: an interrupt and a fault within any of them, errors of the system."""

import re
from pathlib import Path

import pytest
from tests.app.commands import COMMANDS, WRONG
from tests.app.test_exit_codes import THEIRS
from tests.app.test_exit_codes import denizen as denizen

from denizen._printing import Console
from denizen.app import _cli, _exit, _failures
from denizen.perf._bench import bench as _bench


def test_the_table_has_all_commands():
    assert set(COMMANDS) == set(_cli.COMMANDS)


@pytest.mark.parametrize("command", WRONG)
def test_an_interrupt_is_code_130(denizen, monkeypatch, command):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_cli, "run", interrupted)
    words = {"profile": ["profile", "a:b"], "doctor": ["doctor", "a:b"]}.get(command, WRONG[command][0])
    words = ["models"] if command == "models" else words
    code, out, err = denizen(*words)
    assert (code, out, err) == (130, "", "interrupted\n")


@pytest.mark.parametrize("command", WRONG)
def test_a_fault_of_ours_is_code_2_and_its_traceback_in_a_file(denizen, monkeypatch, command, tmp_path):
    def fails(*_):
        raise RuntimeError("what nobody [bold]thought[/] of")

    monkeypatch.setattr(_cli, "run", fails)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    words = ["models"] if command == "models" else WRONG[command][0]
    code, out, err = denizen(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error RuntimeError: what nobody [bold]thought[/] of\n")
    assert "Traceback" not in err
    (kept,) = tmp_path.glob("denizen-error-*.txt")
    assert str(kept) in err
    assert "Traceback" in kept.read_text()


def test_a_bench_that_measured_nothing_is_not_done(denizen, monkeypatch):
    def full(trial, *_):
        trial.failure = "out of memory"

    monkeypatch.setattr(_bench._Trial, "count", full)
    code, out, _ = denizen(*THEIRS["bench"][:1], "code.py:fine", *THEIRS["bench"][2:])
    assert code == 2
    assert "out of memory" in out


def test_errors_of_the_system_name_the_file(capsys):
    _failures.tell(PermissionError(13, "Permission denied", "/a/[b]"), Console(stderr=True))
    assert capsys.readouterr().err == "error /a/[b]: Permission denied\n"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 149. GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: 1 byte"),
    ],
)
def test_too_little_memory_is_no_fault_of_ours(capsys, error):
    _failures.tell(error, Console(stderr=True))
    assert capsys.readouterr().err == f"error not enough memory for so much at once: {error}\n"


def test_the_guide_has_the_same_table():
    guide = (Path(__file__).parents[2] / "docs/guides/command-line.md").read_text()
    table = guide.partition("## Exit codes")[2]
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    assert told == {value for name, value in vars(_exit).items() if name.isupper()}
