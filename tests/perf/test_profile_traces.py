"""Traces that others wrote, and files that are none."""

import gzip
import json

import pytest
import torch

from denizen.errors import DataError
from denizen.perf import ProfileReport, read_trace

from .traces import MAIN, OTHER, Tape, on_device
from .traces import training_step as make


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
