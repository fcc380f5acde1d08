"""Batch sizes: tried ones only, the right ones, and nothing left behind; time and memory are simulated."""

import copy
import gc
import random
import re
import time
import weakref
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from denizen import tools
from denizen.errors import InputError


class Job:
    """A real training step; its time and its memory limit are made up."""

    def __init__(self, limit=10**9, seconds=lambda size: 0.01 + 0.001 * size, error=None):
        torch.manual_seed(0)
        self.limit, self.seconds, self.now, self.runs = limit, seconds, 0.0, []
        self.error = error or (lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        data = TensorDataset(torch.randn(64, 4))
        self.loader = DataLoader(data, 2, shuffle=True, generator=torch.Generator().manual_seed(1))
        self.batches = []

    def make(self, size):
        batch = torch.randn(size, 4)
        self.batches.append(weakref.ref(batch))

        def step():
            self.runs.append(size)
            hidden = self.model[:3](batch if size > 1 else batch.expand(2, 4))
            next(iter(self.loader))
            if size > self.limit:
                raise self.error()
            random.random()
            self.optimizer.zero_grad()
            F.mse_loss(self.model[3](hidden), torch.zeros(hidden.shape[0], 1)).backward()
            self.optimizer.step()
            self.scheduler.step()
            self.now += self.seconds(size)

        return step

    def state(self):
        return [self.model, self.optimizer, self.scheduler, self.loader]

    def bits(self):
        return copy.deepcopy(
            (
                self.model.state_dict(),
                self.optimizer.state_dict(),
                self.scheduler.state_dict(),
                torch.get_rng_state(),
                random.getstate(),
                [batch[0] for batch in self.loader],
                [w.grad for w in self.model.parameters()],
            )
        )


@pytest.fixture(autouse=True)
def _clock(monkeypatch, request):
    Job.current = None
    monkeypatch.setattr(time, "perf_counter", lambda: Job.current.now if Job.current else 0.0)
    if "held" not in request.node.name:
        monkeypatch.setattr(gc, "collect", lambda: None)  # slow in a large process


def find(job, **options):
    Job.current = job
    return tools.find_batch_size(job.make, state=job.state(), **options)


def by_size(found):
    return {trial.batch_size: trial for trial in found.trials}


@settings(max_examples=40)
@given(limit=st.integers(1, 70), floor=st.integers(1, 20), ceiling=st.integers(1, 80), knee=st.integers(1, 60))
def test_answers_were_tried_and_are_right(limit, floor, ceiling, knee):
    job = Job(limit, lambda size: 0.01 * max(size, knee))  # the rate grows up to the knee
    if ceiling < floor or limit < floor:
        with pytest.raises(InputError, match="floor"):
            find(job, floor=floor, ceiling=ceiling, steps=1)
        return
    found = find(job, floor=floor, ceiling=ceiling, steps=1)
    trials = by_size(found)
    assert found.largest == min(limit, ceiling)
    for answer in (found.largest, found.fastest):
        assert trials[answer].outcome == "fits"
        assert trials[answer].verified
        assert answer in job.runs
    rates = [trial.samples_per_second for trial in found.trials if trial.samples_per_second]
    assert trials[found.fastest].samples_per_second >= 0.97 * max(rates)
    assert all(floor <= size <= ceiling for size in job.runs)
    expected = min(max(knee, floor), limit, ceiling)
    assert 0.97 * expected <= found.fastest <= expected * 1.13 + 1


def test_no_bit_is_left_behind():
    job, other = Job(limit=11), Job(limit=11)
    before = other.bits()
    find(job, steps=1)
    assert len(set(job.runs)) > 5
    after = job.bits()
    assert str(before) == str(after)
    for a, b in zip(torch.utils._pytree.tree_leaves(before), torch.utils._pytree.tree_leaves(after), strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_nothing_of_a_failed_trial_is_held():
    job = Job(limit=5)
    find(job, steps=1)
    gc.collect()
    assert len(job.batches) > 4
    assert all(batch() is None for batch in job.batches)


@pytest.mark.parametrize(
    "error",
    [
        lambda: RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
        ),
        lambda: RuntimeError("CUDA error: out of memory"),
        MemoryError,
    ],
)
def test_other_ways_to_run_out_of_memory(error):
    assert find(Job(limit=6, error=error), steps=1).largest == 6


def test_the_floor_does_not_fit():
    with pytest.raises(InputError, match=r"floor=4: not even this .*Tried to allocate 2.00 GiB.*fit_memory") as caught:
        find(Job(limit=3), floor=4)
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)


def test_other_errors_pass_and_leave_nothing():
    job = Job(limit=3, error=lambda: ZeroDivisionError("a bug"))
    before = Job().bits()
    with pytest.raises(ZeroDivisionError, match="a bug"):
        find(job)
    assert str(job.bits()) == str(before)


def test_a_size_that_fails_when_verified_is_not_returned():
    job = Job(limit=8)
    runs = {"8": 0}
    make = job.make

    def flaky(size):
        step = make(size)

        def run():
            runs["8"] += size == 8
            if runs["8"] > 5:  # memory ran short in the longer run
                job.limit = 7
            step()

        return run

    job.make = flaky
    found = find(job, steps=1, ceiling=8)
    assert found.largest < 8
    assert by_size(found)[8].outcome == "out of memory"
    assert by_size(found)[found.largest].verified


def test_a_rate_that_rises_when_verified_counts():
    job = Job()
    slow = iter([1.0] * 5)  # another program ran during the trial of the largest size
    job.seconds = lambda size: 0.01 * size if size < 4 else next(slow, 0.005 * size)
    found = find(job, steps=1, ceiling=4)
    rates = {trial.batch_size: trial.samples_per_second for trial in found.trials}
    assert rates[4] == pytest.approx(200)
    assert found.fastest == found.largest == 4


