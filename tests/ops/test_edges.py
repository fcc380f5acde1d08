"""Ops where kernels have their edges: hubs, lone and empty graphs, odd sizes, many worlds, strides, repeats."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from denizen import ops
from denizen.errors import InputError

BITS, BOUND = 30, 200.0  # of fixed point


def sums(tools: Any, graph: Any, values: Tensor, where: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Integer, fixed-point and real sums, each equal to its references; weights are below 1."""
    arrays = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx)
    fixed_args = (graph.weight, *arrays, graph.out_edge, BITS, BOUND)
    counts = tools.both(ops.sum_counts, values, where, *arrays)
    fixed = tools.both(ops.sum_fixed, values, where, *fixed_args)
    if where is None:
        accumulators(tools, values, arrays, fixed_args, counts, fixed)
    return counts, fixed, tools.both(ops.sum_real, values.float(), where, graph.weight, *arrays, graph.out_edge)


def accumulators(tools: Any, values: Tensor, arrays: Any, fixed_args: Any, counts: Tensor, fixed: Tensor) -> None:
    """Sums into buffers of every width that holds them."""
    narrow = bool(((values == 0) | (values == 1)).all()) and (not counts.numel() or int(counts.max()) <= 255)
    for dtype in (torch.int32, torch.int64, *([torch.uint8] if narrow else [])):
        total = torch.zeros(counts.shape, dtype=dtype)
        for forced in ("push", "pull"):
            with ops.direction(forced):
                ops.add_counts(total.zero_(), None, values, None, None, *arrays)
            assert torch.equal(total.to(counts.dtype), counts)
    for forced in ("push", "pull"):
        total, bad = torch.zeros(counts.shape, dtype=torch.int64), torch.zeros(counts.shape[0], dtype=torch.int32)
        with ops.direction(forced):
            ops.add_fixed(total, None, bad, values, fixed_args[0], None, *fixed_args[1:])
        tools.assert_same_bits(ops.from_fixed(total, bad, BITS), fixed)


def mask(*shape: int) -> Tensor:
    return torch.randint(0, 2, shape).to(torch.int8)


# --- graphs -----------------------------------------------------------------------------------------------------------

AROUND = [254, 255, 256, 257, 258, 259, 300, 1031]  # where eight bits, or eight and a few, are full


@pytest.mark.parametrize("outwards", [False, True])
@pytest.mark.parametrize("value", [1, 127, -128])
@pytest.mark.parametrize("worlds", [1, 3])
def test_a_hub_hears_and_is_heard_by_all(tools: Any, outwards: bool, value: int, worlds: int) -> None:
    for degree in AROUND:
        graph = tools.hub(degree, outwards=outwards)
        values = torch.full((worlds, graph.num_agents), value, dtype=torch.int8)
        for total in sums(tools, graph, values, None):
            expected = [value] * worlds if outwards else [degree * value] * worlds
            assert total[:, 3 if outwards else 1].tolist() == expected
        sums(tools, graph, values * mask(worlds, graph.num_agents), mask(worlds, graph.num_agents))
        only = torch.zeros(1, graph.num_agents, dtype=torch.int8)
        only[0, 1] = 1
        sums(tools, graph, values, only)


@pytest.mark.parametrize("outwards", [False, True])
def test_weights_of_a_hub(tools: Any, outwards: bool) -> None:
    graph = tools.hub(301, outwards=outwards, weighted=True)
    for worlds in (1, 3):
        sums(tools, graph, mask(worlds, graph.num_agents) * 100, mask(1, graph.num_agents))


def test_a_hub_beyond_sixteen_bits(tools: Any) -> None:
    graph = tools.hub(66_001, outwards=False)
    ones = torch.ones(2, graph.num_agents, dtype=torch.int8)
    assert sums(tools, graph, ones, None)[0][:, 1].tolist() == [66_001] * 2


@pytest.mark.parametrize(("agents", "edges"), [(0, 0), (1, 0), (1, 3), (2, 1), (5, 0)])
@pytest.mark.parametrize("worlds", [1, 3])
def test_hardly_a_graph(tools: Any, agents: int, edges: int, worlds: int) -> None:
    for weighted in (False, True):
        graph = tools.random_graph(agents, edges, weighted=weighted)
        values = torch.randint(-128, 128, (worlds, agents)).to(torch.int8)
        for where in (None, mask(1, agents), mask(worlds, agents)):
            for total in sums(tools, graph, values, where):
                assert total.shape == (worlds, agents)


@pytest.mark.parametrize("worlds", [1, 3])
def test_any_number_of_agents(tools: Any, worlds: int) -> None:
    for agents in (3, 6, 7, 9, 31, 33, 127, 129, 255, 257, 1001, 1023, 1026):
        graph = tools.random_graph(agents, 3 * agents, weighted=agents % 2 == 0)
        sums(tools, graph, torch.randint(-3, 4, (worlds, agents)).to(torch.int8), mask(worlds, agents))


