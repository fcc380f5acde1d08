"""A loop that waits for its data says so; behind a prefetching loader samples are decoded while a step runs."""

import multiprocessing
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from denizen import tools
from denizen.perf import profile


class Counted(Dataset):
    """Counts what was decoded, in whichever process."""

    def __init__(self, length=64, seconds=0.0):
        self.length, self.seconds = length, seconds
        self.decoded = multiprocessing.get_context("fork").Value("i", 0)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(self.seconds)
        with self.decoded.get_lock():
            self.decoded.value += 1
        return torch.full((4,), float(index))


@pytest.mark.parametrize(("workers", "ahead"), [(0, False), (1, True)])
def test_samples_are_decoded_while_a_step_runs(workers, ahead):
    samples, size = Counted(), 4
    loader = DataLoader(samples, size, num_workers=workers, multiprocessing_context="fork" if workers else None)
    for number, _ in enumerate(tools.PrefetchLoader(loader, "cpu")):
        given = (number + 1) * size
        if number == 3:  # the step: as long as it takes the next batch to be decoded, if it ever is
            end = time.monotonic() + (30 if ahead else 0.05)
            while samples.decoded.value < given + size and time.monotonic() < end:
                time.sleep(0.001)
            assert (samples.decoded.value >= given + size) == ahead


def test_waiting_for_data_is_the_cause_before_and_not_after():
    def looped(batches):
        batches = iter(batches)
        weights = torch.ones(4, 4, requires_grad=True)

        def step():
            (next(batches) @ weights).sum().backward()

        return profile(step, plain=1, warm_up=1, active=3)

    before = looped(DataLoader(Counted(seconds=0.01), 4))
    assert before.idle[0].cause == "data wait"
    assert "tune_workers" in str(before)
    after = looped([torch.ones(4, 4)] * 8)
    assert "data wait" not in {idle.cause for idle in after.idle}


def test_waiting_behind_a_prefetching_loader_is_waiting_for_data():
    batches = iter(tools.PrefetchLoader(DataLoader(Counted(seconds=0.01), 4), "cpu"))
    report = profile(lambda: next(batches).sum(), plain=1, warm_up=1, active=3)
    assert report.idle[0].cause == "data wait"


def test_lines_of_loaders_are_named_by_samples():
    """Without a range around it, as in loaders of a user's own made of torch's parts."""
    loader = DataLoader(Counted(seconds=0.02), 4)
    fetcher = iter(loader)

    def step():
        torch.ones(2).add(1)
        fetcher._next_data().sum()

    found = {idle.cause: idle.at for idle in profile(step, plain=1, warm_up=1, active=2).idle}
    assert "torch/utils/data" in found["data wait"]
