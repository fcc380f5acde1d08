"""Which operations cross between host and device, what they read, and the copy rate."""

import pytest
import torch

from denizen.perf.watch import _copy_rate as module
from denizen.perf.watch import _operations, copy_rate
from denizen.perf.watch._copy_rate import last_level_cache

CPU = torch.device("cpu")


class Fake(torch.Tensor):
    """Says that it is on CUDA."""

    @staticmethod
    def __new__(cls, *shape, dtype=torch.float32):
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device="cuda:0")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("looked at only")


COPY = torch.ops.aten.copy_.default
TO = torch.ops.aten._to_copy.default
ITEM = torch.ops.aten._local_scalar_dense.default
INDEX = torch.ops.aten.index.Tensor
LIFT, WHERE = torch.ops.aten.lift_fresh.default, torch.ops.aten.where.self
PUT = torch.ops.aten.index_put_.default


@pytest.mark.parametrize(
    ("func", "args", "out", "expected"),
    [
        (COPY, (Fake(5), torch.ones(5)), Fake(5), (False, 20, False)),
        (COPY, (torch.ones(5), Fake(5)), torch.ones(5), (True, 20, True)),
        (TO, (torch.ones(3, 2),), Fake(3, 2, dtype=torch.int8), (False, 6, False)),
        (TO, (torch.ones(()),), Fake(), (False, 4, False)),
        (TO, (torch.ones(0),), Fake(0), None),
        (TO, (Fake(0),), torch.ones(0), None),
        (LIFT, (Fake(),), Fake(), (False, 4, False)),
        (LIFT, (torch.ones(()),), torch.ones(()), None),
        (WHERE, (Fake(3, dtype=torch.bool), torch.ones(()), Fake(3)), Fake(3), (False, 4, False)),
        (WHERE, (torch.ones(3) > 0, torch.ones(()), torch.ones(3)), torch.ones(3), None),
        (PUT, (Fake(9), [Fake(3, dtype=torch.int64)], torch.ones(())), Fake(9), (False, 4, False)),
        (PUT, (Fake(9), [Fake(9, dtype=torch.bool)], torch.ones(())), Fake(9), None),  # a fill
        (TO, (Fake(4),), Fake(4), None),
        (ITEM, (Fake(),), 1.0, (True, 4, True)),
        (ITEM, (torch.ones(()),), 1.0, None),
        (INDEX, (Fake(9), [torch.arange(3)]), Fake(3), (False, 24, False)),
        (INDEX, (Fake(9), [Fake(3, dtype=torch.int64)]), Fake(3), None),
        (INDEX, (Fake(9, 9), [None, torch.tensor(2)]), Fake(9), None),
    ],
)
def test_what_crosses(func, args, out, expected):
    crossed = _operations.crossings(func, args, {}, out, "cuda")
    assert [(one.to_host, one.bytes, one.waits) for one in crossed] == ([] if expected is None else [expected])


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("pinned", [False, True])
def test_only_a_late_copy_to_pinned_memory_waits_for_nothing(late, pinned, monkeypatch):
    monkeypatch.setattr(_operations, "is_pinned", lambda tensor: pinned)
    host = torch.ones(5)
    for args, kwargs in (((host, Fake(5)), {"non_blocking": late}), ((host, Fake(5), late), {})):
        (copy,) = _operations.crossings(COPY, args, kwargs, host, "cuda")
        assert copy.waits == (not (late and pinned))
    (copy,) = _operations.crossings(TO, (Fake(5),), {"non_blocking": late}, host, "cuda")
    assert copy.waits == (not (late and pinned))
    (copy,) = _operations.crossings(COPY, (Fake(5), host), {"non_blocking": late}, Fake(5), "cuda")
    assert not copy.waits


def test_memory_is_pinned_where_torch_says_so(monkeypatch):
    pinned, asked = torch.ones(3), []
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: asked.append(tensor) or tensor is pinned)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert not _operations.is_pinned(pinned)
    assert not asked
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert _operations.is_pinned(pinned)
    assert not _operations.is_pinned(torch.ones(3))
    assert len(asked) == 2
    assert not _operations.is_pinned(Fake(3))
    assert not _operations.is_pinned(torch.ones(3).to_sparse())
    assert len(asked) == 2  # neither is memory of the host that could be pinned


def test_reads_of_host_tensors_are_none():
    on_cuda = lambda tensor: tensor.device.type == "cuda"
    assert not _operations.reads_host(ITEM, (torch.ones(()),), {}, on_cuda)
    assert _operations.reads_host(ITEM, (Fake(),), {}, on_cuda)


def test_the_copy_rate_is_measured_once(monkeypatch):
    module._measured.cache_clear()
    monkeypatch.setattr(module, "last_level_cache", lambda device: 1 << 20)
    rate = copy_rate(CPU)
    assert 1e8 < rate < 1e13
    assert copy_rate(CPU) is rate
    module._measured.cache_clear()  # that was from a cache


def test_the_cache_is_known():
    assert 1 << 15 <= last_level_cache(CPU) <= 1 << 32
