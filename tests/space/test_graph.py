"""Graph: sums, means, largest values and any over neighbours against dense formulas; order, numbering and sources."""

import contextlib
import math
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from torch import Tensor

from denizen import ops
from denizen.errors import InputError, ModelError
from denizen.space import EdgeList, Graph, Layers

NAN, INF = float("nan"), float("inf")


@st.composite
def networks(draw: st.DrawFn, weighted: bool | None = None) -> dict[str, Any]:
    """Edge arrays of small networks with self-loops, repeated edges and agents without contacts."""
    agents = draw(st.integers(1, 9))
    ends = st.lists(st.tuples(st.integers(0, agents - 1), st.integers(0, agents - 1)), max_size=30)
    edges = np.array(draw(ends), np.int64).reshape(-1, 2)
    weights = None
    if weighted or (weighted is None and draw(st.booleans())):
        size = edges.shape[0]
        # Whole multiples of 2^-12: what is below 2^-40 of the largest weight counts as 0 by design.
        whole = draw(st.lists(st.integers(0, 2**15), min_size=size, max_size=size))
        weights = np.array(whole, np.float32) / np.float32(2**12)
    seed = draw(st.integers(0, 2**16))
    return {"agents": agents, "source": edges[:, 0], "target": edges[:, 1], "weight": weights, "seed": seed}


def build(network: dict[str, Any], order: np.ndarray | None = None, **options: Any) -> Graph:
    rows = slice(None) if order is None else order
    weight = network["weight"]
    return Graph.from_edges(
        network["source"][rows],
        network["target"][rows],
        network["agents"],
        weight=None if weight is None else weight[rows],
        self_loops="keep",
        **options,
    )


def dense(network: dict[str, Any]) -> np.ndarray:
    """Matrix float64 [receiver, sender]."""
    matrix = np.zeros((network["agents"],) * 2)
    ones = np.ones(network["source"].size)
    np.add.at(matrix, (network["target"], network["source"]), ones if network["weight"] is None else network["weight"])
    return matrix


def numbers(network: dict[str, Any]) -> np.random.Generator:
    return np.random.default_rng(network["seed"])


VALUES = {
    "mask": lambda gen, n: torch.from_numpy(gen.integers(0, 2, n)).to(torch.int8),
    "bool": lambda gen, n: torch.from_numpy(gen.integers(0, 2, n)).to(torch.bool),
    "count": lambda gen, n: torch.from_numpy(gen.integers(0, 10**6, n)).to(torch.int32),
    "long": lambda gen, n: torch.from_numpy(gen.integers(-(2**40), 2**40, n)),
    "real": lambda gen, n: torch.from_numpy(gen.normal(size=n)).to(torch.float32),
    "half": lambda gen, n: torch.from_numpy(gen.integers(0, 9, n)).to(torch.bfloat16),
}


