"""What holds for any graph, any values and any draws, with examples that hypothesis finds; fewer on CUDA."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from denizen import ops

BITS, BOUND = 36, 8.0
SMALL = st.integers(0, 300)
SEED = st.integers(0, 2**32 - 1)


def holds(tools: Any, check: Callable[..., None], **strategies: Any) -> None:
    """Try a property on examples."""
    given(**strategies)(settings(max_examples=tools.examples, deadline=None)(check))()


@st.composite
def edge_lists(draw: Any) -> tuple[int, np.ndarray, np.ndarray]:
    """(agents, sources, targets), at times with a hub."""
    agents = draw(st.integers(1, 90))
    end = st.integers(0, agents - 1)
    pairs = draw(st.lists(st.tuples(end, end), max_size=120))
    if draw(st.booleans()):
        hub, degree = draw(end), draw(SMALL)
        pairs += [(hub, k % agents) for k in range(degree)] + [(k % agents, hub) for k in range(degree)]
    source, target = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return agents, source, target


def make(tools: Any, edges: tuple[int, np.ndarray, np.ndarray], seed: int, weighted: bool) -> Any:
    agents, source, target = edges
    weight = np.random.default_rng(seed).random(source.size, dtype=np.float32) if weighted else None
    return tools.graph(source, target, agents, weight)


def test_sums_over_any_graph(tools: Any) -> None:
    """Variants agree; nothing is lost on the way; what is not listened to is zero; worlds do not mix."""

    def check(edges: Any, worlds: int, rows: int, weighted: bool, seed: int) -> None:
        graph, agents = make(tools, edges, seed, weighted), edges[0]
        torch.manual_seed(seed)
        values = torch.randint(-128, 128, (worlds, agents)).to(torch.int8) * torch.randint(0, 2, (worlds, agents)).to(
            torch.int8
        )
        where = None if rows == 0 else torch.randint(0, 2, (1 if rows == 1 else worlds, agents)).to(torch.int8)
        arrays = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx)
        free = tools.both(ops.sum_counts, values, None, *arrays)
        assert torch.equal(free.sum(dim=1), (values * graph.out_degree).sum(dim=1))
        if where is not None:
            assert torch.equal(tools.both(ops.sum_counts, values, where, *arrays), free * where)
        real, rest = torch.randn(worlds, agents) * (values != 0), (graph.weight, *arrays, graph.out_edge)
        fixed = tools.both(ops.sum_fixed, real, where, *rest, BITS, BOUND)
        exact = tools.both(ops.sum_real, real, where, *rest)
        torch.testing.assert_close(fixed, exact, rtol=1e-4, atol=1e-4)
        last = ops.sum_fixed(real[-1:], None if where is None else where[-1:], *rest, BITS, BOUND)
        tools.assert_same_bits(fixed[-1:], last)

    holds(
        tools,
        check,
        edges=edge_lists(),
        worlds=st.integers(1, 9),
        rows=st.integers(0, 2),
        weighted=st.booleans(),
        seed=SEED,
    )


def test_backward_sums_over_any_graph(tools: Any) -> None:
    """The slope of a sum is the sum over the reversed graph, of every sender whether active or not."""

    def check(edges: Any, worlds: int, weighted: bool, fixed: bool, seed: int) -> None:
        graph, agents = make(tools, edges, seed, weighted), edges[0]
        torch.manual_seed(seed)
        values = (torch.randn(worlds, agents) * torch.randint(0, 2, (worlds, agents))).requires_grad_()
        cotangent = torch.randn(worlds, agents)
        arrays = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx, graph.out_edge)
        total = (
            ops.sum_fixed(values, None, graph.weight, *arrays, BITS, BOUND)
            if fixed
            else ops.sum_real(values, None, graph.weight, *arrays)
        )
        total.backward(cotangent)
        source, target = graph.edges()
        message = cotangent[:, target] * (1.0 if graph.weight is None else graph.weight)
        nothing = torch.zeros(worlds, agents, dtype=torch.float64)
        exact, size = (nothing.index_add(1, source, one.double()) for one in (message, message.abs()))
        assert ((values.grad - exact).abs() <= 1e-5 * size).all()  # sums may cancel, so they are held to their parts

    holds(
        tools,
        check,
        edges=edge_lists(),
        worlds=st.integers(1, 5),
        weighted=st.booleans(),
        fixed=st.booleans(),
        seed=SEED,
    )


def test_draws_belong_to_ids(tools: Any) -> None:
    """A part of the agents, in any order and any company, draws what it draws among all."""

    def check(num: int, worlds: int, first: int, seed: int, step: int, stream: int, hazard: bool) -> None:
        torch.manual_seed(seed)
        key = torch.tensor([[seed, world] for world in range(worlds)])
        at, ids = torch.tensor(step), first + torch.randperm(2 * num + 1)[:num]
        values = torch.rand(worlds, num)
        drawn, bad = tools.both(ops.draw_mask, values, hazard, ids[None], key, at, stream)
        assert not bad.any()
        some = torch.randperm(num)[: num // 2]
        tools.assert_same_bits(
            ops.draw_mask(values[:, some], hazard, ids[None, some], key, at, stream)[0], drawn[:, some]
        )
        more, _ = ops.draw_mask(values * 0.5, hazard, ids[None], key, at, stream)
        assert (more <= drawn).all()  # what is less likely happens to fewer of the same

    holds(
        tools,
        check,
        num=st.integers(1, 300),
        worlds=st.integers(1, 7),
        first=st.integers(0, 2**61),
        seed=SEED,
        step=SEED,
        stream=SEED,
        hazard=st.booleans(),
    )


def test_tables_of_any_size(tools: Any) -> None:
    """A look-up of ones by code counts what the histogram counts."""

    def check(agents: int, worlds: int, groups: int, num_codes: int, seed: int) -> None:
        torch.manual_seed(seed)
        codes = torch.randint(0, num_codes, (worlds, agents)).to(torch.int8)
        group = torch.randint(0, groups, (1, agents)).to(torch.uint8)
        counts = tools.both(ops.histogram, codes, group, groups, num_codes)
        table = torch.randn(worlds, groups, num_codes, requires_grad=True)
        found: Tensor = ops.lookup(table, codes, group)
        found.sum().backward()
        assert torch.equal(table.grad, counts.float())  # whole numbers: no order of addition shows
        tools.both(ops.lookup, table.detach(), codes, group)

    holds(
        tools,
        check,
        agents=SMALL,
        worlds=st.integers(1, 5),
        groups=st.integers(1, 20),
        num_codes=st.integers(1, 100),
        seed=SEED,
    )
