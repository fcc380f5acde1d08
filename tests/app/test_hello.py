"""`denizen hello`: two scenarios, curves in the terminal, a page; and the main paths with the core alone."""

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from denizen.run import Run, load

SMALL = ("hello", "--agents", "300", "--replicates", "4", "--steps", "40")
PROGRAM = Path(__file__).with_name("programs") / "core_only.py"


@pytest.fixture(scope="module")
def finished(prepared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hello") / "h"
    prepared(*SMALL, "--out", folder)
    return folder


def test_the_page_tells_the_paired_difference(finished):
    nothing, lockdown = load(finished / "nothing"), load(finished / "lockdown")
    avoided = (nothing["cases"] - lockdown["cases"]).sum(dim=1).double()
    low, high = avoided.quantile(torch.tensor([0.05, 0.95], dtype=torch.float64)).tolist()
    page = (finished / "report.html").read_text()
    assert f"The lockdown avoids {avoided.mean():,.0f} cases (5–95 %: {low:,.0f} to {high:,.0f})" in page
    assert "denizen hello --agents 300 --replicates 4 --steps 40 --seed 0" in page
    assert torch.__version__ in page
    assert page.count("Numbers</summary>") == 3  # curves


def test_until_the_lockdown_both_runs_are_the_same(finished):
    nothing, lockdown = load(finished / "nothing"), load(finished / "lockdown")
    day = 20
    for name in nothing.series_names:
        assert nothing[name][:, :day].equal(lockdown[name][:, :day])
    assert not nothing["cases"][:, day].equal(lockdown["cases"][:, day])


def test_the_code_on_the_page_gives_the_same(finished, capsys):
    page, made = html.unescape((finished / "report.html").read_text()), {}
    (code,) = re.findall(r"^.*(import denizen as dz\n[^<]*)", page, re.MULTILINE)
    exec(code, made)
    for name, run in (("nothing", made["nothing"]), ("lockdown", made["closed"])):
        assert run["cases"].equal(load(finished / name)["cases"])
    assert "difference" in capsys.readouterr().out


def test_without_a_terminal_it_prints_lines_and_a_whole_path(denizen, tmp_path):
    code, out, errors = denizen(*SMALL)
    assert (code, errors) == (0, "")
    (page,) = tmp_path.glob("runs/hello-*/report.html")
    assert f"report      {page}\n" in out
    assert [line for line in out.splitlines() if line.startswith("day")][-1].startswith("day  40: nothing")
    assert "\x1b" not in out


def test_quiet_gives_the_path_alone(denizen, tmp_path):
    assert denizen(*SMALL, "--out", "h", "--quiet") == (0, f"{tmp_path / 'h/report.html'}\n", "")
    code, _, errors = denizen(*SMALL, "--out", "h")
    assert (code, errors) == (2, "error --out h: it is there and not empty; choose another folder\n")


@pytest.mark.parametrize(("found", "words"), [(True, ""), (False, "no browser was found")])
def test_open_asks_for_a_browser(denizen, monkeypatch, tmp_path, found, words):
    asked = []
    monkeypatch.setattr("webbrowser.open", lambda place: asked.append(place) or found)
    code, out, _ = denizen(*SMALL, "--out", "a place", "--open")
    assert code == 0
    assert asked == [(tmp_path / "a place/report.html").as_uri()]
    assert words in out


def test_an_interrupt_leaves_nothing(denizen, monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "extend", interrupted)
    code, _, errors = denizen(*SMALL)
    assert (code, errors) == (
        130,
        "interrupted; begin anew with: denizen hello --agents 300 --replicates 4 --steps 40 --seed 0\n",
    )
    assert not (tmp_path / "runs").exists()


def test_a_place_that_cannot_be_written_is_told_before_the_work(denizen, tmp_path, monkeypatch):
    monkeypatch.setattr(Run, "extend", None)
    (tmp_path / "file").write_text("mine")
    code, _, errors = denizen(*SMALL, "--out", "file/below")
    assert code == 2
    assert "choose another place with --out FOLDER" in errors
    monkeypatch.setattr("os.access", lambda *_: False)
    code, _, errors = denizen(*SMALL, "--out", "closed")
    assert errors == "error closed could not be written: Permission denied; choose another place with --out FOLDER\n"
    assert not (tmp_path / "closed").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_main_paths_need_the_core_alone(tmp_path):
    (tmp_path / "loop.py").write_text("def make():\n    return lambda: sum(range(9))\n")
    commands = (
        "run sir --agents 200 --steps 8 --replicates 2 --out s",
        "show s",
        "resume s --steps 2",
        "models",
        "hello --agents 200 --replicates 2 --steps 25 --out h",
        "compare h/nothing h/lockdown",
        "check sir --agents 50 --no-gradient",
    )
    done = subprocess.run([sys.executable, PROGRAM, *commands], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "note: numba" not in done.stderr  # the process has said it before, as a warning
