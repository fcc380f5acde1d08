"""The thread beside the loop: counters of the card, lines of threads, who runs and who waits."""

import sys
import threading
import time

import pytest
import torch

from denizen.perf._profile import sampler as sampler_module
from denizen.perf.watch import gpu_reader


def test_no_library_no_counters(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_reader(torch.device("cuda", 0)) is None


class FakeDriver:
    """nvidia-ml-py with one card, whose thermometer is missing."""

    def nvmlInit(self):  # noqa: N802
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        assert uuid == "GPU-1234"
        return "card"

    def nvmlDeviceGetUtilizationRates(self, handle):  # noqa: N802
        return type("Rates", (), {"gpu": 42})

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return type("Memory", (), {"used": 3 << 30})

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: N802
        return 250_000

    def nvmlDeviceGetTemperature(self, handle, sensor):  # noqa: N802
        raise RuntimeError("not supported")

    def nvmlDeviceGetClockInfo(self, handle, clock):  # noqa: N802
        return 1980


def test_counters_are_read_by_the_cards_own_number(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeDriver())
    properties = type("Properties", (), {"uuid": "1234"})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: properties)
    read = gpu_reader(torch.device("cuda", 0))
    assert read() == [("utilisation %", 42.0), ("memory GiB", 3.0), ("power W", 250.0), ("SM clock MHz", 1980.0)]


def test_samples_tell_running_from_waiting_threads():
    end = threading.Event()

    def spin():
        while not end.is_set():
            sum(range(1000))

    thread = threading.Thread(target=spin)
    taker = sampler_module.Sampler(torch.device("cpu"))
    thread.start()
    taker.start()
    taker.watch()
    time.sleep(0.2)
    taker.stop()
    end.set()
    thread.join()
    used = {}
    for event in taker.events:
        used.setdefault(event["tid"], []).append(event["args"]["used_ns"])
    own = used[threading.get_native_id()]
    other = used[thread.native_id]
    assert other[-1] - other[0] > own[-1] - own[0]
    mine = [e["args"] for e in taker.events if e["tid"] == threading.get_native_id()]
    assert any(one["waits"] and "test_profile_sampler_internals.py" in one["at"] for one in mine)


@pytest.mark.parametrize(
    ("code", "call", "waits"),
    [
        ("time.sleep(1)", None, True),
        ("x = y + 1", None, False),
        ("event.wait()", None, True),
        ("time.sleep(1)", "running", False),
        ("time.sleep(1)", "230", True),
        ("time.sleep(1)", "futex", False),
        ("event.wait()", "futex", True),
        ("x = y + 1", "futex", False),
        ("data = file.read()", "0", True),
    ],
)
def test_waiting_of_ones_own_accord(code, call, waits, monkeypatch):
    monkeypatch.setattr(sampler_module, "FUTEX", "futex")
    assert sampler_module._waits(code, call) == waits


def test_clock_of_a_thread_that_is_gone():
    assert sampler_module.core_time(threading.get_native_id()) > 0
    assert sampler_module.core_time(2**22 + 1) is None  # beyond the largest number of a thread
