"""Metrics: the file equals a plain log, whatever the order of threads; nothing is lost, doubled or read too early."""

import importlib.util
import json
import math
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from denizen import tools
from denizen.errors import InputError

spec = importlib.util.spec_from_file_location("fake_cuda", Path(__file__).with_name("fake_cuda.py"))
fake_cuda = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fake_cuda)

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool]


@pytest.fixture
def far(monkeypatch):
    """CPU tensors say that they are on CUDA."""
    fake, real = fake_cuda.FakeCuda(monkeypatch), torch.empty
    monkeypatch.setattr(torch.Tensor, "device", property(lambda tensor: torch.device("cuda", 0)))
    monkeypatch.setattr(torch, "empty", lambda *a, pin_memory=False, device=None, **k: real(*a, **k))
    return fake


def updates(count=40):
    """Updates with values of all kinds, whose names and dtypes change along the way."""
    generator = torch.Generator().manual_seed(3)
    for step in range(count):
        values = {"loss": torch.randn((), generator=generator), "rate": 10.0**-step, "done": step % 2 == 0}
        for dtype in DTYPES[: 1 + step % len(DTYPES)]:
            values[str(dtype)] = (torch.randn(1, generator=generator) * 50).to(dtype)
        yield step, values


def plain_log(steps):
    return [
        {"step": step, **{k: v.item() if isinstance(v, torch.Tensor) else v for k, v in values.items()}}
        for step, values in steps
    ]


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def same(rows, expected):
    assert [list(row.items()) for row in rows] == [list(row.items()) for row in expected]
    assert [[type(v) for v in row.values()] for row in rows] == [[type(v) for v in row.values()] for row in expected]


@pytest.mark.parametrize("slots", [1, 2, 64])
def test_equals_a_plain_log(tmp_path, slots):
    path = tmp_path / "deep" / "metrics.jsonl"
    with tools.MetricsWriter(path, slots=slots) as metrics:
        for step, values in updates():
            assert metrics.log(step, values)
    same(lines(path), plain_log(updates()))


@pytest.mark.parametrize("slots", [1, 3, 64])
def test_equals_a_plain_log_from_a_device(tmp_path, far, slots):
    path, seen = tmp_path / "metrics.jsonl", []
    with tools.MetricsWriter(path, seen.append, slots=slots) as metrics:
        for step, values in updates():
            metrics.log(step, values)
            for value in values.values():
                if isinstance(value, torch.Tensor):
                    value.zero_()  # the loop goes on; the copy was queued before
    same(lines(path), plain_log(updates()))
    same(seen, plain_log(updates()))


def test_one_copy_and_no_wait_in_the_loop(far, monkeypatch):
    copies, real = [], torch.Tensor.copy_
    gate = threading.Event()
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, *a, **k: (copies.append(k), real(self, *a, **k))[1])
    with tools.MetricsWriter(lambda row: gate.wait(), slots=4) as metrics:
        for step in range(4):
            metrics.log(step, {"a": torch.ones(()), "b": torch.ones(1), "c": torch.tensor(3)})
        gone, records = list(copies), len(far.of("records"))
        gate.set()  # before anything can fail: the block waits for the writer
        assert gone == [{"non_blocking": True}] * 4
        assert records == 4
        metrics.flush()
        waited = far.of("host waits for")
        assert len(waited) == 4
        assert {thread for thread, _, _ in waited} == {"denizen-metrics"}
        assert all(event.blocking for event in [slot.done for slot in metrics._free if slot.done])
        buffers = {slot.host.data_ptr() for slot in metrics._free}
        for step in range(8):
            metrics.log(step, {"a": torch.ones(()), "b": torch.ones(1), "c": torch.tensor(3)})
        metrics.flush()
        assert {slot.host.data_ptr() for slot in metrics._free} == buffers  # nothing new after warm-up


