"""How steps are counted: on copies, with nothing left behind, and as a GPU would be asked."""

import contextlib
import gc
import warnings

import pytest
import torch
from tests.run.test_stats import ZOO, bits, same

import denizen as dz
from denizen.perf.watch import Profile, Span, is_copy
from denizen.run import _stats
from denizen.run._stats import Neighbours


def test_nothing_is_counted_unless_asked(monkeypatch):
    monkeypatch.setattr(_stats, "_count", None)
    run = dz.simulate(ZOO["sir"], 3)
    facts = run.stats()
    assert {key for key, value in facts.items() if value is None} == set(_stats.Counted.__dataclass_fields__)
    assert torch._C._len_torch_dispatch_stack() == 0
    assert torch.overrides._len_torch_function_stack() == 0
    assert dz.simulate(ZOO["sir"], 0).stats(count=True)["host_reads"] is None  # there is no step to count


@pytest.mark.parametrize("broken", ["profiled", "counting", "copy_rate"])
def test_no_mode_stays_after_an_exception(monkeypatch, broken):
    run = dz.simulate(ZOO["sir"], 3)
    before = bits(run)

    def fails(*args):
        raise ZeroDivisionError

    monkeypatch.setattr(_stats, broken, fails)
    with pytest.raises(ZeroDivisionError):
        run.stats(count=True)
    assert torch._C._len_torch_dispatch_stack() == 0
    assert torch.overrides._len_torch_function_stack() == 0
    assert same(before, bits(run))


def test_results_are_kept_until_the_run_goes_on(monkeypatch):
    counted = []
    monkeypatch.setattr(_stats, "_count", lambda run, count=_stats._count: counted.append(run.steps) or count(run))
    run = dz.simulate(ZOO["sir"], 3)
    first = run.stats(count=True)
    assert run.stats(count=True)["launches_per_step"] == run.stats()["launches_per_step"] == first["launches_per_step"]
    run.extend(2)
    assert run.stats()["counted_after"] == 3
    assert run.stats(count=True)["counted_after"] == 5
    assert counted == [3, 5]


def test_needed_bytes_of_a_graph_are_those_of_its_active_rows():
    graph = dz.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], 5)
    pointers = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx)
    func, seen = torch.ops.denizen.sum_counts.default, Neighbours()
    names = [argument.name for argument in func._schema.arguments]
    values = torch.tensor([[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]], dtype=torch.int8)
    read = seen(func, (values, None, *pointers))
    assert read[names.index("out_idx")] == 4 * 3  # both edges of 0, the one of 2
    assert read[names.index("in_idx")] == read[names.index("in_ptr")] == 0
    assert read[names.index("out_ptr")] == 2 * 2 * graph.out_ptr.element_size()
    listens = torch.tensor([[0, 1, 0, 0, 0]], dtype=torch.int8)
    read = seen(func, (values, listens, *pointers))
    assert read[names.index("in_idx")] == 4
    assert read[names.index("out_idx")] == 0
    assert [float(share) for share in seen.sending] == pytest.approx([0.2, 0.2])
    assert [float(share) for share in seen.at_risk] == pytest.approx([1.0, 0.2])


def test_no_copy_is_held():
    run = dz.simulate(ZOO["sir"], 3)
    run.stats(count=True)
    gc.collect()
    held = [x for x in gc.get_objects() if type(x) is _stats._Plain]
    assert held == []


def test_the_step_is_found_in_what_a_device_ran(monkeypatch):
    run = dz.simulate(ZOO["sir"], 3)

    @contextlib.contextmanager
    def profiled(device):
        names = ["load", "Memcpy DtoD", *["agents", "Memset", "push"] * 4, "store"]
        spans = [Span(10 * k, 10 * k + 5, name, k) for k, name in enumerate(names)]
        yield Profile([s for s in spans if not is_copy(s)], [s for s in spans if is_copy(s)])

    monkeypatch.setattr(_stats, "profiled", profiled)
    spans, count = _stats.step_spans(run)
    assert [span.name for span in spans] == ["agents", "Memset", "push"] * 4
    assert count == 4
    monkeypatch.setattr(type(run), "device", torch.device("cuda"))
    assert _stats._busy_share(run, (spans, count), seconds=20e-9) == pytest.approx(0.5)  # fills are no computing
    assert _stats._launches(run, None, (spans, count)) == 3


def test_a_chunk_on_cuda_is_told_from_a_step_by_substitution(monkeypatch):
    run = dz.simulate(ZOO["sir"], 3)
    asked = {"mode": 0, "blocks": 0, "segments": 0}

    def take(run, run_state, count):
        asked["blocks"] += 5 + 2 * count  # of the chunk, of each step
        asked["segments"] += 1
        if asked["mode"]:
            warnings.warn("called a synchronizing CUDA operation (Triggered internally at …)", stacklevel=1)
        torch.ones(2) + 1
        return run_state

    def set_mode(mode):
        asked["mode"] = {"warn": 1}.get(mode, mode)

    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: asked["mode"])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    facts = lambda device: {"allocation.all.allocated": asked["blocks"], "segment.all.allocated": asked["segments"]}
    monkeypatch.setattr(torch.cuda, "memory_stats", facts)
    monkeypatch.setattr(_stats, "_take", take)
    host = _stats._watched(run)
    assert (host.host_reads, host.allocations_per_step, host.device_mallocs) == (1, 2.0, 1)
    assert host.pool_reuse == pytest.approx(1 - 1 / (5 + 2 * 16))
    assert asked["mode"] == 0
    monkeypatch.setattr(_stats, "_take", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        _stats._watched(run)
    assert asked["mode"] == 0


def test_kernels_of_a_gpu_are_told_from_the_chunk_around_them(monkeypatch):
    run = dz.simulate(ZOO["sir"], 3)
    names = ["load", "load", *["agents", "push", "push"] * 2, "store"]
    spans = [Span(10 * k, 10 * k + 4 + (name == "push"), name) for k, name in enumerate(names)]
    monkeypatch.setattr(_stats, "step_spans", lambda run: (spans[2:8], 2))
    monkeypatch.setattr(type(run), "device", torch.device("cuda"))
    assert _stats.step_kernels(run) == [("agents", 1, 0.004), ("push", 2, 0.005)]


@pytest.mark.parametrize(("alone", "more", "step"), [(50.0, 210.0, 10.0), (50.0, 40.0, 40.0 / 17)])
def test_a_captured_step_is_timed_without_what_surrounds_a_chunk(alone, more, step, monkeypatch):
    """And over the counted steps alone, whose kernels are compared with it."""
    run, took = dz.simulate(ZOO["sir"], 3), {1: alone, 17: more}
    monkeypatch.setattr(run, "_path", "captured")
    monkeypatch.setitem(_stats.STEPS, "cpu", 16)
    monkeypatch.setattr(_stats, "_quickest", lambda run, count: took[count])
    assert _stats._seconds(run) == pytest.approx(step)
