"""Profiles on the CPU, and the command; counts are checked, not times."""

import gzip
import json
import threading
import time
from pathlib import Path

import pytest
import torch

from denizen.errors import InputError, StorageError
from denizen.perf import ProfileReport, profile, read_trace

from .traces import training_step as make


def quick(step=None, *args, **kwargs):
    return profile(step, *args, **{"plain": 1, "warm_up": 1, "active": 2} | kwargs)


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
        time.sleep(0.05)
        torch.ones(2).add(1)

    found = {idle.cause: idle.at for idle in quick(step).idle}
    assert "test_profile.py" in found["host work"]


@pytest.mark.parametrize("argument", ["plain", "warm_up", "active"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, None])
def test_numbers_of_steps_are_checked(argument, value):
    with pytest.raises(InputError, match=f"profile: {argument}="):
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

    monkeypatch.setattr(json, "dump", full)
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


# --- the command ------------------------------------------------------------------------------------------------------


def test_command(command_line, tmp_path):
    script = Path(__file__).with_name("programs") / "noisy_step.py"
    quick, traces = ["--cpu", "--steps", "2", "--warm-up", "1"], tmp_path / "traces"
    keep = ["--save-traces", "--trace-dir", traces, "--plot", tmp_path / "p.png"]
    code, told, _ = command_line("profile", f"{script}:make", *quick, *keep)
    assert code == 0
    assert "aten::add_" in told
    assert (tmp_path / "p.png").is_file()
    code, out, _ = command_line("profile", f"{script}:make", "--json", "--cpu", "--steps", "2")
    assert (code, json.loads(out)["steps"]) == (0, 2)
    (trace,) = traces.iterdir()
    code, again, _ = command_line("profile", trace)
    assert code == 0
    assert again.splitlines()[0] == told.splitlines()[0]
    for word in (f"{tmp_path}/none.py:make", f"{script}:mak", f"{script}:number", "no_such_module:make"):
        code, out, err = command_line("profile", word)
        assert (code, out) == (2, "")
        assert "Traceback" not in err
    for flag, value in (("--steps", "0"), ("--warm-up", "-1")):
        code, _, err = command_line("profile", f"{script}:make", flag, value)
        assert code == 2
        assert f"{flag} {value}" in err
