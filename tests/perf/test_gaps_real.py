"""Loops that are slow for one cause each, profiled for real: on a GPU every cause, on the CPU those that it has.

What is true of these loops is true as long as they have a core. Where other processes take it, a thread that computes
stands still, nobody holds the lock, and the report rightly says so: such a measurement proves nothing and is repeated.
"""

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
    """Idle time by cause, without that of other processes; the report; how much of a core this process had."""
    end = threading.Event()
    thread = threading.Thread(target=hog, args=(end,), daemon=True)
    if cause == "interpreter lock":
        thread.start()
    try:
        step = CASES[cause](device)
        wall, core = time.perf_counter(), time.process_time()
        report = profile(step, active=5, device=device)
        core = (time.process_time() - core) / (time.perf_counter() - wall)
    finally:
        end.set()
        if thread.is_alive():
            thread.join()
    shares = {idle.cause: idle.seconds / report.window for idle in report.idle}
    for others in ("no core", "unknown"):  # time that other processes took from the host or the device
        shares.pop(others, None)
    return shares, str(report), core


@pytest.mark.cuda
@pytest.mark.parametrize("cause", CASES)
def test_each_cause_on_a_gpu(cause):
    shares, text, _ = found(cause, "cuda")
    assert max(shares, key=shares.__getitem__) == cause, text


@pytest.mark.slow  # a busy machine has it measure again and again
@pytest.mark.parametrize("cause", ["data wait", "host work", "interpreter lock"])
def test_causes_on_the_cpu(cause):
    for _ in range(100):
        shares, text, core = found(cause, "cpu")
        if max(shares, key=shares.__getitem__) == cause:
            return
        if cause == "data wait" or core > 0.95:  # who sleeps needs no core; who had one has no excuse
            break
    pytest.fail(f"the process had {core:.0%} of a core:\n{text}")
