"""The folder of a sweep: stopped anywhere, gone on with, nothing lost, nothing double, the same bits."""

import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import denizen as dz
from denizen.errors import DataError, InputError, StorageError
from denizen.run import StateFolder
from denizen.sweeps import load, sweep

DESIGN = {"infect_rate": [0.1, 0.3, 0.5], "infectious_phases": [1, 2]}
OPTIONS = {"steps": 4, "replicates": 2, "seed": 5, "progress": False}


class Killed(BaseException):
    pass


@pytest.fixture
def saved_each(inside, monkeypatch):
    """A launch for each row, and a save after each launch."""
    inside.small_launches(40)
    monkeypatch.setattr(StateFolder, "due", lambda self: True)


def same(one, other):
    assert one.sets == other.sets
    for name in one.series_names:
        assert torch.equal(one[name], other[name])


def test_a_finished_sweep_is_read_and_not_run_again(ring, tmp_path, monkeypatch):
    found = sweep(ring, DESIGN, out=tmp_path / "s", settings={"note": 1}, **OPTIONS)
    same(found, load(tmp_path / "s"))
    read = load(tmp_path / "s")
    assert (read.kinds["cases"], read.kinds["infected"]) == ("flow", "level")
    assert read.about("cases") == "New infections in the step."
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["design"] == {"kind": "Grid"}
    assert manifest["settings"] == {"note": 1}
    assert manifest["rows"] == 12

    def never(*_):
        raise AssertionError

    monkeypatch.setattr(dz.rng.Rng, "__init__", never)
    same(found, sweep(ring, DESIGN, out=tmp_path / "s", **OPTIONS))


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_loses_nothing_and_doubles_nothing(ring, tmp_path, monkeypatch, saved_each, late):
    """The process ends before or after each file that it writes, in turn; the next one goes on."""
    design, options = {"infect_rate": [0.1, 0.5]}, {**OPTIONS, "replicates": 3, "steps": 2}
    whole = sweep(ring, design, **options)
    path, replace, kills, finished = tmp_path / "s", os.replace, 0, False
    while not finished:
        left = [1 + kills % 8]  # writes until the end

        def mortal(source, target, left=left):
            left[0] -= 1
            if left[0] < 0 or (left[0] == 0 and not late):  # a killed process writes no more
                raise Killed
            replace(source, target)
            if left[0] == 0:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", mortal)
            try:
                found = sweep(ring, design, out=path, **options)
                finished = True
            except Killed:
                kills += 1
        if (path / "manifest.json").exists():
            read = load(path)
            for name in read.series_names:
                assert torch.equal(read[name], whole[name][read.numbers])
    assert kills > 4
    same(whole, found)
    same(whole, load(path))
    named = {entry["file"] for entry in json.loads((path / "manifest.json").read_text())["parts"]}
    assert {f"parts/{file.name}" for file in (path / "parts").iterdir()} == named


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_what_came_back_is_kept_when_something_ends_a_sweep(tmp_path, inside, stop):
    inside.small_launches(1)
    design, launches, failing = {"a": [1, 2, 3], "b": [4, 5]}, [], [7]

    def line(theta, worlds):
        if len(launches) in failing:
            raise stop
        launches.append(worlds)
        return theta.sum(1, keepdim=True).expand(-1, 4) + torch.tensor(worlds)[:, None]

    with pytest.raises(stop):
        sweep(line, design, out=tmp_path / "s", **OPTIONS)
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert manifest["status"] == ("interrupted" if stop is KeyboardInterrupt else "failed")
    assert manifest["rows"] == 7
    assert len(load(tmp_path / "s").sets) == 3  # those that are whole
    with pytest.raises(InputError, match="design Grid, expected"):
        load(tmp_path / "s").indices("output")
    failing.clear()
    found = sweep(line, design, out=tmp_path / "s", **OPTIONS)
    assert len(launches) == 12
    same(found, sweep(line, design, **OPTIONS))


