"""Profiles: on the CPU as they are, on a device from synthetic traces; numbers are checked, not times."""

import gzip
import json
import threading
import time

import pytest
import torch

from denizen.app._profile import Profile
from denizen.errors import ConfigError, DataError, InputError, StorageError
from denizen.perf import ProfileReport, profile, read_trace
from denizen.perf import _profile as profile_module
from denizen.perf import _profile_sampler as sampler_module
from denizen.perf._profile_measure import memory, operators, queue

from .traces import MAIN, OTHER, Tape


def make(device="cpu"):
    net = torch.nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    calls = []

    def step():
        calls.append(1)
        optimizer.zero_grad()
        net(torch.ones(4, 8, device=device)).sum().backward()
        optimizer.step()

    step.calls = calls
    return step


def quick(step=None, *args, **kwargs):
    return profile(step, *args, **{"plain": 1, "warm_up": 1, "active": 2} | kwargs)


# --- on the CPU -------------------------------------------------------------------------------------------------------


def test_profile_of_a_step(tmp_path):
    step = make()
    report = profile(step, trace_dir=tmp_path / "traces", plain=2, warm_up=1, active=3)
    assert len(step.calls) == 6
    assert (report.device, report.steps, len(report.step_times), len(report.plain_times)) == ("cpu", 3, 3, 1)
    assert 0 < report.busy < report.window
    assert report.busy + sum(idle.seconds for idle in report.idle) == pytest.approx(report.window)
    calls = {op.name: op.calls for op in report.operators}
    assert calls["aten::addmm"] == 3
    assert next(op.shapes for op in report.operators if op.name == "aten::addmm") == "[8], [4, 8], [8, 8]"
    assert report.queue is None
    assert report.device_ops == []
    assert report.memory.allocations > 0
    assert report.sampled == {}
    assert "sampled" not in report.to_dict()
    assert "in operators" in str(report)
    assert "kernels" not in str(report)


def test_a_saved_trace_says_the_same(tmp_path):
    report = quick(make(), trace_dir=tmp_path)
    (file,) = tmp_path.glob("*.pt.trace.json.gz")
    assert report.trace == file
    again = ProfileReport.of(read_trace(file), kept=file)
    assert again.to_dict() == report.to_dict()
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert {"aten::addmm", "[memory]", "ProfilerStep#2"} <= {event["name"] for event in events}
    drawn = [event for event in events if event.get("cat") == "denizen_gap"]  # a track of their own for viewers
    assert [event["name"] for event in drawn] == [gap.cause for gap in report.gaps]


def test_a_loop_of_ones_own(tmp_path):
    step, seen = make(), 0
    with quick() as prof:
        for _ in range(10):
            with prof.range("forward"):
                step()
            prof.step()
            seen += 1
            if prof.done:
                break
    assert seen == 4
    assert prof.report.steps == 2


def test_a_loop_that_goes_on_is_recorded_no_longer():
    step = make()
    with quick() as prof:
        for _ in range(10):
            step()
            prof.step()
    assert prof.report.steps == 2
    assert {op.name: op.calls for op in prof.report.operators}["aten::addmm"] == 2


def test_a_loop_that_ends_early_gives_what_was_recorded():
    step = make()
    with quick(active=5) as prof:
        for _ in range(4):
            step()
            prof.step()
    assert prof.report.steps == 2


def test_a_loop_that_ends_too_early_is_told():
    with quick() as prof:
        prof.step()
        with pytest.raises(InputError, match="no step was recorded"):
            _ = prof.report
    with pytest.raises(InputError, match="at least 3 times"):
        _ = prof.report


def test_errors_of_the_loop_pass_through():
    before = threading.active_count()

    def loop():
        with quick() as prof:
            for _ in range(3):
                prof.step()
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        loop()
    assert threading.active_count() == before
    assert quick(make()).steps == 2  # the profiler was left in order


def test_steps_take_arguments_or_their_number():
    seen = []
    quick(seen.append)
    assert seen == [0, 1, 2, 3]
    quick(lambda x, y: seen.append((x, y)), 7, 8)
    assert seen[4:] == [(7, 8)] * 4


