"""`denizen doctor` in the hands of a new user: scripts for the CPU, code that crashes, words left out."""

import functools
import runpy
import shutil
from pathlib import Path

import pytest
import torch

import denizen as dz

PROGRAMS = Path(__file__).with_name("programs")
places = runpy.run_path(str(Path(__file__).with_name("marked.py")))["places"]
READ = places(PROGRAMS / "endless_loop.py")["read"]
CRASH = places(PROGRAMS / "steps_that_go_wrong.py")["crash"]
CRASHED = f'  File "{{}}/functions.py", line {CRASH}, in <lambda>'


@pytest.fixture
def doctor(monkeypatch, command_line, tmp_path):
    monkeypatch.chdir(tmp_path)
    shutil.copy(PROGRAMS / "endless_loop.py", "script.py")
    shutil.copy(PROGRAMS / "steps_that_go_wrong.py", "functions.py")
    (tmp_path / "broken.py").write_text("def make(device)\n")

    return functools.partial(command_line, "doctor")


@pytest.mark.parametrize("words", [("--", "python", "-u", "script.py"), ("--", "script.py"), ("script.py",)])
def test_a_script_that_asks_for_no_gpu_is_looked_at_on_the_cpu(doctor, words):
    code, out, _ = doctor(*words)
    assert code == 0
    assert "\ncpu, 12 steps counted" in out
    assert "no operation ran" not in out


def test_a_script_that_asks_for_a_gpu_finds_the_simulated_one(doctor):
    code, out, _ = doctor("--", "python", "script.py", "--device", "cuda")
    assert code == 1
    assert f"host-sync-item  script.py:{READ}" in out


def test_a_step_that_works_elsewhere_is_no_good_step(doctor):
    code, out, _ = doctor("functions.py:elsewhere", "--device", "simulated")
    assert code == 2
    assert "nothing to tell: no operation ran on simulated:0, 1 on the CPU" in out


@pytest.mark.parametrize(
    ("word", "first", "last"),
    [
        (
            "functions.py:crashing",
            CRASHED,
            "RuntimeError: The size of tensor",
        ),
        ("broken.py", '  File "{}/broken.py", line 1', "SyntaxError: expected ':'"),
    ],
)
def test_errors_begin_at_the_users_line(doctor, tmp_path, word, first, last):
    code, _, err = doctor(word, "--device", "simulated")
    told = [line for line in err.splitlines() if not line.startswith("Traceback")]
    assert (code, told[0]) == (2, first.format(tmp_path))
    assert told[-1].startswith(last)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch: compressed rows are in beta
def test_compressed_rows_do_not_end_the_look_at_operations():
    def make(device):
        start, column = torch.tensor([0, 1, 2], device=device), torch.tensor([1, 0], device=device)
        ones = torch.ones(2, device=device)
        matrix = torch.sparse_csr_tensor(start, column, ones, (2, 2), check_invariants=False)
        x = torch.ones(2, 1, device=device)
        return lambda: matrix @ x

    report = dz.doctor(make=make)
    assert not any("looked at" in note for note in report.notes)
    assert report.facts.device_ops == 1