def test_any_number_of_worlds(tools: Any) -> None:
    graph, weighted = tools.random_graph(37, 110), tools.random_graph(37, 110, weighted=True)
    for worlds in (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100):
        values = mask(worlds, 37)
        for where in (None, mask(1, 37), mask(worlds, 37)):
            sums(tools, graph, values, where)
        sums(tools, weighted, 5 * values, mask(1, 37))
        key = torch.stack([torch.full((worlds,), 3), torch.arange(worlds)], dim=1)
        tools.both(ops.draw_words, tools.empty, 37, key, tools.step, 2)
        tools.both(ops.draw_mask, torch.rand(worlds, 37), True, tools.empty, key, tools.step, 2)


def test_a_large_number_of_worlds(tools: Any) -> None:
    """CUDA launches at most 65,535 blocks along the second axis of a grid."""
    worlds, graph, weighted = 65_537, tools.random_graph(3, 7), tools.random_graph(3, 7, weighted=True)
    values = mask(worlds, 3)
    sums(tools, graph, values, mask(worlds, 3))
    sums(tools, weighted, 5 * values, mask(1, 3))
    tools.both(ops.histogram, values, None, 1, 4)


def test_every_dtype_at_its_ends(tools: Any) -> None:
    graph = tools.random_graph(40, 200)
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32):
        ends = torch.tensor([torch.iinfo(dtype).min, torch.iinfo(dtype).max, 0, 1]).to(dtype)
        values = ends[torch.randint(0, 4, (3, 40))]
        arrays = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx)
        total = tools.both(ops.sum_counts, values, mask(3, 40), *arrays)
        assert total.dtype == (torch.int32 if dtype == torch.int8 else torch.int64)


@pytest.mark.parametrize(("groups", "num_codes"), [(1, 1), (1, 5), (3, 7), (1, 127), (9, 127), (200, 100)])
@pytest.mark.parametrize("worlds", [1, 3])
def test_histograms_of_few_and_many_bins(tools: Any, groups: int, num_codes: int, worlds: int) -> None:
    for agents in (0, 1, 5, 1023, 4099):
        codes = torch.randint(0, num_codes, (worlds, agents)).to(torch.int8)
        group = None if groups == 1 else torch.randint(0, groups, (1, agents)).to(torch.uint8)
        expected = tools.both(ops.histogram, codes, group, groups, num_codes)
        counts = torch.zeros(worlds, groups, num_codes, dtype=torch.int32)
        ops.add_histogram(counts, codes, group)
        assert torch.equal(counts.long(), expected)
        assert expected.sum(dim=(1, 2)).tolist() == [agents] * worlds


# --- strides ----------------------------------------------------------------------------------------------------------


def transposed(tensor: Tensor) -> Tensor:
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


def every_other(tensor: Tensor) -> Tensor:
    return torch.stack([tensor, tensor + 1 if tensor.numel() else tensor], dim=-1).flatten(-2)[..., ::2]


def shifted(tensor: Tensor) -> Tensor:
    """Off the alignment that allocations have."""
    return torch.cat([tensor[..., :1], tensor], dim=-1)[..., 1:]


def expanded(tensor: Tensor) -> Tensor:
    """Each row the first, without memory of its own."""
    return tensor[:1].expand(tensor.shape) if tensor.dim() > 1 else tensor


LAYOUTS: list[Callable[[Tensor], Tensor]] = [transposed, every_other, shifted, expanded]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("worlds", [1, 4])
def test_strides_do_not_matter(tools: Any, layout: Callable[[Tensor], Tensor], worlds: int) -> None:
    graph, agents = tools.random_graph(45, 200, weighted=True), 45
    key = torch.stack([torch.full((worlds,), 3), torch.arange(worlds)], dim=1)
    ids = torch.stack([torch.randperm(agents) for _ in range(worlds)])
    arrays = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx)
    codes, group = torch.randint(0, 5, (worlds, agents)).to(torch.int8), mask(1, agents)
    calls: dict[Callable[..., Any], tuple[Any, ...]] = {
        ops.draw_words: (ids, agents, key, tools.step, 1),
        ops.draw_mask: (torch.rand(worlds, agents), True, ids, key, tools.step, 1),
        ops.sum_counts: (mask(worlds, agents), mask(worlds, agents), *arrays),
        ops.sum_fixed: (torch.rand(worlds, agents), mask(1, agents), graph.weight, *arrays, graph.out_edge, 36, 8.0),
        ops.sum_real: (torch.randn(worlds, agents), mask(worlds, agents), graph.weight, *arrays, graph.out_edge),
        ops.lookup: (torch.randn(worlds, 2, 5), codes, group),
        ops.histogram: (codes, group, 2, 5),
        ops.grow: (codes, mask(worlds, agents), 9),
        ops.in_range: (codes, 1, 3),
    }
    graph_arrays = {id(tensor) for tensor in (*arrays, graph.out_edge, graph.weight, tools.step)}
    for op, args in calls.items():
        odd = [layout(a) if isinstance(a, Tensor) and id(a) not in graph_arrays else a for a in args]
        plain = [a.contiguous() if isinstance(a, Tensor) else a for a in odd]
        tools.assert_same_bits(tools.both(op, *odd), op(*plain))