def test_gradients_and_inference_mode(far):
    rows, weight = [], torch.ones((), requires_grad=True)
    with tools.MetricsWriter(rows.append, slots=1) as metrics:
        with torch.inference_mode():
            metrics.log(0, {"a": torch.ones(()) * 2})
        metrics.log(1, {"a": weight * 3})
        with torch.inference_mode():
            metrics.log(2, {"a": torch.ones(()) * 4})
    assert [row["a"] for row in rows] == [2.0, 3.0, 4.0]


def test_full_blocks_or_drops():
    gate, rows = threading.Event(), []
    held = tools.MetricsWriter(lambda row: (gate.wait(), rows.append(row)), slots=2, drop=True)
    assert held.log(0, {"a": 1})
    while len(held._free) != 2:
        time.sleep(0.001)  # the thread has taken the values of the first out of its slot
    kept = [held.log(step, {"a": step}) for step in range(1, 9)]
    gate.set()
    held.close()
    assert kept.count(True) == len(rows) - 1
    assert held.dropped == kept.count(False) > 0
    assert [row["step"] for row in rows] == [0, *(step for step, ok in zip(range(1, 9), kept, strict=True) if ok)]

    rows.clear()
    gate.clear()
    blocking = tools.MetricsWriter(lambda row: (gate.wait(), rows.append(row)), slots=2)
    threading.Timer(0.05, gate.set).start()
    for step in range(50):
        assert blocking.log(step, {"a": step})
    blocking.close()
    assert [row["step"] for row in rows] == list(range(50))
    assert blocking.dropped == 0


class Flaky:
    """Fails once for the given steps."""

    def __init__(self, fail):
        self.rows, self.fail, self.closed, self.synced = [], set(fail), False, 0

    def write(self, row):
        if row["step"] in self.fail:
            self.fail.remove(row["step"])
            raise OSError(f"disk full at {row['step']}")
        self.rows.append(row)

    def sync(self):
        self.synced += 1

    def close(self):
        self.closed = True


def test_errors_come_at_the_next_log_and_nothing_is_lost():
    good, bad = Flaky([]), Flaky([1, 3])
    metrics, raised, step = tools.MetricsWriter(good, bad), [], 0
    while step < 6:
        try:
            metrics.log(step, {"a": step})
            step += 1
        except OSError as error:
            raised.append(str(error))
        try:
            metrics.flush()
        except OSError as error:
            raised.append(str(error))
    metrics.close()
    assert raised == ["disk full at 1", "disk full at 3"]
    assert [row["step"] for row in good.rows] == [row["step"] for row in bad.rows] == list(range(6))
    assert good.closed
    assert good.synced


def test_close_raises_and_closes_all():
    good, bad = Flaky([]), Flaky([])
    bad.write = lambda row: 1 / 0
    metrics = tools.MetricsWriter(bad, good)
    metrics.log(0, {"a": 1})
    with pytest.raises(ZeroDivisionError) as raised:
        metrics.close()
    assert raised.value.__notes__ == ["updates that were not written: 1"]
    assert good.closed
    assert bad.closed
    metrics.close()
    with pytest.raises(InputError, match="after close"):
        metrics.log(1, {})


