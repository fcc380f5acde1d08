"""A graph's arrays are the same bits however they are made: sorted by value, sorted by place, on a device."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from denizen.errors import DataError
from denizen.space import Graph, _graph, from_arrays
from denizen.space._edges import csr


def by_place(source, target, n, weight=None):
    """(in_ptr, in_idx, out_ptr, out_idx, out_edge, weight) by stable sorts of places."""
    columns = [source, target, np.zeros(source.size, np.float32) if weight is None else weight]
    _, _, columns = csr(source, n, *columns)
    in_ptr, _, (source, target, weight) = csr(columns[1], n, *columns)
    out_ptr, order, (out_idx,) = csr(source, n, target)
    return in_ptr, source, out_ptr, out_idx, order, weight


def same(fields, other):
    for name, value in fields.items():
        if isinstance(value, torch.Tensor):
            assert value.dtype == other[name].dtype, name
            assert torch.equal(value.cpu(), other[name].cpu()), name
        else:
            assert value == other[name], name


def drawn(seed, n, edges, weighted):
    gen = np.random.default_rng(seed)
    source, target = gen.integers(0, n, (2, edges))  # with repeats and loops
    return source, target, gen.random(edges, dtype=np.float32) if weighted else None


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(0, 200), st.booleans(), st.booleans())
def test_the_same_arrays(seed, n, edges, weighted, directed):
    source, target, weight = drawn(seed, n, edges, weighted)
    host = vars(Graph.from_edges(source, target, n, weight=weight, directed=directed))
    keep = source != target
    ends = [array[keep].astype(np.int32) for array in (source, target)]
    weights = None if weight is None else weight[keep]
    if not directed:
        ends = [np.concatenate(ends), np.concatenate(ends[::-1])]
        weights = None if weights is None else np.concatenate([weights, weights])
    in_ptr, in_idx, out_ptr, out_idx, order, moved = by_place(*ends, n, weights)
    for name, array in {"in_ptr": in_ptr, "in_idx": in_idx, "out_ptr": out_ptr, "out_idx": out_idx}.items():
        assert np.array_equal(host[name], array), name
    if weighted:
        assert np.array_equal(host["out_edge"], order)
        assert np.array_equal(host["weight"], moved)
    given = [torch.from_numpy(source), torch.from_numpy(target).to(torch.int32)]
    device = _graph.on_device(*given, n, None if weight is None else torch.from_numpy(weight), directed, "drop", "keep")
    if edges:
        same(host, device)
    else:
        assert device is None  # the host's own case


def test_two_threads_sort_as_one(monkeypatch):
    monkeypatch.setattr(_graph, "SMALL", 10)
    edges = from_arrays(*drawn(1, 300, 5000, False)[:2], 300)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    one = _graph.on_host(edges)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    same(one, _graph.on_host(edges))


def test_more_agents_than_two_ends_fit_into_a_number(monkeypatch):
    edges = from_arrays(*drawn(2, 300, 5000, False)[:2], 300)
    sorted_by_value = _graph.on_host(edges)
    monkeypatch.setattr(_graph, "_bits", lambda n: 40)
    same(sorted_by_value, _graph.on_host(edges))


@pytest.mark.parametrize(
    "change",
    [
        {"source": torch.tensor([0, 3, 1])},
        {"target": torch.tensor([0, -1, 1])},
        {"target": torch.tensor([0, 1])},
        {"source": torch.tensor([0.0, 1.0, 2.0])},
        {"source": torch.tensor([[0, 1, 2]])},
        {"source": [0, 1, 2]},
        {"num_agents": None},
        {"num_agents": True},
        {"num_agents": 0},
        {"duplicates": "drop"},
        {"self_loops": "error"},
        {"self_loops": "hamlet"},
        {"weight": torch.tensor([1.0, -1.0, 1.0])},
        {"weight": torch.tensor([1.0, 1.0])},
        {"weight": torch.tensor([1.0, float("nan"), 1.0])},
        {"weight": torch.tensor([1, 1, 1])},
        {"directed": None},
    ],
)
def test_what_is_left_to_the_host(change):
    good = {
        "source": torch.tensor([0, 1, 2]),
        "target": torch.tensor([1, 2, 0]),
        "num_agents": 3,
        "weight": None,
        "directed": True,
        "self_loops": "drop",
        "duplicates": "keep",
    }
    assert _graph.on_device(**good) is not None
    assert _graph.on_device(**{**good, **change}) is None


def test_repeats_are_looked_for_where_somebody_asks():
    assert any("1 repeated contact kept" in line for line in from_arrays([0, 0], [1, 1], 2).report)
    with pytest.raises(DataError, match="repeated contact 0 → 1"):
        Graph.from_edges([0, 0], [1, 1], 2, duplicates="error")
    assert Graph.from_edges([0, 0], [1, 1], 2, duplicates="drop").num_edges == 1
    assert Graph.from_edges([0, 0], [1, 1], 2).num_edges == 2


@pytest.mark.cuda
@pytest.mark.parametrize("weighted", [False, True])
def test_made_where_the_tensors_are(weighted):
    source, target, weight = drawn(3, 5000, 40_000, weighted)
    host = Graph.from_edges(source, target, 5000, weight=weight)
    there = [None if array is None else torch.from_numpy(array).cuda() for array in (source, target, weight)]
    graph = Graph.from_edges(there[0], there[1], 5000, weight=there[2])
    assert graph.device.type == "cuda"
    same({field.name: getattr(host, field.name) for field in dataclasses.fields(host)}, vars(graph))
    dropped = Graph.from_edges(there[0], there[1], 5000, weight=there[2], duplicates="drop")
    assert dropped.device.type == "cuda"
    assert dropped.num_edges < graph.num_edges
    with pytest.raises(DataError, match="ids go from 0 to 99"):
        Graph.from_edges(there[0], there[1], 100)


def test_weights_in_bfloat16():
    weight = torch.tensor([0.5, 2.0], dtype=torch.bfloat16)
    graph = Graph.from_edges(torch.tensor([1, 0]), torch.tensor([0, 1]), 2, weight=weight)
    assert graph.weight.tolist() == [0.5, 2.0]
    assert graph.weight.dtype == torch.float32