# --- against dense formulas -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("masked", [False, True])
@settings(max_examples=40)
@given(network=networks())
def test_sum_and_mean(kind: str, masked: bool, network: dict[str, Any]) -> None:
    graph, gen, matrix = build(network), numbers(network), dense(network)
    values = VALUES[kind](gen, network["agents"])
    where = torch.from_numpy(gen.integers(0, 2, network["agents"])).to(torch.int8) if masked else None
    listens = np.ones(network["agents"]) if where is None else where.numpy()
    exact = matrix @ values.to(torch.float64).numpy() * listens
    size = matrix @ np.abs(values.to(torch.float64).numpy())
    total = graph.sum(values, where=where)
    if network["weight"] is None and not values.dtype.is_floating_point:
        assert total.dtype == (torch.int32 if kind in ("mask", "bool") else torch.int64)
        assert total.tolist() == exact.tolist()
    else:
        assert total.dtype == torch.float32
        assert (np.abs(total.double().numpy() - exact) <= 1e-5 * size + 30 * 2.0**-40 * matrix.max(initial=0)).all()
    bounded = graph.sum(values.to(torch.float32), where=where, max=2.0**45)
    assert (np.abs(bounded.double().numpy() - exact) <= 2.0**-22 * size + 64 * 2.0**5).all()
    share = matrix.sum(axis=1)
    mean = graph.mean(values, where=where)
    np.testing.assert_allclose(mean.double().numpy(), exact / np.where(share > 0, share, np.inf), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("kind", ["mask", "count", "long", "real"])
@pytest.mark.parametrize("masked", [False, True])
@settings(max_examples=40)
@given(network=networks())
def test_max_and_any(kind: str, masked: bool, network: dict[str, Any]) -> None:
    graph, gen, n = build(network), numbers(network), network["agents"]
    values = VALUES[kind](gen, n)
    where = torch.from_numpy(gen.integers(0, 2, n)).to(torch.int8) if masked else None
    largest, some = graph.max(values, where=where, empty=-7), graph.any(values, where=where)
    assert largest.dtype == values.dtype
    assert some.dtype == torch.int8
    for agent in range(n):
        heard = values[torch.from_numpy(network["source"][network["target"] == agent])]
        listens = where is None or bool(where[agent])
        assert largest[agent] == (heard.max() if listens and heard.numel() else -7)
        assert some[agent] == int(listens and bool((heard != 0).any()))


@settings(max_examples=40)
@given(network=networks(weighted=False))
def test_any_and_max_of_booleans_and_nan(network: dict[str, Any]) -> None:
    graph, gen = build(network), numbers(network)
    flags = VALUES["bool"](gen, network["agents"])
    assert torch.equal(graph.any(flags).bool(), graph.sum(flags) > 0)
    assert torch.equal(graph.max(flags), graph.any(flags).bool())
    values = VALUES["real"](gen, network["agents"])
    values[0] = NAN
    hears_nan = graph.any(torch.arange(network["agents"]) == 0)
    assert torch.equal(graph.max(values).isnan(), hears_nan.bool())


@settings(max_examples=40)
@given(network=networks(weighted=True))
def test_gradients_of_mean_with_weights(network: dict[str, Any]) -> None:
    graph, gen, n = build(network), numbers(network), network["agents"]
    values, cotangent = VALUES["real"](gen, n).requires_grad_(), VALUES["real"](gen, n)
    weight = (graph.weight + 0.5).requires_grad_()
    (graph.with_weight(weight).mean(values) * cotangent).sum().backward()
    source, target = graph.edges()
    v, w = values.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    matrix = torch.zeros(n, n, dtype=torch.float64).index_put((target, source), w, accumulate=True)
    share = matrix.sum(dim=1)
    ((matrix @ v / torch.where(share > 0, share, 1.0)) * cotangent).sum().backward()
    torch.testing.assert_close(values.grad.double(), v.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(weight.grad.double(), w.grad, rtol=1e-4, atol=1e-5)


# --- exact and free of order ------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(network=networks())
def test_the_order_of_edges_changes_no_bit(network: dict[str, Any]) -> None:
    gen, n = numbers(network), network["agents"]
    graph, shuffled = build(network), build(network, gen.permutation(network["source"].size))
    for kind in VALUES:
        values = VALUES[kind](gen, n)
        assert torch.equal(graph.sum(values, max=2.0**44), shuffled.sum(values, max=2.0**44))
        if network["weight"] is None:
            assert torch.equal(graph.sum(values), shuffled.sum(values))
            assert torch.equal(graph.mean(values), shuffled.mean(values))


@settings(max_examples=40)
@given(network=networks())
def test_renumbered_agents_hear_the_same_bits(network: dict[str, Any]) -> None:
    gen, n = numbers(network), network["agents"]
    order = torch.from_numpy(gen.permutation(n))
    graph = build(network)
    moved = graph.renumber(order)
    assert moved.num_edges == graph.num_edges
    assert torch.equal(moved.in_degree, graph.in_degree[order])
    assert torch.equal(moved.out_degree, graph.out_degree[order])
    for kind in ("mask", "count", "real"):
        values, where = VALUES[kind](gen, n), VALUES["mask"](gen, n)
        there = moved.sum(values[order], where=where[order], max=2.0**24)
        assert torch.equal(there, graph.sum(values, where=where, max=2.0**24)[order])
        assert torch.equal(moved.max(values[order]), graph.max(values)[order])


@pytest.mark.parametrize("magnitude", [1e-20, 1e-9, 1.0, 1e9, 1e30, 3e38])
def test_precision_at_any_bound(magnitude: float) -> None:
    """Exact to 2^-40 of the bound an edge, over the whole range of float32."""
    gen = np.random.default_rng(0)
    source, target = gen.integers(0, 50, 400), gen.integers(0, 50, 400)
    graph = Graph.from_edges(source, target, 50, self_loops="keep")
    values = torch.from_numpy(gen.uniform(-1, 1, 50)).to(torch.float32) * np.float32(magnitude) / 50
    out = graph.sum(values, max=magnitude)
    exact = np.zeros(50)
    np.add.at(exact, target, values.double().numpy()[source])
    assert np.isfinite(out.numpy()).all()
    np.testing.assert_allclose(out.double().numpy(), exact, rtol=2.0**-23, atol=50 * 2.0**-40 * magnitude)
    with ops.reference_only():
        assert torch.equal(graph.sum(values, max=magnitude), out)


def test_a_hub_does_not_overflow() -> None:
    """All agents, each at the bound, act on one."""
    n = 70_000
    graph = Graph.from_edges(np.arange(1, n), np.zeros(n - 1, np.int64), n)
    for bound in (1.0, 2.0**100, 0.75):
        assert graph.sum(torch.full((n,), bound), max=bound)[0] == pytest.approx(bound * (n - 1), rel=1e-7)
    assert graph.sum(torch.ones(n, dtype=torch.int8))[0] == n - 1
    assert graph.sum(torch.full((n,), 2**31 - 1, dtype=torch.int32))[0] == (2**31 - 1) * (n - 1)


@pytest.mark.parametrize("wrong", [2.1, -2.1, INF, -INF, NAN])
@pytest.mark.parametrize("masked", [False, True])
def test_a_value_beyond_the_bound_makes_everything_nan(wrong: float, masked: bool) -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 0], 4)
    values, where = torch.tensor([1.0, wrong, 2.0, 0.0]), torch.tensor([1, 1, 0, 1]) if masked else None
    assert graph.sum(values, max=2.0, where=where).isnan().all()
    alone = torch.tensor([1.0, 1.0, 2.0, wrong])  # agent 3 has no contacts
    assert graph.sum(alone, max=2.0).tolist() == [2.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("bound", [0.0, -1.0, NAN, INF, 1e39, 1e300, 1e-45, 1e-300])
def test_bounds_that_no_fixed_point_serves_are_refused(bound: float) -> None:
    graph = Graph.from_edges([0], [1], 2)
    with pytest.raises(ModelError, match="max="):
        graph.sum(torch.tensor([1e-30, 0.0]), max=bound)


# --- weights ----------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(network=networks(weighted=True))
def test_with_weight(network: dict[str, Any]) -> None:
    gen = numbers(network)
    plain = build({**network, "weight": None})
    canonical = plain.edges()
    new = torch.from_numpy(gen.random(plain.num_edges, dtype=np.float32))
    graph = plain.with_weight(new)
    other = Graph.from_edges(canonical[0], canonical[1], network["agents"], weight=new, self_loops="keep")
    for kind in ("mask", "real"):
        values = VALUES[kind](gen, network["agents"])
        assert torch.equal(graph.sum(values), other.sum(values))
    assert graph.max_weight == pytest.approx(float(new.max()) if new.numel() else 1.0)
    if plain.num_edges:
        assert torch.equal(graph.out_edge, other.out_edge)


def test_weighted_masks_are_exact_in_any_direction(inside: Any) -> None:
    gen = np.random.default_rng(3)
    source, target = gen.integers(0, 90, 1500), gen.integers(0, 90, 1500)
    graph = Graph.from_edges(source, target, 90, weight=gen.random(1500, dtype=np.float32))
    mask = torch.from_numpy(gen.integers(0, 2, 90)).to(torch.int8)
    results = []
    for limit in (float("inf"), -1.0):
        inside.push_up_to(limit)
        results.append(graph.sum(mask))
    assert torch.equal(*results)


@pytest.mark.parametrize("weight", [torch.ones(2), torch.ones(3, dtype=torch.float64), torch.ones(3, 1)])
def test_with_weight_refuses_other_shapes(weight: Tensor) -> None:
    with pytest.raises(InputError, match=r"expected torch.float32 \(3,\)"):
        Graph.from_edges([0, 1, 2], [1, 2, 0]).with_weight(weight)


def test_weights_of_zero() -> None:
    graph = Graph.from_edges([0, 1], [1, 0], weight=[0.0, 0.0])
    assert graph.sum(torch.ones(2, dtype=torch.int8)).tolist() == [0.0, 0.0]
    assert graph.mean(torch.ones(2)).tolist() == [0.0, 0.0]


# --- sources ----------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(network=networks())
def test_undirected(network: dict[str, Any]) -> None:
    graph = build(network, directed=False)
    matrix = dense(network) + dense(network).T
    values = torch.from_numpy(numbers(network).integers(0, 100, network["agents"])).to(torch.int32)
    np.testing.assert_allclose(graph.sum(values).numpy(), matrix @ values.numpy(), rtol=1e-5)


@settings(max_examples=40)
@given(network=networks(weighted=True))
def test_sources_agree(network: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    n = network["agents"]
    matrix = sparse.coo_array((network["weight"], (network["source"], network["target"])), shape=(n, n))
    loops = network["source"] == network["target"]
    graph = build({**network, **{k: network[k][~loops] for k in ("source", "target", "weight")}})
    path = tmp_path_factory.mktemp("edges") / "edges.npz"
    np.savez(path, source=network["source"], target=network["target"], weight=network["weight"])
    values = torch.from_numpy(numbers(network).random(n, dtype=np.float32))
    wanted = graph.sum(values, max=64.0)
    for other in (Graph.from_file(path, num_agents=n, weight="weight"), Graph.from_scipy(matrix)):
        assert other.num_agents == n
        torch.testing.assert_close(other.sum(values, max=300.0), wanted, rtol=1e-5, atol=1e-5)


def test_networkx_both_ways() -> None:
    values = torch.tensor([1, 2, 4, 8], dtype=torch.int32)
    path = nx.path_graph(4)
    assert Graph.from_networkx(path).sum(values).tolist() == [2, 5, 10, 4]
    assert Graph.from_networkx(nx.DiGraph(path.edges)).sum(values).tolist() == [0, 1, 2, 4]


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("source,target,strength\n0,1,0.5\n2,1,0.25\n")
    graph = Graph.from_file(path, weight="strength", num_agents=3, directed=False)
    assert graph.sum(torch.ones(3, dtype=torch.int8)).tolist() == [0.5, 0.75, 0.25]


def test_edge_list_and_lists_and_tensors() -> None:
    wanted = Graph.from_edges(np.array([0, 2]), np.array([1, 1]), 3)
    ids = (np.array([0, 2], np.int32), np.array([1, 1], np.int32))
    for graph in (
        Graph.from_edges(EdgeList(3, *ids)),
        Graph.from_edges([0, 2], [1, 1]),
        Graph.from_edges((0, 2), (1, 1), 3),
        Graph.from_edges(torch.tensor([0, 2]), torch.tensor([1, 1], dtype=torch.int32), 3),
    ):
        assert torch.equal(graph.in_idx, wanted.in_idx)
        assert torch.equal(graph.in_ptr, wanted.in_ptr)
        assert graph.in_idx.dtype == torch.int32


@pytest.mark.parametrize("agents", [0, 1, 5])
def test_no_edges(agents: int) -> None:
    graph = Graph.from_edges([], [], agents)
    ones = torch.ones(agents)
    assert graph.num_edges == 0
    for out in (
        graph.sum(ones),
        graph.sum(ones, max=1.0),
        graph.mean(ones),
        graph.max(ones),
        graph.sum(ones.to(torch.int8)),
    ):
        assert out.tolist() == [0] * agents
    assert graph.with_weight(torch.empty(0)).sum(ones).tolist() == [0] * agents
    assert graph.renumber(torch.arange(agents)).num_edges == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"source": [0, 1], "target": [1]}, "target"),
        ({"source": [0, 5], "target": [1, 1], "num_agents": 3}, "5"),
        ({"source": [0, -1], "target": [1, 1]}, "-1"),
        ({"source": [0.5], "target": [1]}, "0.5"),
        ({"source": [0], "target": [1], "weight": [NAN]}, "weight"),
        ({"source": [0], "target": [1], "weight": [-1.0]}, "weight"),
        ({"source": [0], "target": [1], "weight": [1.0, 2.0]}, "weight"),
        ({"source": [0]}, "target is missing"),
        ({"source": ["a"], "target": [1]}, "source"),
        ({"source": [0], "target": [1], "num_agents": -1}, "num_agents"),
        ({"source": [0], "target": [0], "self_loops": "error"}, "self"),
        ({"source": [0], "target": [1], "self_loops": "maybe"}, "self_loops"),
        ({"source": [0, 0], "target": [1, 1], "duplicates": "error"}, "twice|duplicate|repeated"),
        ({"source": [0], "target": [1], "duplicates": 3}, "duplicates"),
        ({"source": EdgeList(3, *np.zeros((2, 1), np.int32)), "num_agents": 3}, "leave the other"),
        ({"source": EdgeList(3, *np.zeros((2, 1), np.int32)), "directed": False}, "leave the other"),
    ],
)
def test_unusable_edges(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Graph.from_edges(**arguments)


@pytest.mark.parametrize("method", ["sum", "mean", "max", "any"])
@pytest.mark.parametrize("argument", ["values", "where"])
def test_other_shapes_are_refused(method: str, argument: str) -> None:
    graph = Graph.from_edges([0], [1], 3)
    arguments = {"values": torch.ones(3), "where": torch.ones(3)}
    for shape in ((4,), (1, 3), ()):
        with pytest.raises(ModelError, match=rf"Graph.{method}: {argument} has shape .* expected \(3,\)"):
            getattr(graph, method)(**{**arguments, argument: torch.ones(shape)})
    with pytest.raises(ModelError, match=rf"Graph.{method}: {argument} is torch.complex64"):
        getattr(graph, method)(**{**arguments, argument: torch.ones(3, dtype=torch.complex64)})


def test_degrees_edges_and_names() -> None:
    graph = Graph.from_edges([3, 0, 2], [1, 1, 0], 4)
    assert graph.in_degree.tolist() == [1, 2, 0, 0]
    assert graph.out_degree.tolist() == [1, 0, 1, 1]
    assert (graph.max_in_degree, graph.max_out_degree) == (2, 1)
    source, target = graph.edges()
    assert list(zip(source.tolist(), target.tolist(), strict=True)) == [(2, 0), (0, 1), (3, 1)]
    assert repr(graph) == "Graph(4 agents, 3 edges, cpu)"
    assert math.isclose(graph.max_weight, 1.0)


def test_sums_under_vmap_and_for_relaxed_values() -> None:
    graph = Graph.from_edges([0, 1, 2, 0], [1, 2, 0, 2], 3)
    values = torch.rand(5, 3)
    for call in (lambda v: graph.sum(v, max=1.0), graph.sum, graph.mean, graph.max, graph.any):
        together = torch.vmap(call)(values)
        assert torch.equal(together, torch.stack([call(row) for row in values]))


@pytest.mark.parametrize("reference", [True, False])
@pytest.mark.parametrize("scale", [1e-20, 0.7, 3e38])
def test_weighted_counts_in_int8(reference: bool, scale: float) -> None:
    graph = Graph.from_edges([0, 1, 2, 3], [3, 3, 0, 2], 4, weight=np.array([1.0, 0.5, 0.25, 0.125]) * scale)
    assert graph.weight is not None
    counts = torch.tensor([1, 2, 127, -128], dtype=torch.int8)
    with ops.reference_only() if reference else contextlib.nullcontext():
        many, mask = graph.sum(counts), graph.sum((counts == 1).to(torch.int8))
    if scale < 1e38:  # beyond it sums are beyond float32
        assert many.tolist() == pytest.approx([127 / 4 * scale, 0.0, -16 * scale, 2 * scale], rel=1e-6, abs=0)
    assert mask.tolist() == [0.0, 0.0, 0.0, float(graph.weight[2])]


# --- sums that only some need -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["mask", "real"])
def test_who_does_not_need_a_sum_is_left_out_in_a_hard_run_and_not_in_a_relaxed_one(weighted: bool, kind: str) -> None:
    gen = np.random.default_rng(5)
    source, target = gen.integers(0, 50, (2, 300))
    graph = Graph.from_edges(source, target, 50, weight=gen.random(300, dtype=np.float32) if weighted else None)
    values = torch.from_numpy(gen.integers(0, 2, 50).astype(np.int8))
    values = values if kind == "mask" else values * torch.rand(50, generator=torch.Generator().manual_seed(1))
    mask = torch.from_numpy(gen.integers(0, 2, 50).astype(np.int8))
    for method in (graph.sum, graph.mean, Layers({"one": graph, "two": graph}).sum):
        for hard in (mask, mask.bool(), mask.long()):
            assert torch.equal(method(values, needed=hard), method(values, where=mask))
        shares = mask.float()
        assert torch.equal(method(values.float(), needed=shares), method(values.float()))
    live = values.float().requires_grad_()
    (slope,) = torch.autograd.grad((graph.sum(live, needed=mask.float(), max=4.0)).sum(), live)
    (everybody,) = torch.autograd.grad(graph.sum(live, max=4.0).sum(), live)
    assert torch.equal(slope, everybody)


def test_where_and_needed_exclude_each_other():
    graph = Graph.from_edges([0, 1], [1, 0])
    ones = torch.ones(2, dtype=torch.int8)
    for method in (graph.sum, graph.mean, Layers({"one": graph}).sum):
        with pytest.raises(ModelError, match="got where= and needed=, expected one"):
            method(ones, where=ones, needed=ones)
        with pytest.raises(ModelError, match=r"needed has shape \(3,\), expected \(2,\)"):
            method(ones, needed=torch.ones(3))
