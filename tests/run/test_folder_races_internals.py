"""Many processes at once: each gets a run folder of its own, and one folder is given to one of them."""

import multiprocessing
import os
import warnings
from pathlib import Path

import pytest
import torch

import denizen as dz
from denizen._atomic import Lock, locked
from denizen.app._experiment import Experiment
from denizen.app._folders import run_folder
from denizen.errors import ConfigError, DataError, StorageError
from denizen.rl._training_folder import TrainingFolder
from denizen.run import _simulation_folder
from denizen.studies._experiment import begin
from denizen.zoo.dotgat.config import Settings
from denizen.zoo.dotgat.folder import Folder
from denizen.zoo.sir import SIR

PROCESSES, ROUNDS = 6, 8


def at_once(work, folder, processes=PROCESSES, turns=1):
    """What `work(number, turn)` gives in forked processes that start each turn together, in a folder: a list a turn."""
    forked = multiprocessing.get_context("fork")
    begin_all, told = forked.Barrier(processes), forked.SimpleQueue()

    def child(number):
        os.chdir(folder)
        for turn in range(turns):
            begin_all.wait()
            try:
                told.put((turn, work(number, turn)))
            except BaseException as error:
                told.put((turn, error))
        begin_all.wait()  # nobody lets go of a lock by ending before all have tried

    children = [forked.Process(target=child, args=(number,)) for number in range(processes)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads; these children use none
        for one in children:
            one.start()
    results = [[] for _ in range(turns)]
    for _ in range(processes * turns):
        turn, result = told.get()
        results[turn].append(result)
    for one in children:
        one.join()
    return results


@pytest.mark.parametrize("stem", ["sir", "cartpole-ppo", "dotgat", "ein [Lauf] ü"])
def test_commands_of_one_second_get_folders_of_their_own(tmp_path, stem):
    def made(number, turn):
        found = []
        for _ in range(ROUNDS):
            with run_folder(None, stem) as folder:
                (folder / "mine").write_text(str(number))
            found.append(str(folder))
        return number, found

    (results,) = at_once(made, tmp_path)
    assert not [one for one in results if isinstance(one, BaseException)]
    names = [name for _, found in results for name in found]
    assert len(set(names)) == len(names) == PROCESSES * ROUNDS
    for number, found in results:
        assert all((tmp_path / name / "mine").read_text() == str(number) for name in found)


def test_a_command_that_writes_nothing_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError), run_folder(None, "sir") as folder, locked(folder):
        raise ConfigError("two flags do not go together")
    with run_folder(None, "sir", writes=False) as folder:
        assert not folder.exists()
    assert not Path("runs").exists()
    Path("runs").write_text("no folder")
    with pytest.raises(StorageError, match=r"run folder runs/sir-.* cannot be written"), run_folder(None, "sir"):
        pass


def training(path, number):
    held = TrainingFolder.create(path, {"seed": number}, None)
    held.log(f"process {number}")
    return held


def dotgat(path, number):
    held = Folder.create(path, Settings(seed=number), {})
    (path / "log.txt").write_text(f"process {number}")
    return held


def experiment(path, number):
    path.mkdir(exist_ok=True)
    lock = Lock(path)
    lock.take()
    begin(path, {"seed": number})
    (path / "log.txt").write_text(f"process {number}")
    return lock


@pytest.mark.parametrize("create", [training, dotgat, experiment])
def test_one_folder_is_given_to_one_of_many(tmp_path, create):
    kept = []

    def work(number, turn):
        kept.append(create(tmp_path / f"r{turn}", number))
        return number

    for turn, results in enumerate(at_once(work, tmp_path, turns=4)):
        path, got = tmp_path / f"r{turn}", [one for one in results if isinstance(one, int)]
        assert len(got) == 1, results
        assert {type(one) for one in results if not isinstance(one, int)} == {StorageError}
        assert f"process {got[0]}" in (path / "log.txt").read_text()  # nobody cleared it


def test_a_training_that_has_not_saved_yet_is_not_cleared_by_another(tmp_path):
    first = TrainingFolder.create(tmp_path / "r", {"seed": 0}, None)
    (tmp_path / "r/checkpoints/first").write_text("mine")
    with pytest.raises(StorageError, match="not empty"):
        TrainingFolder.create(tmp_path / "r", {"seed": 1}, None)
    assert (tmp_path / "r/checkpoints/first").exists()
    (tmp_path / "r/checkpoints/first").unlink()
    first.release()  # as a kill does
    TrainingFolder.create(tmp_path / "r", {"seed": 1}, None).release()


def test_a_run_that_was_just_begun_is_not_written_over(tmp_path, monkeypatch):
    run = dz.simulate(SIR(dz.Graph.from_edges([0, 1], [1, 0])), 2, seed=0)
    run.save(tmp_path / "r")
    monkeypatch.setattr(_simulation_folder, "check_free", lambda path: None)  # both have looked before either wrote
    with pytest.raises(StorageError, match="is not empty; choose another folder"):
        _simulation_folder.SimulationFolder.create(tmp_path / "r", run)
    assert dz.run.load(tmp_path / "r").steps == 2


def test_two_experiments_in_one_folder_do_not_change_what_it_holds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("exp").mkdir()
    with locked(Path("exp")):
        begin(Path("exp"), {"steps": "300"})
        with pytest.raises(StorageError, match="another run is writing"):
            Experiment("learners", steps="400", out=Path("exp"))(None)
    assert "300" in Path("exp/experiment.json").read_text()


def test_a_training_is_resumed_once(tmp_path):
    made = TrainingFolder.create(tmp_path / "r", {"seed": 0}, None)
    made._commit(updates=3)
    other = TrainingFolder.open(tmp_path / "r")
    with pytest.raises(StorageError, match="another run is writing to it now"):
        other.hold()
    made._commit(updates=5)
    made.release()
    other.hold()  # what counts is what is there by now
    assert other.manifest["updates"] == 5
    other.release()


@pytest.mark.parametrize(("create", "which"), [(training, "checkpoint"), (dotgat, "last")])
def test_what_is_read_of_a_run_that_goes_on_is_read_again(tmp_path, create, which):
    made = create(tmp_path / "r", 0)
    made.save(1, {which: {"w": torch.tensor([1.0])}})
    reader = type(made).open(tmp_path / "r")
    made.save(2, {which: {"w": torch.tensor([2.0])}})  # and the file that the reader knows of is gone
    assert reader.load(which)["w"] == 2.0
    assert reader.manifest[made.COUNT] == 2
    (tmp_path / "r" / reader.manifest[which]["file"]).unlink()
    with pytest.raises(DataError, match="cannot be read"):
        reader.load(which)
    made.release()


@pytest.mark.parametrize("create", [training, dotgat])
def test_a_folder_that_cannot_be_read_is_not_held(tmp_path, create):
    made = create(tmp_path / "r", 0)
    made.save(1, {})
    made.release()
    (tmp_path / "r/manifest.json").write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        made.hold()
    with locked(tmp_path / "r"):  # it is free for others
        pass