def test_a_loop_that_fails_keeps_its_error():
    rows = []

    def sink(row):
        rows.append(row)
        raise OSError("disk full")

    def loop():
        with tools.MetricsWriter(sink) as metrics:
            metrics.log(0, {"a": 1})
            raise KeyError("the loop's own")

    with pytest.raises(KeyError) as raised:
        loop()
    assert "disk full" in raised.value.__notes__[0]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Folder of what processes have left that ended in three ways."""
    folder = tmp_path_factory.mktemp("ended")
    subprocess.run([sys.executable, Path(__file__).with_name("programs") / "metrics_at_the_end.py", folder], check=True)
    return folder


@pytest.mark.parametrize("ending", ["plain", "exit", "error"])
def test_nothing_is_lost_at_the_end_of_the_process(ended, ending):
    assert ("ZeroDivisionError" in (ended / f"{ending}.txt").read_text()) == (ending == "error")
    assert [row["step"] for row in lines(ended / f"{ending}.jsonl")] == list(range(20))


@given(st.lists(st.floats(width=64, allow_nan=False), min_size=1, max_size=5))
def test_json_keeps_every_bit(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("bits") / "m.jsonl"
    sink = tools.JsonLines(path)
    sink.write({"step": 0, "values": values})
    sink.close()
    assert lines(path)[0]["values"] == values


def test_json_lines_go_on_behind_a_cut_line(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 0}\n{"step": 1, "lo', encoding="utf-8")
    with pytest.raises(InputError, match="exists already; pass JsonLines"):
        tools.JsonLines(path)
    with tools.MetricsWriter(tools.JsonLines(path, append=True)) as metrics:
        metrics.log(1, {"loss": float("nan")})
    rows = lines(path)
    assert [row["step"] for row in rows] == [0, 1]
    assert math.isnan(rows[1]["loss"])


def test_parquet(tmp_path):
    import polars as pl

    path = tmp_path / "metrics.parquet"
    with tools.MetricsWriter(path) as metrics:
        for step, values in updates():
            metrics.log(step, values)
    table, expected = pl.read_parquet(path), plain_log(updates())
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.parquet"]
    for row, want in zip(table.to_dicts(), expected, strict=True):
        assert {name: value for name, value in row.items() if value is not None} == want
    assert table["done"].dtype == pl.Boolean
    assert table["torch.int64"].dtype == pl.Int64
    with pytest.raises(InputError, match="exists already; pass Parquet"):
        tools.MetricsWriter(path)
    sink = tools.Parquet(path, append=True)  # a process that dies before `close`
    sink.write({"step": 40, "new": 1.5, "rate": 2})
    sink._rows.close()
    with tools.MetricsWriter(tools.Parquet(path, append=True)) as metrics:
        metrics.log(41, {"done": True})
    table = pl.read_parquet(path)
    assert table["step"].to_list() == list(range(42))
    assert table["new"].to_list()[40:] == [1.5, None]


def test_what_cannot_be_logged():
    metrics = tools.MetricsWriter(lambda row: None)
    for name, value, message in (
        ("a", torch.ones(3), r"'a' is a tensor of shape \[3\]: expected one element"),
        ("a", "text", "'a' is a str: expected a number"),
        ("a", torch.ones((), dtype=torch.complex64), "'a' is complex"),
        ("step", 1, "'step': expected a name other than step"),
    ):
        with pytest.raises(InputError, match=message):
            metrics.log(0, {name: value})
    metrics.log(0, {"a": np.float32(0.5), "b": np.array([2])})
    metrics.close()
    for arguments, message in (
        ((), "needs a sink"),
        (("m.txt",), r"expected a path that ends in \.jsonl or \.parquet"),
        ((3,), "expected a path, a callable"),
    ):
        with pytest.raises(InputError, match=message):
            tools.MetricsWriter(*arguments)
    with pytest.raises(InputError, match="slots=0"):
        tools.MetricsWriter(print, slots=0)


@pytest.mark.cuda
def test_on_a_gpu(no_waits, tmp_path):
    """Values are those of their own update though the device is far behind, and no call waits."""
    path, count = tmp_path / "metrics.jsonl", 300
    big, total = torch.ones(1 << 22, device="cuda"), torch.zeros((), device="cuda")
    steps = torch.zeros((), dtype=torch.int64, device="cuda")
    with tools.MetricsWriter(path, slots=16) as metrics:
        metrics.log(-1, {"total": total, "steps": steps})
        metrics.flush()
        with no_waits():
            for step in range(count):
                big = big * 1.0
                total += 1
                steps += 1
                metrics.log(step, {"total": total, "steps": steps, "lr": 0.1})
    rows = lines(path)[1:]
    assert [(row["step"], row["total"], row["steps"]) for row in rows] == [(k, k + 1.0, k + 1) for k in range(count)]
