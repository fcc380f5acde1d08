"""Profiles of a device: numbers from synthetic traces, CUDA by substitution, and on a GPU where there is one."""

import json

import pytest
import torch

from denizen.perf import ProfileReport, profile
from denizen.perf._profile import profile as profile_module
from denizen.perf._profile import sampler as sampler_module
from denizen.perf._profile.measure import memory, operators, queue

from .traces import MAIN, Tape, on_device
from .traces import training_step as make


def test_numbers_of_a_device():
    report = ProfileReport.of(on_device().trace())
    assert report.device == "cuda:0 H100"
    assert report.busy == pytest.approx(250e-6)  # the union, not the sum of 300 µs
    assert report.window == pytest.approx(1e-3)
    assert report.copies == pytest.approx(110e-6)
    assert report.exposed_copies == pytest.approx(100e-6)
    assert [(k.name, k.calls) for k in report.device_ops[:2]] == [("gemm", 2), ("Memcpy HtoD (Pageable -> Device)", 1)]
    assert report.kernels == 3
    text = str(report)
    assert "busy 25.0% of 2 steps" in text
    assert "0.1 ms without the profiler" in text


def test_operators_own_what_they_launch_and_nothing_of_their_children():
    tape = Tape()
    tape.host("aten::linear", 0, 100)
    tape.host("aten::addmm", 10, 60, **{"Input Dims": [[8], [4, 8], []]})
    tape.call("cudaLaunchKernel", 20, 30, correlation=1)
    tape._correlation = 1
    tape._work("kernel", "gemm", 40, 240, 0, 7)
    found = {op.name: op for op in operators(tape.trace())}
    # the window begins with the kernel, so only what lies in it counts
    assert "aten::linear" not in found
    tape.facts = {"denizen": {"steps": 1}}
    tape.step(0, 0, 300)
    found = {op.name: op for op in operators(tape.trace())}
    assert found["aten::linear"].host == pytest.approx(50e-6)
    assert found["aten::linear"].device == 0
    assert found["aten::addmm"].host == pytest.approx(50e-6)
    assert found["aten::addmm"].device == pytest.approx(200e-6)
    assert found["aten::addmm"].shapes == "[8], [4, 8]"


def test_queue():
    found = queue(on_device().trace())
    assert found.launches == 4
    assert found.most == 2
    assert found.empty == 0.5  # at 50 and at 550
    assert found.latency == pytest.approx(50e-6)
    assert found.mean == pytest.approx((150 + 190 + 150 + 240) / 1000)


def test_allocator_churn():
    tape = Tape()
    tape.facts = {"denizen": {"steps": 1}}
    tape.step(0, 0, 1_000)
    tape.kernel(10, 20, 1)
    tape.call("cudaMalloc", 100, 200)
    tape.call("cudaFree", 300, 400)
    total = 1_000
    for moment, size, kind in [(10, 100, 1), (20, 200, 1), (30, -100, 1), (40, 64, 0)]:
        total += size if kind else 0
        args = {"Bytes": size, "Device Type": kind, "Device Id": 0 if kind else -1, "Total Allocated": total}
        tape.events.append({"ph": "i", "name": "[memory]", "ts": moment, "tid": MAIN, "args": args})
    found = memory(tape.trace())
    assert (found.allocations, found.bytes, found.driver_calls) == (2, 300, 2)
    assert (found.peak, found.growth) == (1_300, 200)
    assert [value for _, value in found.timeline] == [1_100, 1_300, 1_200]


def test_counters_of_the_device_are_kept():
    tape = on_device()
    for moment, watts in ((0, 100), (500, 300)):
        tape.events.append({"ph": "C", "name": "GPU power W", "pid": 1, "ts": moment, "args": {"power W": watts}})
    report = ProfileReport.of(tape.trace())
    assert "GPU power W: 200 on average, 300 at most" in str(report)
    assert report.to_dict()["sampled"]["GPU power W"][1][1] == 300


class FakeEvent:
    """An event of CUDA's; recorded at 0, 1, 2, … ms."""

    made = 0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self, stream):
        self.time, FakeEvent.made = FakeEvent.made, FakeEvent.made + 1

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return float(other.time - self.time)


