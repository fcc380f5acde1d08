"""How a bench times: intervals, rounds, phases by events, products in TF32."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from denizen import perf
from denizen.perf._bench import measure as _bench_measure

from .test_compiled_optimizers import CPU, make
from .test_compiled_optimizers import fresh as fresh


def test_ratios_have_an_interval_around_their_median():
    assert _bench_measure.interval([2.0] * 9, [1.0] * 9) == (0.5, 0.5, 0.5)
    value, low, high = _bench_measure.interval([1.0] * 9, [1.0, 1.1, 0.9] * 3)
    assert low <= value == 1.0 <= high


def test_on_cuda_phases_are_timed_by_events_without_waiting_in_between(monkeypatch):
    calls = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self, stream):
            calls.append("event")

        def elapsed_time(self, other):
            return 1.5

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: calls.append("wait"))
    x = torch.ones(3, requires_grad=True)
    times = _bench_measure.phases_of(lambda: x.sum().backward(), perf.Variant(), torch.device("cuda"), 3)
    assert (calls[0], calls[-1], calls.count("wait")) == ("wait", "wait", 2)
    assert times["backward"] == [1.5] * 3
    calls.clear()
    _bench_measure.round_of(lambda: calls.append("step"), perf.Variant(), torch.device("cuda"), 3)
    assert calls == ["step", "wait", "step", "step", "step", "wait"]


def test_fp32_products_that_use_tf32_are_told_apart(monkeypatch):
    monkeypatch.setattr(torch.backends, "cuda", SimpleNamespace(matmul=SimpleNamespace(allow_tf32=True)))
    products = _bench_measure._Products(torch.device("cuda"))
    with products:
        torch.ones(2, 2) @ torch.ones(2, 2)
    assert dict(products.seen) == {"tf32": 1}


@pytest.mark.compile
def test_phases_of_a_compiled_optimizer_are_timed_as_it_is():
    step = make(CPU)
    for _ in range(2):
        step()
    before = [*torch._dynamo.utils.compilation_time_metrics.get("_compile.compile_inner", [])]
    times = _bench_measure.phases_of(step, perf.Variant.of("eager"), CPU, 2, compiled=True)
    assert "optimizer" not in times
    assert {"forward", "backward"} <= times.keys()
    assert torch._dynamo.utils.compilation_time_metrics.get("_compile.compile_inner", []) == before
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    assert "optimizer" in _bench_measure.phases_of(
        lambda: (net(torch.ones(1, 2)).sum().backward(), optimizer.step()), perf.Variant.of("eager"), CPU, 2
    )
