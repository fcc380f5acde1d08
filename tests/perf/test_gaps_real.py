"""Loops that are slow for one cause each, profiled for real: on a GPU every cause, on the CPU those that it has."""

import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from denizen.perf import profile


class Slow(Dataset):
    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.zeros(8)


def work(device, size=2048):
    """Something that keeps a device busy for a while."""
    return torch.full((size, size), 1e-3, device=device)


def launches(device):
    x = torch.ones(64, device=device)

    def step():
        for _ in range(300):
            x.mul_(1.0)

    return step


def reads(device):
    x = work(device, 8192 if device == "cuda" else 2048)  # a GPU is slower at it than the host at launching it

    def step():
        for _ in range(10):
            y = x
            for _ in range(20):
                y = torch.sin(y)
            y.sum().item()

    return step


def allocates(device):
    def step():
        for _ in range(5):
            torch.empty(64 << 20, device=device).fill_(1.0)
            torch.cuda.empty_cache()

    return step


def copies(device):
    batch = torch.ones(16 << 20)

    def step():
        for _ in range(3):
            batch.to(device).mul_(2.0)

    return step


def loads(device):
    batches = iter(DataLoader(Slow(), 8))
    x = work(device, 64)

    def step():
        (next(batches).to(device).sum() * x).sum()

    return step


def computes_on_the_host(device):
    x = work(device, 64)

    def step():
        (x @ x).sum()
        sum(range(300_000))

    return step


def locked_out(device):
    x = work(device, 64)

    def step():
        for _ in range(5):
            (x @ x).sum()
            time.sleep(0.0005)  # gives the lock away for a moment, as loading and logging do

    return step


def hog(end):
    while not end.is_set():
        for _ in range(100):
            sum(range(20_000))  # one call into C that keeps the lock


CASES = {
    "launch-bound": launches,
    "host read": reads,
    "allocator": allocates,
    "copy": copies,
    "data wait": loads,
    "host work": computes_on_the_host,
    "interpreter lock": locked_out,
}


def found(cause, device):
    """Idle time by cause, without that of the other causes that a loop has by its nature."""
    end = threading.Event()
    thread = threading.Thread(target=hog, args=(end,), daemon=True)
    if cause == "interpreter lock":
        thread.start()
    try:
        report = profile(CASES[cause](device), active=5, device=device)
    finally:
        end.set()
    shares = {idle.cause: idle.seconds / report.window for idle in report.idle}
    for others in ("no core", "unknown"):  # time that other processes took from the host or the device
        shares.pop(others, None)
    return shares, str(report)


@pytest.mark.cuda
@pytest.mark.parametrize("cause", CASES)
def test_each_cause_on_a_gpu(cause):
    shares, text = found(cause, "cuda")
    assert max(shares, key=shares.__getitem__) == cause, text


@pytest.mark.slow  # not for its length: on a busy machine threads wait for cores as well
@pytest.mark.parametrize("cause", ["data wait", "host work", "interpreter lock"])
def test_causes_on_the_cpu(cause):
    shares, text = found(cause, "cpu")
    assert max(shares, key=shares.__getitem__) == cause, text