# --- repeats ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("worlds", [1, 5])
def test_repeats_have_the_same_bits(tools: Any, worlds: int) -> None:
    """Whatever order atomics come in, and whatever ran before."""
    agents = 20_011
    graph = tools.random_graph(agents, 6 * agents, weighted=True)
    values, where = torch.rand(worlds, agents) * mask(worlds, agents), mask(worlds, agents)
    arrays = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx)
    calls = [
        lambda: ops.sum_counts(where, None, *arrays),
        lambda: ops.sum_fixed(values, where, graph.weight, *arrays, graph.out_edge, 36, 4.0),
        lambda: ops.sum_real(values, where, graph.weight, *arrays, graph.out_edge),
    ]
    first = [call() for call in calls]
    for _ in range(3):
        tools.assert_same_bits([call() for call in reversed(calls)], first[::-1])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
@pytest.mark.parametrize("chosen", ["push", "pull", 0.0, 1e9, None])
def test_the_way_changes_no_bit(tools: Any, chosen: str | float | None, dtype: torch.dtype) -> None:
    graph, worlds = tools.random_graph(300, 900), 3
    arrays = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx)
    values, where = mask(worlds, 300), mask(worlds, 300)
    total = torch.zeros(worlds, 300, dtype=dtype)
    seen, seeing = (torch.zeros(worlds, 4, dtype=torch.int32) for _ in range(2))
    seen[:, 0], seen[:, 1] = 5, 7
    clear = torch.ones_like(total)
    with ops.direction(chosen):
        ops.add_counts(total, clear, values, where, ops.Traffic(seen, seeing, 0.5), *arrays)
    assert not clear.any()
    expected = tools.both(ops.sum_counts, values, where, *arrays)
    assert torch.equal(total.to(torch.int32) * where, expected)
    if ops.variant(values.device) == "triton" and chosen not in ("push", "pull"):
        sampled = 128  # the first block of agents
        assert torch.equal(seeing[:, 0], values[:, :sampled].sum(dim=1, dtype=torch.int32))
        assert torch.equal(seeing[:, 1], where[:, :sampled].sum(dim=1, dtype=torch.int32))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("chosen", ["push", "pull", 0.0, 1e9])
def test_the_way_of_real_values_changes_no_bit(tools: Any, chosen: str | float, weighted: bool) -> None:
    """Nor that of a NaN for a weight, which a sender at 0 does not use."""
    graph, worlds = tools.random_graph(300, 900, weighted=weighted), 3
    values, flags = torch.randn(worlds, 300) * mask(worlds, 300), torch.zeros(worlds, dtype=torch.int32)
    if weighted:
        values[:, int(graph.edges()[0][7])] = torch.tensor([0.0, 0.0, 1.0])
        graph.weight[7] = float("nan")
    given = (graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx, graph.out_edge, BITS, BOUND)
    total = torch.zeros(worlds, 300, dtype=torch.int64)
    seen, seeing = (torch.zeros(worlds, 4, dtype=torch.int32) for _ in range(2))
    seen[:, 0], seen[:, 1] = 5, 7
    clear = torch.ones_like(total)
    with ops.direction(chosen):
        ops.add_fixed(total, clear, flags, values, graph.weight, ops.Traffic(seen, seeing, 0.5), *given)
    assert not clear.any()
    expected = tools.both(ops.sum_fixed, values, None, graph.weight, *given)
    tools.assert_same_bits(ops.from_fixed(total, flags, BITS), expected)
    assert int(expected.isnan().any(dim=1).sum()) == weighted  # where the sender spoke
    if ops.variant(values.device) == "triton" and chosen not in ("push", "pull"):
        assert torch.equal(seeing[:, 0], (values[:, :128] != 0).sum(dim=1, dtype=torch.int32))
        assert seeing[:, 1].tolist() == [128] * worlds


def test_a_direction_that_is_none() -> None:
    with pytest.raises(InputError, match="'sideways', expected 'push'"), ops.direction("sideways"):
        pass


@pytest.mark.cuda
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_on_a_device_that_is_not_the_current_one() -> None:
    codes, table = torch.arange(1000) % 5, torch.rand(1, 1, 5)
    expected = ops.lookup(table, codes[None].to(torch.int8), None)
    found = ops.lookup(table.to("cuda:1"), codes[None].to("cuda:1", torch.int8), None)
    assert torch.equal(found.cpu(), expected)
    counts = ops.histogram(codes[None].to("cuda:1", torch.int8), None, 1, 5)
    assert counts.cpu().tolist() == [[[200] * 5]]
