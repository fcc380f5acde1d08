"""Budgets on CUDA: with stand-ins for torch's warnings on the CPU, and on a GPU where there is one."""

import ast
import math
import runpy
import sys
import threading
import warnings
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import denizen as dz
from denizen.errors import BudgetError
from denizen.perf._budget import budget as _budget
from denizen.perf.simulated import _streams
from denizen.perf.watch import _on_cuda, _places, _sync
from denizen.perf.watch._faults import kind_of_read
from denizen.perf.watch._on_cuda import logging_cuda
from denizen.perf.watch._places import Place

LETTERS = "abcdefgh"
WAITS = "called a synchronizing CUDA operation (Triggered internally at c10/cuda/CUDAFunctions.cpp:148.)"


@torch.library.custom_op("denizen_tests::waits", mutates_args=())
def waits(value: torch.Tensor) -> torch.Tensor:
    """An operation that no rule knows, and of which torch warns."""
    warnings.warn(WAITS, stacklevel=1)
    return value.clone()


class Cuda:
    """What torch.cuda is asked for, and the mode that it was set to."""

    def __init__(self):
        self.mode, self.modes = 0, []

    def set_sync_debug_mode(self, mode):
        assert not isinstance(mode, bool)
        self.modes.append(mode)
        self.mode = {"default": 0, "warn": 1, "error": 2}.get(mode, mode)


@pytest.fixture
def cuda(monkeypatch):
    """Tensors of the CPU stand for tensors of a GPU."""
    cuda, here = Cuda(), torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: cuda.mode)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", cuda.set_sync_debug_mode)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda *_: {"allocation.all.allocated": 5})
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda *_: 70)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda *_: None)
    monkeypatch.setattr(_budget, "_where", lambda device: torch.device("cuda", 0))
    monkeypatch.setattr(_budget, "logging_cuda", lambda device, event_log: logging_cuda(here, event_log))
    return cuda


@pytest.fixture
def x():
    return torch.arange(4.0)


def kinds(guard):
    return [finding.kind for finding in guard.report.findings]


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (lambda x: x.sum().item(), "host-sync-item"),
        (lambda x: float(x.sum()), "host-sync-float"),
        (lambda x: int(x.sum()), "host-sync-float"),
        (lambda x: 1 if x.sum() else 2, "host-sync-bool"),
        (lambda x: not x.sum(), "host-sync-bool"),
        (lambda x: f"{x.sum()}", "host-sync-print"),
        (lambda x: x.nonzero(), "host-sync-nonzero"),
        (lambda x: x.masked_select(x > 1), "host-sync-nonzero"),
        (lambda x: torch.equal(x, x), "host-sync-bool"),
        (lambda x: x.nanmedian(), "host-sync-item"),
        (lambda x: math.sqrt(x.sum()), "host-sync-float"),
        (lambda x: LETTERS[x.argmax()], "host-sync-float"),
        (lambda x: "%.3f" % x.sum(), "host-sync-float"),  # noqa: UP031
        (lambda x: torch.tensor([1.0, 2.0]), "h2d-fresh"),
    ],
)
def test_operations_are_told_by_the_text_of_their_line(cuda, x, act, kind):
    guard = dz.budget(host_reads=None, transfers=None)
    with guard:
        act(x)
    assert kinds(guard) == [kind]
    assert guard.report.findings[0].file == __file__


def test_what_torch_warns_of_is_told_where_no_rule_knows_it(cuda, x):
    guard = dz.budget()
    with pytest.raises(BudgetError) as caught, guard:
        torch.ops.denizen_tests.waits(x)  # the line
    (finding,) = caught.value.report.findings
    assert finding.op == "denizen_tests::waits"
    assert finding.code.endswith("# the line")
    assert guard.report.measured["host_reads"] == 1


def test_a_warning_outside_of_operations_is_told_too(cuda):
    guard = dz.budget(host_reads=None)
    with guard:
        warnings.warn(WAITS, stacklevel=1)  # as compiled code does
    assert [finding.op for finding in guard.report.findings] == ["CUDA synchronisation"]


def test_a_rule_and_a_warning_of_one_wait_count_once(cuda, x, monkeypatch):
    guard = dz.budget(host_reads=None)
    original = torch.ops.aten._local_scalar_dense.default.__class__.__call__

    def warned(self, *args, **kwargs):
        if self is torch.ops.aten._local_scalar_dense.default:
            warnings.warn(WAITS, stacklevel=1)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch._ops.OpOverload, "__call__", warned)
    with guard:
        x.sum().item()
    assert guard.report.measured["host_reads"] == 1


def test_a_warning_that_torch_keeps_until_its_function_returns_counts_no_second_time(cuda, x):
    def late():
        return x.nonzero(), warnings.warn(WAITS, stacklevel=1)  # one line

    guard = dz.budget(host_reads=None)
    with guard:
        for _ in guard.steps(3):
            late()
            warnings.warn(WAITS, stacklevel=1)  # a wait of its own
    assert sorted(finding.kind for finding in guard.report.findings) == ["host-sync-item", "host-sync-nonzero"]
    assert guard.report.measured["host_reads"] == 2


@pytest.mark.parametrize(
    ("act", "counted"),
    [
        (lambda x: (torch.tensor([2.0]), warnings.warn(WAITS, stacklevel=1)), {"host_reads": 0, "transfers": 1}),
        (lambda x: (torch.tensor(2.0), warnings.warn(WAITS, stacklevel=1)), {"host_reads": 0, "transfers": 1}),
        (lambda x: (x.add(1), torch.tensor([])), {"host_reads": 0, "transfers": 0}),
    ],
)
def test_what_torch_brings_over_by_itself(cuda, x, act, counted):
    """What is made of numbers of the host shows as a result only; its wait is told late and counts no second time."""
    guard = dz.budget(host_reads=None, transfers=None)
    with guard:
        act(x)
    assert {name: guard.report.measured[name] for name in counted} == counted