def test_stacks_are_recorded_when_asked_for():
    report = quick(make(), stacks=True)
    assert report.steps == 2
    assert report.window > 0


def test_lines_of_long_gaps_are_known():
    def step():
        torch.ones(2).add(1)
        time.sleep(0.02)
        torch.ones(2).add(1)

    report = quick(step)
    assert report.idle[0].cause == "host work"
    assert "test_profile.py" in report.idle[0].at


@pytest.mark.parametrize("argument", ["plain", "warm_up", "active"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, None])
def test_numbers_of_steps_are_checked(argument, value):
    with pytest.raises(InputError, match=f"profile\\({argument}="):
        profile(make(), **{argument: value})


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "meta"])
def test_devices_are_checked(device):
    with pytest.raises(InputError, match="profile\\(device="):
        profile(make(), device=device)


def test_no_function():
    with pytest.raises(InputError, match="expected a function"):
        profile(3)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    step = make()
    with pytest.raises(StorageError, match="trace_dir"):
        profile(step, trace_dir=tmp_path / "file" / "traces")
    assert step.calls == []  # before anything was trained


def test_a_full_disk_leaves_no_half_of_a_trace(tmp_path, monkeypatch):
    def full(content, file):
        file.write("[")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(profile_module.json, "dump", full)
    with pytest.raises(StorageError, match="No space left"):
        quick(make(), trace_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_step_without_operators():
    report = quick(lambda: None)
    assert report.busy == 0
    assert "cpu" in str(report)


def test_plot_and_json(tmp_path):
    report = quick(make())
    report.plot(tmp_path / "profile.png")
    assert (tmp_path / "profile.png").stat().st_size > 10_000
    assert json.loads(report.to_json(tmp_path / "profile.json")) == json.loads((tmp_path / "profile.json").read_text())
    with pytest.raises(StorageError):
        report.to_json(tmp_path)
    with pytest.raises(StorageError):
        report.plot(tmp_path / "none" / "profile.png")


# --- on a device, from synthetic traces -------------------------------------------------------------------------------


def on_device() -> Tape:
    tape = Tape()
    tape.facts = {"denizen": {"steps": 2, "plain_times": [1e-4]}, "deviceProperties": [{"id": 0, "name": "H100"}]}
    tape.step(2, 0, 500)
    tape.step(3, 500, 1_000)
    tape.kernel(100, 200, 50, name="gemm", op="aten::mm")
    tape.kernel(150, 250, 60, name="add", stream=9, op="aten::add")  # beside the other
    tape.kernel(600, 700, 550, name="gemm", op="aten::mm")
    tape.copy("HtoD", 690, 800, asked=560)
    return tape


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
        assert options == {"record_shapes": True, "profile_memory": True, "with_stack": False}

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
        "NONE", "NONE", "WARMUP", "synchronize", "RECORD", "RECORD_AND_SAVE", "NONE", "NONE", "exit"
    ]  # fmt: skip
    assert calls[0][1:] == (torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA)
    assert ranges[:8] == ["step 0", "forward", "pop", "pop", "step 1", "forward", "pop", "pop"]
    assert ranges.count("pop") * 2 == len(ranges)
    assert report.plain_times == [1e-3, 1e-3]  # between events; the first step is left out
    assert report.device.startswith("cuda:0")
    assert (report.steps, report.queue.launches) == (2, 4)
    assert {value for _, value in report.sampled["GPU power W"]} == {250.0}


# --- the sampling thread ----------------------------------------------------------------------------------------------


def test_no_library_no_counters(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    assert sampler_module.gpu_reader(torch.device("cuda", 0)) is None


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
    monkeypatch.setitem(__import__("sys").modules, "pynvml", FakeDriver())
    properties = type("Properties", (), {"uuid": "1234"})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: properties)
    read = sampler_module.gpu_reader(torch.device("cuda", 0))
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
    assert "test_profile.py" in mine[0]["at"]
    assert mine[0]["waits"]


