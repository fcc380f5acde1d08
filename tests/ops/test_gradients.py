"""Gradients of the ops: against autograd of plain float64 formulas, finite differences, and under vmap."""

from typing import Any

import pytest
import torch
from torch import Tensor

from denizen import ops
from denizen.errors import ModelError

AGENTS, EDGES = 23, 90


def dense(graph: Any, weight: Tensor | None) -> Tensor:
    """Matrix float64 `[receiver, sender]` of a graph."""
    source, target = graph.edges()
    entries = torch.ones(graph.num_edges, dtype=torch.float64) if weight is None else weight.double()
    matrix = torch.zeros(graph.num_agents, graph.num_agents, dtype=torch.float64)
    return matrix.index_put((target, source), entries, accumulate=True)


def neighbour_sum(op: str, graph: Any, values: Tensor, where: Tensor | None, weight: Tensor | None) -> Tensor:
    arrays = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx, graph.out_edge)
    if op == "real":
        return ops.sum_real(values, where, weight, *arrays)
    return ops.sum_fixed(values, where, weight, *arrays, 36, 16.0)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("op", ["real", "fixed"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("worlds", [1, 3])
def test_sums_against_a_matrix(tools: Any, op: str, weighted: bool, masked: bool, worlds: int, reference: bool) -> None:
    graph = tools.random_graph(AGENTS, EDGES, weighted=weighted)
    values = torch.randn(worlds, AGENTS) * torch.randint(0, 2, (worlds, AGENTS))  # half the senders are inactive
    where = torch.randint(0, 2, (1, AGENTS)).to(torch.int8) if masked else None
    weight, cotangent = graph.weight, torch.randn(worlds, AGENTS)
    fast = [values.clone().requires_grad_(), None if weight is None else weight.clone().requires_grad_()]
    plain = [None if t is None else t.detach().double().requires_grad_() for t in fast]
    if reference:
        with ops.reference_only():
            out = neighbour_sum(op, graph, fast[0], where, fast[1])
            (out * cotangent).sum().backward()
    else:
        out = neighbour_sum(op, graph, fast[0], where, fast[1])
        (out * cotangent).sum().backward()
    exact = plain[0] @ dense(graph, plain[1]).T * (1 if where is None else where)
    (exact * cotangent).sum().backward()
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(fast, plain, strict=True):
        if ours is not None:
            assert ours.grad.dtype == torch.float32
            torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["real", "fixed"])
def test_inactive_senders_have_their_slope(tools: Any, op: str) -> None:
    graph = tools.random_graph(AGENTS, EDGES)
    values = torch.zeros(1, AGENTS, requires_grad=True)
    neighbour_sum(op, graph, values, None, None).sum().backward()
    assert torch.equal(values.grad[0], graph.out_degree.float())


@pytest.mark.parametrize("op", ["real", "fixed"])
def test_tiny_cotangents_keep_their_precision(tools: Any, op: str) -> None:
    """A backward in fixed point loses cotangents near 1e-6; ours stays in floating point."""
    graph = tools.random_graph(AGENTS, EDGES)
    values = torch.rand(1, AGENTS, requires_grad=True)
    cotangent = torch.rand(AGENTS) * 1e-12
    (neighbour_sum(op, graph, values, None, None)[0] * cotangent).sum().backward()
    exact = cotangent.double() @ dense(graph, None)
    torch.testing.assert_close(values.grad[0].double(), exact, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("op", ["real", "fixed"])
def test_sums_against_central_differences(tools: Any, op: str) -> None:
    graph = tools.random_graph(AGENTS, EDGES, weighted=True)
    values, direction = torch.rand(1, AGENTS), torch.randn(1, AGENTS)
    weight, turn = graph.weight.clone(), torch.randn(graph.num_edges) * 0.1

    def smooth(at: float) -> Tensor:
        out = neighbour_sum(op, graph, values + at * direction, None, weight + at * turn)
        return (out.double() ** 2).sum()

    variables = [values.clone().requires_grad_(), weight.clone().requires_grad_()]
    (neighbour_sum(op, graph, variables[0], None, variables[1]) ** 2).sum().backward()
    slope = (variables[0].grad * direction).sum() + (variables[1].grad * turn).sum()
    difference = (smooth(1e-2) - smooth(-1e-2)) / 2e-2  # exact for the cubic terms up to 1e-4
    assert slope.item() == pytest.approx(difference.item(), rel=1e-3)


@pytest.mark.parametrize("op", ["real", "fixed"])
def test_sums_under_vmap_have_the_gradients_of_a_loop(tools: Any, op: str) -> None:
    graph = tools.random_graph(AGENTS, EDGES, weighted=True)
    values, where = torch.rand(4, AGENTS), torch.randint(0, 2, (4, AGENTS)).to(torch.int8)

    def one(v: Tensor, w: Tensor, k: Tensor) -> Tensor:
        return (neighbour_sum(op, graph, v[None], w[None], k) ** 2).sum()

    batched = [values.clone().requires_grad_(), graph.weight.clone().requires_grad_()]
    torch.vmap(one, in_dims=(0, 0, None))(batched[0], where, batched[1]).sum().backward()
    looped = [values.clone().requires_grad_(), graph.weight.clone().requires_grad_()]
    torch.stack([one(looped[0][k], where[k], looped[1]) for k in range(4)]).sum().backward()
    assert torch.equal(batched[0].grad, looped[0].grad)
    torch.testing.assert_close(batched[1].grad, looped[1].grad)


@pytest.mark.parametrize(("tables", "coded"), [(1, 1), (1, 4), (4, 1), (4, 4)])
@pytest.mark.parametrize("grouped", [False, True])
def test_lookup(tools: Any, tables: int, coded: int, grouped: bool) -> None:
    table = torch.randn(tables, 3 if grouped else 1, 5, requires_grad=True)
    codes = torch.randint(0, 5, (coded, AGENTS)).to(torch.int8)
    group = torch.randint(0, 3, (1, AGENTS)).to(torch.uint8) if grouped else None
    cotangent = torch.randn(max(tables, coded), AGENTS)
    (ops.lookup(table, codes, group) * cotangent).sum().backward()
    plain = table.detach().double().requires_grad_()
    rows = torch.zeros(1, AGENTS, dtype=torch.int64) if group is None else group.long()
    worlds = torch.arange(tables)[:, None].expand(tables, 1)
    (plain[worlds, rows, codes.long()] * cotangent).sum().backward()
    torch.testing.assert_close(table.grad.double(), plain.grad, rtol=1e-5, atol=1e-6)


def test_lookup_under_vmap_has_the_gradients_of_a_loop(tools: Any) -> None:
    table, codes = torch.randn(4, 3, 5), torch.randint(0, 5, (4, AGENTS)).to(torch.int8)
    group = torch.randint(0, 3, (4, AGENTS)).to(torch.uint8)

    def one(t: Tensor, c: Tensor, g: Tensor) -> Tensor:
        return (ops.lookup(t[None], c[None], g[None]) ** 2).sum()

    for dims in ((0, 0, 0), (0, None, None), (None, 0, 0), (None, None, 0)):
        rows = [t if d == 0 else t[0] for t, d in zip((table, codes, group), dims, strict=True)]
        batched, looped = rows[0].clone().requires_grad_(), rows[0].clone().requires_grad_()
        torch.vmap(one, in_dims=dims)(batched, *rows[1:]).sum().backward()
        for k in range(4):
            args = [t[k] if d == 0 else t for t, d in zip((looped, *rows[1:]), dims, strict=True)]
            one(*args).backward()
        torch.testing.assert_close(batched.grad, looped.grad)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own forward mode calls it
@pytest.mark.parametrize("argument", ["values", "weight", "table"])
def test_forward_mode_is_refused_and_not_dropped(tools: Any, argument: str) -> None:
    graph, ones = tools.random_graph(AGENTS, EDGES, weighted=True), torch.ones(1, AGENTS)
    functions = {
        "values": (lambda v: neighbour_sum("real", graph, v, None, None), ones),
        "weight": (lambda w: neighbour_sum("fixed", graph, ones, None, w), graph.weight),
        "table": (lambda t: ops.lookup(t, torch.zeros(1, 3, dtype=torch.int8), None), torch.ones(1, 1, 4)),
    }
    function, at = functions[argument]
    with pytest.raises(ModelError, match="backward"):
        torch.func.jvp(function, (at,), (torch.ones_like(at),))
    torch.func.jvp(lambda x: x + function(at).sum(), (torch.ones(()),), (torch.ones(()),))  # no tangent goes in
