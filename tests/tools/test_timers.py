"""Timers: counts, medians and spread; on a (stand-in for a) GPU no host wait before the report."""

import importlib.util
import time
from pathlib import Path

import pytest
import torch

from denizen import tools

spec = importlib.util.spec_from_file_location("fake_cuda", Path(__file__).with_name("fake_cuda.py"))
fake_cuda = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fake_cuda)


def test_wall_time(monkeypatch):
    ticks = iter([0.0, 0.001, 1.0, 1.003, 2.0, 2.002])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    timers = tools.Timers()
    for _ in range(3):
        with timers("step"):
            pass
    timing = timers.host_times()["step"]
    assert (timing.count, round(timing.median, 9), round(timing.total, 9)) == (3, 2.0, 6.0)
    assert timing.low < timing.median < timing.high
    assert timers.device_times() == timers.host_times()
    assert "step" in str(timers)
    timers.reset()
    assert timers.host_times() == {}
    assert "part" in str(timers)


def test_nested_failing_and_bounded():
    timers = tools.Timers(keep=5)
    for _ in range(12):
        with timers("outer"), timers("inner"):
            pass
    with pytest.raises(KeyError), timers("failed"):
        raise KeyError
    assert {name: timing.count for name, timing in timers.host_times().items()} == {"inner": 12, "outer": 12}
    assert len(timers._host["outer"].times) == 5


def test_nobody_waits_before_the_report(monkeypatch):
    fake = fake_cuda.FakeCuda(monkeypatch)
    timers = tools.Timers("cuda")
    for _ in range(3):
        with timers("forward"):
            pass
    assert fake.calls == [("compute", "records", number) for number in range(6)]
    assert timers.device_times()["forward"] == tools.Timing(3, 2.5, 2.5, 2.5, 7.5)
    assert fake.of("host waits for") == [("MainThread", "host waits for", number) for number in (1, 3, 5)]
    before = len(fake.calls)
    with timers("forward"):
        pass
    assert {number for _, _, number in fake.calls[before:]} < set(range(6))  # events are used again


@pytest.mark.cuda
def test_on_a_gpu():
    timers, x = tools.Timers("cuda"), torch.ones(1024, 1024, device="cuda")
    for _ in range(20):
        with timers("product"):
            x @ x
    timing = timers.device_times()["product"]
    assert timing.count == 20
    assert 0 < timing.low <= timing.median <= timing.high
    assert timers.host_times()["product"].count == 20