def test_reasons():
    assert find(Job(), ceiling=6, steps=1).reason == "ceiling=6 is reached"
    found = find(Job(), ceiling=64, dataset_length=5, steps=1)
    assert found.reason == "dataset_length=5 is reached"
    assert found.largest == 5
    assert find(Job(limit=5), steps=1).reason == "6 does not fit (out of memory)"


def test_a_size_that_is_not_used():
    job = Job()
    make = job.make
    job.make = lambda size: make(4)
    assert "nothing has limited it up to 16777216; does the step use the batch size?" in find(job, steps=1).reason


def test_memory_that_has_to_stay_free(monkeypatch):
    plain, kilobytes = Path.read_text, 100

    def read_text(path, *args, **named):
        told = plain(path, *args, **named)
        return re.sub(r"MemAvailable: .*", f"MemAvailable: {kilobytes} kB", told) if path.name == "meminfo" else told

    monkeypatch.setattr(Path, "read_text", read_text)
    job = Job()
    found = find(job, steps=1, headroom=0.5)
    trials = by_size(found)
    assert found.room_bytes == 51_200
    assert trials[found.largest].peak_bytes <= 51_200
    assert trials[found.largest + 1].outcome in ("over the headroom", "not tried: needs too much memory")
    assert max(job.runs) <= found.largest + 1
    kilobytes = 0
    with pytest.raises(InputError, match=r"floor=1: not even this batch size fits \(over the headroom, needs"):
        find(Job())


def test_peak_counts_what_is_held_at_once():
    sizes = find(Job(), ceiling=16, steps=1)
    trials = by_size(sizes)
    # Adam's two moments for 8 x 4 + 8 + 8 + 8 + 8 + 1 weights, gradients, and activations that grow with the batch.
    growth = trials[16].peak_bytes - trials[8].peak_bytes
    assert growth > 0
    assert growth % 8 == 0


def test_reports():
    found = find(Job(limit=6), steps=1)
    for text in (str(found), render(found)):
        assert "fastest 6, largest 6" in text
        assert "out of memory" in text
        assert "the search ended because 7 does not fit" in text


def render(found):
    with (console := Console(width=100)).capture() as capture:
        console.print(found)
    return capture.get()


def test_arguments_are_checked():
    job = Job()
    for options, message in [
        ({"floor": 0}, "floor=0"),
        ({"ceiling": 0}, "ceiling=0"),
        ({"floor": 4, "ceiling": 3}, "ceiling=3 is below"),
        ({"dataset_length": 3, "floor": 4}, "dataset_length=3 is below"),
        ({"headroom": 1.0}, "headroom=1.0"),
        ({"steps": 0}, "steps=0"),
    ]:
        with pytest.raises(InputError, match=message):
            find(job, **options)
    with pytest.raises(InputError, match=r"make_step\(1\) returned NoneType: expected a function that runs one step"):
        tools.find_batch_size(lambda size: None, state=job.state())
    with pytest.raises(InputError, match=r"find_batch_size: make_step=.*, expected a function of \(batch_size\)"):
        tools.find_batch_size(3, state=job.state())


def test_what_was_not_named_is_warned_of():
    job = Job()
    model, optimizer = job.model, job.optimizer

    def make(size):
        def step():
            optimizer.zero_grad()
            model(torch.randn(size + 1, 4)).sum().backward()
            optimizer.step()

        return step

    Job.current = job
    with pytest.warns(UserWarning, match="find_batch_size: the step uses optimizer"):
        tools.find_batch_size(make, state=[model], ceiling=1)


def test_with_a_stand_in_for_cuda(monkeypatch):
    """Memory by the allocator's counters, what is reserved but unused counted as free; the device is waited for."""
    job, calls, peak = Job(), [], {"now": 100}
    stand_ins = {
        "synchronize": lambda device=None: calls.append("wait"),
        "empty_cache": lambda: calls.append("empty"),
        "reset_peak_memory_stats": lambda device=None: peak.update(now=100),
        "memory_allocated": lambda device=None: 100,
        "memory_reserved": lambda device=None: 200,
        "max_memory_allocated": lambda device=None: peak["now"],
        "max_memory_reserved": lambda device=None: peak["now"] + 100,
        "mem_get_info": lambda device=None: (900, 2000),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)

    def make(size):
        def step():
            peak["now"] = 100 + 10 * size
            if size > 95:
                raise torch.OutOfMemoryError("CUDA out of memory")
            job.now += 0.01

        return step

    job.make = make
    found = find(job, steps=1, device="cuda")
    trials = by_size(found)
    assert found.room_bytes == 900
    assert (found.largest, trials[90].peak_bytes, trials[90].reserved_bytes) == (90, 900, 900)
    assert trials[91].outcome == "over the headroom"
    assert trials[96].outcome == trials[128].outcome == "out of memory"
    assert calls.count("wait") > 2 * len(found.trials)


@pytest.mark.cuda
def test_on_cuda(monkeypatch):
    monkeypatch.undo()
    model = nn.Linear(4096, 4096, device="cuda")
    optimizer = torch.optim.Adam(model.parameters())
    before = model.weight.clone()

    def make(size):
        batch = torch.randn(size * 256, 4096, device="cuda")

        def step():
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

        return step

    torch.cuda.set_per_process_memory_fraction(0.1)
    try:
        found = tools.find_batch_size(make, state=[model, optimizer], headroom=0.0)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.equal(model.weight, before)
    assert by_size(found)[found.largest].verified
    assert "out of memory" in found.reason