def test_lists_as_index_and_numbers_to_write(cuda, x):
    """Torch warns of them when it returns, at the instruction; a stand-in for that has no frame of the user's."""
    names = {"warnings": warnings, "WAITS": WAITS}
    source = "def late(self):\n    warnings.warn(WAITS, stacklevel=1)\n    return 0\n"
    exec(compile(source, _streams.__file__, "exec"), names)
    late = type("Index", (), {"__index__": names["late"]})()
    row, number = torch.tensor(1), torch.tensor(1.0)  # of one dimension the index would count as one of the host
    guard = dz.budget(host_reads=0, transfers=2)
    with guard:
        x[late]
        torch.ops.aten.index_put_(x, [row], number), x[late]
    found = [(one.kind, one.counted) for one in guard.report.findings]
    assert sorted(found) == [("h2d-fresh", True), ("h2d-index", True)]


def test_what_an_expression_says_of_a_subscript():
    """Texts of a list by a number of the device are a read, wherever the list is kept; a tensor's rows a copy."""
    model = torch.nn.Linear(2, 2)
    model.names, model.table = ["a", "b"], torch.ones(2)
    frame = sys._getframe()
    said = ["model.names[0]", "model.table[0]", "model.weight[0]", "model.forward(1)[0]", "names[0]", "x.math.sqrt(2)"]
    found = [_places._meant(ast.parse(text, mode="eval").body, frame) for text in said]
    assert found == ["__index__", "__getitem__", "__getitem__", "__getitem__", "__index__", "sqrt"]


def test_whatever_printing_reads_is_printing():
    """Torch prints with all modes switched off: its warnings come one by one, from lines of its own."""
    place = Place("mine.py", 1, "step", (("lib/torch/_tensor_str.py", 7, "_str"),), "item")
    assert {kind_of_read(op, place, False) for op in ("", "aten::masked_select")} == {"host-sync-print"}


def test_weights_stay_weights_when_detached(cuda, x):
    net = torch.nn.Linear(2, 2)
    with dz.budget():
        x.add(1)
        found = [getattr(value, "_of_parameter", False) for value in net.state_dict().values()]
    assert found == [True, True]


def test_the_mode_comes_back_also_after_an_error_and_nested(cuda, x):
    cuda.mode = 2
    with pytest.raises(KeyError), dz.budget():  # noqa: PT012
        assert cuda.mode == 1
        with dz.budget():
            x.add(1)
        assert cuda.mode == 1
        raise KeyError
    assert cuda.mode == 2
    assert _sync._open == []


def test_other_warnings_and_other_threads_pass(cuda, x):
    heard = []
    guard = dz.budget(host_reads=0)
    started, told = threading.Event(), threading.Event()

    def foreign():
        started.wait(10)
        warnings.warn(WAITS, stacklevel=1)
        told.set()

    thread = threading.Thread(target=foreign)
    thread.start()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_, **__: heard.append(str(message))
        with guard:
            warnings.warn("mine", stacklevel=1)
            x.add(1)
            started.set()
            told.wait(10)
    thread.join()
    assert heard == ["mine"]
    assert guard.report.ok


def test_memory_comes_from_the_allocator(cuda, x):
    guard = dz.budget(peak_bytes=100, new_allocations=0)
    with guard:
        x.add(1)
    assert guard.report.measured["peak_bytes"] == 70
    assert guard.report.measured["ops"] == 1
    assert "torch.distributed" in guard.report.unseen


@pytest.mark.parametrize("done", [True, False])
def test_waiting_for_an_event_counts_where_it_was_not_complete(monkeypatch, done):
    class Event:
        def query(self):
            return done

        def synchronize(self):
            return "waited"

    monkeypatch.setattr(torch.cuda, "Event", Event)
    guard = dz.budget(host_reads=None, device="simulated")
    monkeypatch.setattr(_budget, "streams_watched", __import__("contextlib").nullcontext())
    early = Event()
    with guard, _on_cuda.cuda_events_logged():
        torch.ones(2, device=guard.device)
        assert early.synchronize() == "waited"
    assert bool(guard.report.measured["host_reads"]) is not done


def test_a_region_in_which_nothing_ran_warns(cuda, x):
    """Compiled code and graphs that are replayed pass unseen, so it may have worked there all the same."""
    with pytest.warns(UserWarning, match="saw nothing") as told, dz.budget():
        len(x)
    assert told[0].filename == __file__


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_same_programs_are_judged_alike_on_a_gpu(capsys, monkeypatch):
    """Every program of the tests, with torch's own warnings and real pinned memory; tells all that differ."""
    monkeypatch.setattr("torch.distributions.Distribution._validate_args", True)  # torch.compile switches it off
    faults = runpy.run_path(str(Path(__file__).with_name("test_budget_faults.py")))
    differ = []
    # three numbers are added before anybody asks for the event
    left_out = {"faulty_waiting_for_an_event_at_once", "mended_waiting_for_an_event_at_once"}
    programs = {name: one for name, one in faults["PROGRAMS"].items() if name not in left_out}
    assert len(programs) == len(faults["PROGRAMS"]) - 2
    for name, program in programs.items():
        report = faults["run"](program, device="cuda")
        expected, found = faults["blamed"](program), defaultdict(set)
        for finding in report.findings:
            if finding.counted:
                found[finding.line].add(finding.kind)
        if set(found) != set(expected) or any(found[line] - kinds for line, kinds in expected.items()):
            differ.append(f"{name}: expected {expected}, found {dict(found)}")
    if differ:
        pytest.fail("\n".join(differ), pytrace=False)