class FakeTorchProfiler:
    """torch's profiler with a device: writes the trace of `on_device`."""

    calls: list = []

    def __init__(self, activities, schedule, **options):
        self.calls[:] = [("activities", *activities)]
        self.schedule, self.count = schedule, 0
        assert options == {"record_shapes": True, "profile_memory": True, "with_stack": False, "acc_events": True}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.calls.append("exit")

    def step(self):
        self.count += 1
        self.calls.append(self.schedule(self.count).name)

    def export_chrome_trace(self, path):
        with open(path, "w") as file:
            json.dump({"traceEvents": on_device().events, "baseTimeNanoseconds": 0}, file)


def test_on_cuda_by_substitution(monkeypatch):
    ranges, calls = [], FakeTorchProfiler.calls
    monkeypatch.setattr(profile_module, "_chosen", lambda device: torch.device("cuda", 0))
    monkeypatch.setattr(torch.profiler, "profile", FakeTorchProfiler)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: calls.append("synchronize"))
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda name: ranges.append(name))
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: ranges.append("pop"))
    monkeypatch.setattr(sampler_module, "gpu_reader", lambda device: lambda: [("power W", 250.0)])
    with profile(plain=3, warm_up=1, active=2) as prof:
        for _ in range(7):
            with prof.range("forward"):
                pass
            prof.step()
    report = prof.report
    # The device is waited for once, before the first step that is recorded.
    assert [str(call) for call in calls[1:]] == [
        "NONE",
        "NONE",
        "WARMUP",
        "synchronize",
        "RECORD",
        "RECORD_AND_SAVE",
        "NONE",
        "NONE",
        "exit",
    ]
    assert calls[0][1:] == (torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA)
    assert ranges[:8] == ["step 0", "forward", "pop", "pop", "step 1", "forward", "pop", "pop"]
    assert ranges.count("pop") * 2 == len(ranges)
    assert report.plain_times == [1e-3, 1e-3]  # between events; the first step is left out
    assert report.device.startswith("cuda:0")
    assert (report.steps, report.queue.launches) == (2, 4)
    assert {value for _, value in report.sampled["GPU power W"]} == {250.0}


@pytest.mark.cuda
def test_profile_on_cuda(tmp_path):
    step = make("cuda")

    def reading():
        step()
        torch.ones(2, device="cuda").sum().item()

    report = profile(reading, trace_dir=tmp_path, active=4)
    assert report.device.startswith("cuda:0")
    assert report.steps == 4
    assert 0 < report.busy < report.window
    assert report.busy + sum(idle.seconds for idle in report.idle) == pytest.approx(report.window, rel=1e-6)
    assert report.queue.launches > 0
    assert "host read" in {idle.cause for idle in report.idle}
    assert len(report.plain_times) == 2


def test_an_operator_within_one_of_its_own_name_is_one_call():
    """Torch takes some operators to their kernels by way of themselves, at any depth; their time is told once."""
    tape = Tape()
    tape.facts = {"denizen": {"steps": 1}}
    tape.step(1, 0, 100)
    tape.host("aten::sum", 0, 40, **{"Input Dims": [[2]]})
    tape.host("aten::view", 5, 35)
    tape.host("aten::sum", 10, 30, **{"Input Dims": [[3]]})
    tape.call("cudaLaunchKernel", 12, 20, correlation=5)
    tape.call("cuLaunchKernel", 14, 18, correlation=5)
    tape.events[-1]["cat"] = "cuda_driver"
    tape.host("aten::sum", 50, 60, **{"Input Dims": [[2]]})
    tape._correlation = 5
    tape._work("kernel", "sum", 60, 90, 0, 7)
    ops = {op.name: op for op in operators(tape.trace())}
    assert (ops["aten::sum"].calls, ops["aten::view"].calls) == (2, 1)
    assert ops["aten::sum"].host == pytest.approx(40e-6)  # 10 outside of the view, 20 within, 10 of the second
    assert ops["aten::view"].host == pytest.approx(10e-6)
    assert ops["aten::sum"].device == pytest.approx(30e-6)
    assert ops["aten::sum"].shapes == "[2]"