@pytest.mark.parametrize(
    ("code", "call", "waits"),
    [
        ("time.sleep(1)", None, True), ("x = y + 1", None, False), ("event.wait()", None, True),
        ("time.sleep(1)", "running", False), ("time.sleep(1)", "230", True), ("time.sleep(1)", "futex", False),
        ("event.wait()", "futex", True), ("x = y + 1", "futex", False), ("data = file.read()", "0", True),
    ],
)  # fmt: skip
def test_waiting_of_ones_own_accord(code, call, waits, monkeypatch):
    monkeypatch.setattr(sampler_module, "FUTEX", "futex")
    assert sampler_module._waits(code, call) == waits


def test_clock_of_a_thread_that_is_gone():
    assert sampler_module.core_time(threading.get_native_id()) > 0
    assert sampler_module.core_time(2**22 + 1) is None  # beyond the largest number of a thread


# --- traces of others -------------------------------------------------------------------------------------------------


def test_a_trace_of_torchs_own_profiler(tmp_path, monkeypatch):
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")
    step = make()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        step()
    file = tmp_path / "trace.json"
    prof.export_chrome_trace(str(file))
    report = ProfileReport.of(read_trace(file))
    assert report.steps == 0
    assert 0 < report.busy <= report.window
    assert "the trace" in str(report)


def test_a_list_of_events_alone_is_a_trace(tmp_path):
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(on_device().events))
    assert read_trace(file).device == 0


@pytest.mark.parametrize("content", ["", "[1]", "{}", "no json", '{"traceEvents": [{"ph": "X", "cat": "kernel"}]}'])
def test_files_that_are_no_traces(tmp_path, content):
    file = tmp_path / "trace.json"
    file.write_text(content)
    with pytest.raises(DataError, match="read_trace"):
        read_trace(file)


def test_broken_archives_and_missing_files(tmp_path):
    file = tmp_path / "trace.json.gz"
    file.write_bytes(gzip.compress(b"[]")[:-4])
    with pytest.raises(DataError, match="read_trace"):
        read_trace(file)
    with pytest.raises(DataError, match="No such file"):
        read_trace(tmp_path / "none.json")


def test_threads_of_other_processes_are_not_mixed_up():
    tape = Tape()
    tape.host("aten::mm", 0, 10)
    tape.host("aten::mm", 5, 15, thread=OTHER)
    assert {thread: len(events) for thread, events in tape.trace().threads.items()} == {MAIN: 1, OTHER: 1}


# --- the command ------------------------------------------------------------------------------------------------------


class Console:
    def __init__(self):
        self.text = ""

    def print(self, text, **_):
        self.text += text


def test_command(tmp_path, capsys):
    script = tmp_path / "script_of_the_profile.py"
    script.write_text(
        "import torch\n"
        "def make(device):\n"
        "    x = torch.ones(4, device=device)\n"
        "    def step():\n"
        "        x.add_(1)\n"
        "        print('noise')\n"
        "    return step\n"
        "number = 3\n"
    )
    console = Console()
    command = Profile(
        f"{script}:make", save_traces=True, trace_dir=tmp_path / "traces", cpu=True, steps=2, warm_up=1,
        plot=tmp_path / "p.png",
    )  # fmt: skip
    assert command(console) == 0
    assert "aten::add_" in console.text
    assert (tmp_path / "p.png").is_file()
    capsys.readouterr()
    assert Profile(f"{script}:make", json=True, cpu=True, steps=2)(console) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2
    (trace,) = (tmp_path / "traces").iterdir()
    again = Console()
    assert Profile(str(trace))(again) == 0
    assert again.text.splitlines()[0] == console.text.splitlines()[0]
    for word in (f"{tmp_path}/none.py:make", f"{script}:mak", f"{script}:number", "no_such_module:make"):
        with pytest.raises(ConfigError):
            Profile(word)(console)
    for wrong in ({"steps": 0}, {"warm_up": -1}):
        with pytest.raises(ConfigError, match="--"):
            Profile(f"{script}:make", **wrong)(console)


# --- on a GPU ---------------------------------------------------------------------------------------------------------


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
