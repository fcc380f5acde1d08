"""What the counting context sees, and what it must not cry about."""

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from denizen.perf.watch import counting, distinct_bytes, graphs_compiled, profiled

CPU = torch.device("cpu")


def reads(function) -> int:
    x, mask = torch.arange(12.0), torch.arange(12) % 3 == 0
    with counting(CPU) as counts:
        function(x, mask)
    return counts.host_reads.total()


@pytest.mark.parametrize(
    "function",
    [
        lambda x, m: x.sum().item(),
        lambda x, m: float(x[0]),
        lambda x, m: bool(m.any()),
        lambda x, m: x.tolist(),
        lambda x, m: x.numpy(),
        lambda x, m: m.nonzero(),
        lambda x, m: torch.where(m),
        lambda x, m: x[m],
        lambda x, m: x.masked_select(m),
        lambda x, m: torch.unique(x),
        lambda x, m: torch.unique_consecutive(x),
        lambda x, m: torch.bincount(x.long()),
        lambda x, m: torch.equal(x, x),
        lambda x, m: x.repeat_interleave(m.long()),
        lambda x, m: x.index_put_((m,), torch.ones(4)),
        lambda x, m: x.index_put_((m,), torch.ones(()), accumulate=True),
        lambda x, m: f"{x[0]:.3f}",
    ],
)
def test_a_read_is_counted_once_at_least(function):
    assert reads(function) >= 1


def _masked_fill(x, mask):
    x[mask] = 0.0


@pytest.mark.parametrize(
    "function",
    [
        lambda x, m: torch.where(m, x, 0.0),
        _masked_fill,
        lambda x, m: x[m.long()],
        lambda x, m: x.repeat_interleave(m.long(), output_size=4),
        lambda x, m: (x * m).sum() / m.sum(),
        lambda x, m: x.index_select(0, m.long()),
        lambda x, m: torch.zeros(4).scatter_add_(0, m.long(), x),
        lambda x, m: torch.vmap(lambda a: a.cumsum(0))(x.view(3, 4)),
        lambda x, m: torch.sort(x),
        lambda x, m: x.cpu().to(torch.float64),
    ],
)
def test_what_reads_nothing_is_quiet(function):
    assert reads(function) == 0


def test_operations_allocations_and_bytes():
    x, y = torch.ones(1000), torch.ones(1000)
    with counting(CPU) as counts:
        z = x * y  # reads 8,000, writes 4,000
        z.add_(1)  # reads and writes 4,000
        z.view(10, 100).t()
        torch.empty(5)
        y[::2].expand(3, 500).sum()  # reads 2,000, writes 4
    assert counts.ops == ["aten::mul.Tensor", "aten::add_.Tensor", "aten::sum"]
    assert counts.allocations == 3
    assert counts.allocated_bytes == 4000 + 20 + 4
    assert counts.moved == {"aten::mul.Tensor": 12_000, "aten::add_.Tensor": 8_000, "aten::sum": 2_004}
    assert sorted(counts.inputs.values()) == [4000, 4000]
    assert (counts.to_device.count, counts.to_host.count) == (0, 0)


def test_a_gather_reads_what_it_gives_and_a_weight_corrects():
    table, index = torch.ones(1000), torch.arange(10)
    with counting(CPU) as counts:
        table[index]
    assert sorted(counts.inputs.values()) == [40, 80]
    with counting(CPU, lambda func, args: {0: 12}) as counts:
        table + 1
    assert list(counts.inputs.values()) == [12]
    assert counts.moved.total() == 4012


@given(st.lists(st.integers(0, 4), max_size=4), st.lists(st.integers(0, 3), max_size=4))
def test_distinct_bytes_are_those_of_distinct_places(shape, axes):
    tensor = torch.zeros(shape)
    tensor = tensor.expand(3, *shape) if axes else tensor
    tensor = tensor.movedim(0, -1) if tensor.dim() else tensor
    places = set(_places(tensor))
    assert distinct_bytes(tensor) == 4 * len(places)


def _places(tensor):
    if 0 in tensor.shape:
        return
    for index in (
        torch.cartesian_prod(*map(torch.arange, tensor.shape)).view(-1, tensor.dim()).tolist() if tensor.dim() else [[]]
    ):
        yield sum(i * s for i, s in zip(index, tensor.stride(), strict=True))


def test_custom_operations_and_sparse_tensors_pass():
    with counting(CPU) as counts:
        torch.eye(3).to_sparse().to_dense()
    assert counts.ops


@pytest.mark.compile
def test_operations_that_take_functions_pass():
    def step(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    with counting(CPU) as counts, profiled(CPU) as profile:
        assert torch.equal(step(torch.ones(3)), 2 * torch.ones(3))
    assert "higher_order::cond" in counts.ops
    assert "higher_order::cond" in [span.name for span in profile.kernels]


@pytest.mark.parametrize("fail", [False, True])
def test_nothing_stays_behind(fail):
    with pytest.raises(ZeroDivisionError) if fail else counting(CPU), counting(CPU), profiled(CPU):
        assert torch._C._len_torch_dispatch_stack() >= 2
        assert torch.overrides._len_torch_function_stack() >= 1
        torch.ones(2) + 1 / (0 if fail else 1)
    assert torch._C._len_torch_dispatch_stack() == 0
    assert torch.overrides._len_torch_function_stack() == 0


def test_only_this_thread_is_counted():
    import threading

    with counting(CPU) as counts:
        thread = threading.Thread(target=lambda: torch.ones(3).sum().item())
        thread.start()
        thread.join()
    assert counts.ops == []


# --- across devices, without one --------------------------------------------------------------------------------


# --- profile, graphs, copies --------------------------------------------------------------------------------


def test_on_the_cpu_operations_take_the_place_of_kernels():
    x = torch.ones(8)
    with profiled(CPU) as profile:
        (x * 2 + 1).view(2, 4)
    assert [span.name for span in profile.kernels] == ["aten::mul.Tensor", "aten::add.Tensor", "aten::view"]
    assert all(a.end <= b.start for a, b in zip(profile.kernels, profile.kernels[1:], strict=False))
    assert profile.copies == []


def test_dynamo_is_not_imported_to_count(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    assert graphs_compiled() == 0
    assert "torch._dynamo.utils" not in sys.modules


def test_graphs_are_counted():
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    before = graphs_compiled()
    compiled(torch.ones(2))
    compiled(torch.ones(2))
    assert graphs_compiled() - before == 1
    compiled(torch.ones(3))
    assert graphs_compiled() - before == 2
