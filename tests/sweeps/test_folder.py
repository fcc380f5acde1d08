"""The folder of a sweep: stopped anywhere, gone on with, nothing lost, nothing double, the same bits."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from denizen import _atomic, _run_folder
from denizen.errors import DataError, InputError, MissingExtra, StorageError
from denizen.sweeps import _folder, _results, _sweep, load, sweep

DESIGN = {"infect_rate": [0.1, 0.3, 0.5], "infectious_phases": [1, 2]}
OPTIONS = {"steps": 4, "replicates": 2, "seed": 5, "progress": False}


class Killed(BaseException):
    pass


@pytest.fixture
def saved_each(monkeypatch):
    """A launch for each row, and a save after each launch."""
    monkeypatch.setitem(_sweep.MOST_AGENTS, "cpu", 40)
    monkeypatch.setattr(_folder.SweepFolder, "due", lambda self: True)


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

    monkeypatch.setattr(_sweep.Launch, "_simulated", never)
    same(found, sweep(ring, DESIGN, out=tmp_path / "s", **OPTIONS))


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_loses_nothing_and_doubles_nothing(ring, tmp_path, monkeypatch, saved_each, late):
    """The process ends before or after each file that it writes, in turn; the next one goes on."""
    design, options = {"infect_rate": [0.1, 0.5]}, {**OPTIONS, "replicates": 3, "steps": 2}
    whole = sweep(ring, design, **options)
    path, write, kills, finished = tmp_path / "s", _atomic.write_atomic, 0, False
    while not finished:
        left = [1 + kills % 4]  # writes until the end

        def mortal(*arguments, left=left, **options):
            left[0] -= 1
            if left[0] == 0 and not late:
                raise Killed
            write(*arguments, **options)
            if left[0] == 0:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(_run_folder, "write_atomic", mortal)
            # What a killed process cannot do any more.
            patch.setattr(_folder.SweepFolder, "flush", _only_in_order(_folder.SweepFolder.flush))
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


def _only_in_order(flush):
    def flushed(self, **changes):
        if changes:
            raise Killed
        flush(self)

    return flushed


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_what_came_back_is_kept_when_something_ends_a_sweep(ring, tmp_path, monkeypatch, stop):
    monkeypatch.setitem(_sweep.MOST_AGENTS, "cpu", 40)
    simulated, launches = _sweep.Launch._simulated, []

    def stopped(self, rows):
        if len(launches) == 7:
            raise stop
        launches.append(rows)
        return simulated(self, rows)

    with monkeypatch.context() as patch:
        patch.setattr(_sweep.Launch, "_simulated", stopped)
        with pytest.raises(stop):
            sweep(ring, DESIGN, out=tmp_path / "s", **OPTIONS)
    folder = _folder.SweepFolder.open(tmp_path / "s")
    assert folder.status == ("interrupted" if stop is KeyboardInterrupt else "failed")
    assert folder.manifest["rows"] == 7
    assert len(load(tmp_path / "s").sets) == 3  # those that are whole
    with pytest.raises(InputError, match="design Grid, expected"):
        load(tmp_path / "s").indices("cases")
    found = sweep(ring, DESIGN, out=tmp_path / "s", **OPTIONS)
    same(found, sweep(ring, DESIGN, **OPTIONS))


def test_a_full_disk_is_the_reason_that_the_folder_gives(ring, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(_folder, "write", full)
        with pytest.raises(StorageError, match="No space left"):
            sweep(ring, DESIGN, out=tmp_path / "s", **OPTIONS)
    folder = _folder.SweepFolder.open(tmp_path / "s")
    assert (folder.status, folder.manifest["rows"]) == ("failed", 0)
    assert "No space left" in folder.manifest["error"]


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
    with _atomic.locked(tmp_path / "s"), pytest.raises(StorageError, match="another"):
        sweep(ring, DESIGN, out=tmp_path / "s", **OPTIONS)


def test_without_pyarrow_the_rest_is_written_and_said_so(ring, tmp_path, monkeypatch):
    needed = _results.need

    def lacking(module, extra, purpose):
        if module == "pyarrow":
            raise MissingExtra("pyarrow is needed; run: pip install 'denizen[tables]'")
        return needed(module, extra, purpose)

    with monkeypatch.context() as patch:
        patch.setattr(_results, "need", lacking)
        found = sweep(ring, DESIGN, out=tmp_path / "s", **OPTIONS)
    assert "sweep.parquet was not written: pyarrow is needed" in found.notes[0]
    assert (tmp_path / "s" / "summary.csv").exists()
    assert not (tmp_path / "s" / "sweep.parquet").exists()
    sweep(ring, DESIGN, out=tmp_path / "s", **OPTIONS)  # once it is there, the same call writes the table
    assert (tmp_path / "s" / "sweep.parquet").exists()


@pytest.mark.parametrize("name", sorted(_folder.FORMS))
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