def test_a_full_disk_is_the_reason_that_the_folder_gives(ring, tmp_path, monkeypatch):
    replace = os.replace

    def full(source, target):
        if Path(target).name != "manifest.json" and not Path(target).name.startswith("design"):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(StorageError, match="No space left"):
            sweep(ring, DESIGN, out=tmp_path / "s", **OPTIONS)
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert (manifest["status"], manifest["rows"]) == ("failed", 0)
    assert "No space left" in manifest["error"]


def test_another_sweep_is_refused(ring, tmp_path):
    sweep(ring, DESIGN, out=tmp_path / "s", **OPTIONS)
    for changed, message in [
        ({"seed": 6}, "seed is 6 here and was 5"),
        ({"steps": 5}, "steps is 5 here and was 4"),
        ({"replicates": 3}, "replicates is 3"),
    ]:
        with pytest.raises(InputError, match=message):
            sweep(ring, DESIGN, out=tmp_path / "s", **{**OPTIONS, **changed})
    other = {**DESIGN, "infect_rate": [0.1, 0.3, 0.6]}
    with pytest.raises(InputError, match="the sets have other values"):
        sweep(ring, other, out=tmp_path / "s", **OPTIONS)
    with pytest.raises(InputError, match="seed_share is"):
        sweep(ring.replace(seed_share=0.2), DESIGN, out=tmp_path / "s", **OPTIONS)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("…")
    with pytest.raises(StorageError, match="is not empty"):
        sweep(ring, DESIGN, out=tmp_path / "mine", **OPTIONS)


def test_two_processes_do_not_write_to_one_folder(ring, tmp_path):
    sweep(ring, DESIGN, out=tmp_path / "s", **OPTIONS)
    with (tmp_path / "s" / ".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="another"):
            sweep(ring, DESIGN, out=tmp_path / "s", **OPTIONS)


def test_without_pyarrow_the_rest_is_written_and_said_so(ring, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        found = sweep(ring, DESIGN, out=tmp_path / "s", **OPTIONS)
    assert "sweep.parquet was not written: pyarrow is needed" in found.notes[0]
    assert (tmp_path / "s" / "summary.csv").exists()
    assert not (tmp_path / "s" / "sweep.parquet").exists()
    sweep(ring, DESIGN, out=tmp_path / "s", **OPTIONS)  # once it is there, the same call writes the table
    assert (tmp_path / "s" / "sweep.parquet").exists()


@pytest.mark.parametrize(
    "name", ["columns", "design", "model", "parts", "recorded", "replicates", "sets", "steps", "versions"]
)
def test_an_entry_of_another_kind_is_told(ring, tmp_path, name):
    sweep(ring, {"infect_rate": [0.1]}, steps=1, replicates=1, progress=False, out=tmp_path / "s")
    file = tmp_path / "s" / "manifest.json"
    held = json.loads(file.read_text())
    for junk in ("x", 1.5, -1):
        file.write_text(json.dumps({**held, name: junk}))
        with pytest.raises(DataError, match=f"{name} is {junk}"):
            load(tmp_path / "s")


def test_damage_is_told(ring, tmp_path):
    path = tmp_path / "s"
    sweep(ring, DESIGN, out=path, **OPTIONS)
    manifest = json.loads((path / "manifest.json").read_text())

    def told(message, **changes):
        (path / "manifest.json").write_text(json.dumps({**manifest, **changes}))
        with pytest.raises(DataError, match=message):
            load(path)

    part = manifest["parts"][0]
    told("rows that are there already", parts=[part, part])
    told("expected the entry of a file", parts=[{**part, "file": "../../etc/passwd"}])
    told("expected the entry of a file", parts=[3])
    told("does not hold 3 rows", parts=[{**part, "rows": 3}])
    told("rows beyond the sweep's", sets=1)
    told("columns cannot be read", columns=[{"name": 3}])
    (path / "manifest.json").write_text(json.dumps(manifest))
    file = path / part["file"]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match="damaged or changed"):
        load(path)


@pytest.mark.slow
def test_kills_at_random_moments(tmp_path):
    program = Path(__file__).parent / "programs" / "kill_sweep.py"
    done = subprocess.run([sys.executable, program, tmp_path / "s", "7", "12"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 kills" in done.stdout
