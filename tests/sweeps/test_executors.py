"""Who takes the launches does not change a bit: two processes of torchrun's, threads, Ray."""

import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from denizen.sweeps import load, sweep

DESIGN = {"infect_rate": [0.1, 0.3, 0.5], "infectious_phases": [1, 2]}
OPTIONS = {"steps": 4, "replicates": 2, "progress": False}
RANKS = Path(__file__).parents[1] / "ranks.py"  # two processes as of torchrun, forked from one


def same(one, other):
    assert one.sets == other.sets
    assert one.series_names == other.series_names
    for name in one.series_names:
        assert torch.equal(one[name], other[name])


def call(folder, *words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)


WORDS = ["sweep", "sir", "--grid", "infect_rate=0.05,0.2,0.5", "infectious_phases=1,2"]
WORDS += ["--agents", "50", "--steps", "4", "--replicates", "2"]


@pytest.mark.slow
def test_two_processes_give_the_table_of_one(tmp_path, prepared):
    prepared(*WORDS, "--out", tmp_path / "one")
    done = call(tmp_path, RANKS, "-m", "denizen", *WORDS, "--out", "two", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "two\n"  # the first process alone speaks and writes
    same(load(tmp_path / "one"), load(tmp_path / "two"))
    for name in ("summary.csv", "sweep.parquet"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


PROGRAM = Path(__file__).with_name("programs") / "two_processes.py"


@pytest.mark.slow
def test_every_process_has_all_results_and_every_failure(tmp_path):
    done = call(tmp_path, RANKS, PROGRAM)
    assert done.returncode == 0, done.stderr
    wanted = [float(a + w) for a in range(1, 6) for w in range(3)]
    for rank in (0, 1):
        said = (tmp_path / f"{rank}.txt").read_text().splitlines()
        assert said[:2] == [str(wanted)] * 2
        assert said[2] == "5"  # all sets, though each process sees another amount of free memory
        assert "sweep: set 4 (a=6) in world" in said[3]


def test_threads_take_launches(ring, inside):
    inside.small_launches(80)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        same(sweep(ring, DESIGN, executor=pool, **OPTIONS), sweep(ring, DESIGN, **OPTIONS))


@pytest.mark.slow
def test_ranks_starts_processes_by_torchrun(tmp_path, prepared):
    prepared(*WORDS, "--out", tmp_path / "one")
    done = call(tmp_path, "-m", "denizen", *WORDS, "--ranks", "2", "--out", "two", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "two\n"
    same(load(tmp_path / "one"), load(tmp_path / "two"))


@pytest.mark.slow
def test_ray(tmp_path):
    """A cluster of this machine's, in a process of its own: Ray leaves threads and sockets behind."""
    pytest.importorskip("ray")
    done = call(tmp_path, PROGRAM.with_name("with_ray.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "the same"
