"""Who takes the launches does not change a bit: two processes of torchrun's, threads, Ray."""

import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.sweeps import Ray, _sweep, load, sweep
from denizen.sweeps._executors import packed, unpacked
from denizen.zoo.sir import SIR

DESIGN = {"infect_rate": [0.1, 0.3, 0.5], "infectious_phases": [1, 2]}
OPTIONS = {"steps": 4, "replicates": 2, "progress": False}
RANKS = Path(__file__).parents[1] / "rl" / "ranks.py"  # two processes as of torchrun, forked from one


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


PROGRAM = """
import torch, torch.distributed as dist
import denizen as dz
from denizen.sweeps import _sweep, sweep
from denizen.zoo.sir import SIR
dist.init_process_group("gloo")
said = open(f"{dist.get_rank()}.txt", "w")  # two processes would write into each other's lines
def line(theta, worlds):
    if theta.max() > 5:
        raise dz.errors.ModelError("too large")
    return theta.sum(1, keepdim=True) + torch.tensor(worlds)[:, None]
for _ in range(2):  # the second time all of it is in the folder, which the first process alone reads
    found = sweep(line, {"a": [1, 2, 3, 4, 5]}, steps=1, replicates=3, progress=False, out="s")
    print(found["output"].flatten().tolist(), file=said)
    dist.barrier()
around = torch.arange(40)
ring = SIR(dz.Graph.from_edges(around, (around + 1) % 40, 40, directed=False), infect_rate=0.3)
_sweep.free = lambda device: 20_000 + 40_000 * dist.get_rank()  # bytes: room for other numbers of rows
options = {"steps": 4, "replicates": 3, "progress": False}
print(len(sweep(ring, {"infect_rate": [0.1, 0.2, 0.3, 0.4, 0.5]}, **options)), file=said)
try:
    sweep(line, {"a": [1, 2, 3, 4, 6]}, steps=1, replicates=3, progress=False)
except dz.errors.DenizenError as error:
    print(error, file=said)
said.close()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_every_process_has_all_results_and_every_failure(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = call(tmp_path, RANKS, "program.py")
    assert done.returncode == 0, done.stderr
    wanted = [float(a + w) for a in range(1, 6) for w in range(3)]
    for rank in (0, 1):
        said = (tmp_path / f"{rank}.txt").read_text().splitlines()
        assert said[:2] == [str(wanted)] * 2
        assert said[2] == "5"  # all sets, though each process sees another amount of free memory
        assert "sweep: set 4 (a=6) in world" in said[3]


def test_series_of_any_dtype_go_between_processes():
    given = {"half": torch.ones(2, 3, dtype=torch.bfloat16), "flag": torch.tensor([[True], [False]])}
    rows, found = unpacked(packed(lambda job: (job, given), np.array([4, 7])), "here")
    assert rows.tolist() == [4, 7]
    assert all(torch.equal(found[name], values) and found[name].dtype == values.dtype for name, values in given.items())


def test_threads_take_launches(ring, monkeypatch):
    monkeypatch.setitem(_sweep.MOST_AGENTS, "cpu", 80)
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
    done = call(tmp_path, __file__, "ray")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "the same"


def with_ray() -> None:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    around = torch.arange(40)
    graph = dz.Graph.from_edges(around, (around + 1) % 40, 40, directed=False)
    model = SIR(graph, infect_rate=0.3, seed_share=0.1)
    _sweep.MOST_AGENTS["cpu"] = 80
    assert Ray().workers == 2
    same(sweep(model, DESIGN, executor=Ray(), out="s", **OPTIONS), sweep(model, DESIGN, **OPTIONS))
    same(load("s"), sweep(model, DESIGN, **OPTIONS))

    def fails(theta, worlds):
        raise ModelError("no")

    with pytest.raises(ModelError, match=r"sweep: set \d \(a=\d\) in world 0: no"):
        sweep(fails, {"a": [1, 2, 3]}, steps=1, replicates=1, executor=Ray(), progress=False)
    with pytest.raises(InputError, match="gpus=64, and the cluster has 2 CPUs, 0 GPUs"):
        sweep(model, DESIGN, executor=Ray(gpus=64), **OPTIONS)
    ray.shutdown()
    print("the same")


if __name__ == "__main__":
    with_ray()
