"""Exit codes of all commands, by one table, and what each says of what went wrong."""

import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.app.commands import WRONG

from denizen import app

PROGRAMS = Path(__file__).with_name("programs")

# Commands that run code of the user's, with a target in place of each %s.
THEIRS = {
    "profile": ["profile", "%s", "--cpu"],
    "doctor": ["doctor", "%s", "--device", "cpu"],
    "bench": ["bench", "%s", "--device", "cpu", "--rounds", "5"],
    "bench --versus": ["bench", "code.py:fine", "--versus", "%s", "--device", "cpu", "--rounds", "5"],
    "equivalent": ["equivalent", "%s", "code.py:Net", "--shape", "2,4"],
    "equivalent, second": ["equivalent", "code.py:Net", "%s", "--shape", "2,4"],
}


@pytest.fixture
def denizen(denizen, monkeypatch):
    shutil.copy(PROGRAMS / "code_that_fails.py", "code.py")
    Path("broken.py").write_text("def make(:\n")
    Path("needy.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield denizen
    for name in ("code", "broken", "needy"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("command", WRONG)
def test_what_cannot_be_done_is_code_2_and_a_message(denizen, command):
    words, message = WRONG[command]
    code, out, err = denizen(*words)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err
    assert "denizen-error" not in err
    assert not Path("runs").exists()  # nothing is left behind


@pytest.mark.parametrize("command", THEIRS)
@pytest.mark.parametrize(
    ("target", "line", "last"),
    [
        ("code.py:raises", "in raises", "ValueError: no [data] here"),
        ("code.py:chained", "in chained", "RuntimeError: cannot load"),
        ("code.py:quits", "in quits", "error the code ends the process; nothing can be told of it"),
        ("code.py:pipe", "in pipe", "BrokenPipeError: theirs"),
        ("code.py:ours", "in ours", "error edges: source, target and weight must have one length, got [1, 2]"),
        ("needy.py:make", "needy.py", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("broken.py:make", "broken.py", "SyntaxError: invalid syntax"),
    ],
)
def test_an_error_of_their_code_is_code_2_and_their_lines_of_its_traceback(denizen, command, target, line, last):
    code, out, err = denizen(*(word if word != "%s" else target for word in THEIRS[command]))
    assert (code, out) == (2, "")
    assert line in err
    assert err.strip().splitlines()[-1] == last
    files = re.findall(r'File "([^"]+)"', err)
    assert files
    assert all(Path(file).parent == Path.cwd() for file in files), err


@pytest.mark.parametrize("words", [THEIRS[name] for name in ("profile", "doctor", "bench")])
def test_an_error_of_their_step_is_told_as_theirs(denizen, words):
    code, out, err = denizen(*(word if word != "%s" else "code.py:make" for word in words))
    assert (code, out) == (2, "")
    assert "torch.ones(3) + torch.ones(4)" in err
    assert err.strip().splitlines()[-1].startswith("RuntimeError: The size of tensor a")
    assert app.__file__.rpartition("/app/")[0] not in err


def test_an_error_within_a_model_is_told_with_its_line(denizen):
    code, _, err = denizen("equivalent", "code.py:Net", "code.py:Fails", "--shape", "2,4")
    assert code == 2
    assert 'raise KeyError("in forward")' in err
    assert "error b raised KeyError in evaluate" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench", "code.py:needs"], "needs"),
        (["profile", "code.py:needs", "--cpu"], "needs"),
        (["bench", "code.py:number"], "number() returned int"),
        (["bench", "code.py:fine", "--rounds", "3"], "--rounds 3: expected a whole number, at least 5"),
        (["bench", "--stmt", "1 / 0"], "ZeroDivisionError"),
        (["bench", ""], "takes a TARGET"),
        (["profile", ""], "names nothing; expected FILE.py:NAME"),
        (["profile", "."], "names nothing; expected FILE.py:NAME"),
        (["doctor", "..:x"], "names nothing; expected FILE.py:NAME"),
        (["equivalent", "code.py:Net", "code.py:Net", "--shape", "-2,4"], "--shape -2,4: expected numbers"),
        (["equivalent", "code.py:Net", "code.py:needs", "--shape", "2,4"], "error TypeError: needs() missing 2"),
    ],
)
def test_nothing_that_failed_is_code_0_or_1(denizen, words, message, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, _, err = denizen(*words)
    assert code == 2
    assert message in err


STARTS = {
    "-m denizen": "import runpy; runpy.run_module('denizen', run_name='__main__', alter_sys=True)",
    "the command": "from denizen.app import process; process()",
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(("module", "name"), [("torch", "SIGINT"), ("tyro", "SIGINT"), ("torch", "SIGTERM")])
def test_ctrl_c_while_modules_are_imported_is_one_line(tmp_path, start, module, name):
    shutil.copy(PROGRAMS / "interrupted_import.py", tmp_path / f"{module}.py")
    heard = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.argv[1:] = ['models']\n"
    paths = os.pathsep.join([str(tmp_path), str(Path(app.__file__).parents[2])])
    process = subprocess.run(
        [sys.executable, "-c", heard + STARTS[start]],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONPATH": paths, "INTERRUPT": name},
    )
    assert (process.returncode, process.stdout, process.stderr) == (130, "", "interrupted\n")


def test_a_process_waits_for_threads_calls_what_asked_for_it_and_writes_what_files_hold(tmp_path):
    words = [sys.executable, PROGRAMS / "ending.py", tmp_path]
    process = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (3, "a thread\nat the end\n", "")
    with gzip.open(tmp_path / "packed", "rt") as packed:
        texts = [(tmp_path / "text").read_text(), packed.read(), (tmp_path / "bytes").read_text()]
    assert texts == ["a line\n"] * 3


def test_a_profiler_of_a_process_has_its_table():
    words = [sys.executable, "-m", "cProfile", PROGRAMS / "ending.py"]
    process = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert "function calls" in process.stdout


def test_an_interrupt_that_is_ignored_stays_ignored(denizen):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `nohup … &` leaves it
    try:
        assert denizen("models")[0] == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
