"""Choosing workers: what is tried, what is chosen from given measurements, and that the loader stays the same."""

import os
import time
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from denizen import tools
from denizen.errors import InputError


def loader(**options):
    return DataLoader(TensorDataset(torch.arange(40.0)), 4, shuffle=True, **options)


@pytest.fixture
def measured(monkeypatch):
    """Loaders with given waits: seconds by (workers, prefetch_factor), on a clock of their own."""
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds):
        clock.now += seconds

    monkeypatch.setattr(DataLoader, "check_worker_number_rationality", lambda self: None)  # of this machine
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(time, "sleep", sleep)

    def given(waits, cores=8, free=1e12):
        tried = []

        def batches(loader):
            workers, factor = loader.num_workers, loader.prefetch_factor
            ready = max(workers * (factor or 0), 1)  # with the first one, which takes longer
            for number in range(64):
                if number == 1:  # one batch alone is asked for its size
                    tried.append((workers, factor))
                sleep(0.1 if not number else 0.0 if number < ready else waits(workers, factor or 2))
                yield (torch.zeros(4),)

        monkeypatch.setattr(DataLoader, "__iter__", batches)
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
        monkeypatch.setattr(os, "sysconf", {"SC_AVPHYS_PAGES": free, "SC_PAGE_SIZE": 1}.__getitem__)
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=free, f_frsize=1))
        return tried

    return given


def test_the_smallest_that_keeps_up(measured):
    tried = measured(lambda workers, factor: 0.1 / max(workers, 1))
    tuned = tools.tune_workers(loader(), step_seconds=0.6)
    assert tried == [(0, None), (1, 2), (2, 2), (4, 2), (8, 2), (4, 4), (4, 8)]
    assert (tuned.loader.num_workers, tuned.loader.prefetch_factor) == (4, 2)
    assert tuned.loader.persistent_workers
    assert "4 workers: the smallest that waits for less than 5% of a step of 600.0 ms (8 cores)" in str(tuned)
    assert str(tuned).count("<- chosen") == 1


def test_the_smallest_near_the_best_rate(measured):
    measured(
        lambda workers, factor: {0: 1.0, 1: 1.1, 2: 0.52, 4: 0.5, 6: 0.51}[workers] - 0.01 * (factor == 8), cores=6
    )
    tuned = tools.tune_workers(loader())
    assert (tuned.chosen.num_workers, tuned.chosen.prefetch_factor) == (2, 2)
    measured(lambda workers, factor: 1.0 - 0.1 * (workers == 2 and factor == 4), cores=2)
    assert tools.tune_workers(loader()).chosen.num_workers == 0
    measured(lambda workers, factor: 1.0)
    assert "none waits for less than 5% of a step" in tools.tune_workers(loader(), step_seconds=0.5).reason


def test_deeper_prefetching_where_it_pays(measured):
    measured(lambda workers, factor: 0.5 / max(workers, 0.5) / factor, cores=2)
    tuned = tools.tune_workers(loader())
    assert (tuned.loader.num_workers, tuned.loader.prefetch_factor) == (2, 8)


def test_bounded_by_cores_memory_and_the_user(measured):
    tried = measured(lambda workers, factor: 1.0 / (workers + 1), cores=3)
    tools.tune_workers(loader())
    assert {workers for workers, _ in tried} == {0, 1, 2, 3}
    tried = measured(lambda workers, factor: 1.0 / (workers + 1), free=4 * 16 * 9)  # nine batches of 16 bytes
    tools.tune_workers(loader())
    assert tried == [(0, None), (1, 2), (2, 2), (4, 2)]
    tried = measured(lambda workers, factor: 1.0)
    tools.tune_workers(loader(), max_workers=0)
    assert tried == [(0, None)]


def test_for_real(monkeypatch):
    cores = sorted(os.sched_getaffinity(0))[:2]
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(cores))
    plain, before = loader(), torch.get_rng_state()
    tuned = tools.tune_workers(plain, step_seconds=0.001, max_workers=1, seconds=0.2)
    assert torch.get_rng_state().equal(before)
    assert [trial.num_workers for trial in tuned.trials][:2] == [0, 1]
    assert all(trial.seconds_waited >= 0 and trial.batches > 0 for trial in tuned.trials)
    orders = []
    for each in (plain, tuned.loader):
        torch.manual_seed(4)
        orders.append([[row.tolist() for (row,) in each] for _ in range(3)])
    assert orders[0] == orders[1]


def test_batches_keep_their_order_though_workers_stay(measured, monkeypatch):
    measured(lambda workers, factor: 1.0 / (workers + 1), cores=1)
    plain = loader()
    tuned = tools.tune_workers(plain)
    monkeypatch.undo()
    assert (tuned.loader.num_workers, tuned.loader.persistent_workers) == (1, True)
    orders = []
    for each in (plain, tuned.loader):
        torch.manual_seed(4)
        orders.append([[row.tolist() for (row,) in each] for _ in range(3)])
    assert orders[0] == orders[1]


def test_what_cannot_be_tuned():
    class Own(DataLoader):
        pass

    with pytest.raises(InputError, match="loader is a Own"):
        tools.tune_workers(Own([1]))
    with pytest.raises(InputError, match="no batch to try"):
        tools.tune_workers(DataLoader([], 4))
    with pytest.raises(InputError, match="max_workers=-1"):
        tools.tune_workers(loader(), max_workers=-1)
