"""The fast variant of every op against its reference, bit for bit; and one call for all worlds against a loop."""

from typing import Any

import pytest
import torch

from denizen import ops
from denizen.errors import ModelError

STREAM = 77
SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 1001]


def keys(worlds: int) -> torch.Tensor:
    return torch.tensor([[9, world] for world in range(worlds)])


def make_ids(tools: Any, kind: str, num: int, worlds: int) -> torch.Tensor:
    if kind == "none" or num == 0:
        return tools.empty
    if kind == "permuted":
        return torch.randperm(num)[None]
    return torch.stack([torch.randperm(num) + 2**40 * w for w in range(worlds)])  # each world its own


# --- words and masks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("worlds", [1, 2, 5])
@pytest.mark.parametrize("kind", ["none", "permuted", "worlds"])
def test_words(tools: Any, threads: int, worlds: int, kind: str) -> None:
    for num in SIZES:
        ids = make_ids(tools, kind, num, worlds)
        tools.both(ops.draw_words, ids, num, keys(worlds), tools.step, STREAM)


@pytest.mark.parametrize("worlds", [1, 2, 5])
@pytest.mark.parametrize("kind", ["none", "permuted", "worlds"])
@pytest.mark.parametrize("hazard", [True, False])
def test_masks(tools: Any, threads: int, worlds: int, kind: str, hazard: bool) -> None:
    for num in SIZES:
        values = tools.hazards(worlds, num) if hazard else torch.rand(worlds, num).round(decimals=1)
        ids = make_ids(tools, kind, num, worlds)
        drawn, bad = tools.both(ops.draw_mask, values, hazard, ids, keys(worlds), tools.step, STREAM)
        assert drawn.dtype == torch.int8
        assert bad.tolist() == [0] * worlds


@pytest.mark.parametrize("hazard", [True, False])
@pytest.mark.parametrize("wrong", [-1e-9, -1.0, float("nan"), -float("inf"), 1.0000001, float("inf")])
def test_a_bad_value_is_flagged_in_its_world_and_draws_nothing(tools: Any, hazard: bool, wrong: float) -> None:
    values = torch.full((3, 50), 0.5)
    clean, _ = ops.draw_mask(values, hazard, tools.empty, keys(3), tools.step, STREAM)
    values[1, 13] = wrong
    drawn, bad = tools.both(ops.draw_mask, values, hazard, tools.empty, keys(3), tools.step, STREAM)
    if hazard and wrong > 0:
        assert bad.tolist() == [0, 0, 0]  # a hazard may be as large as it likes
        return
    assert bad.tolist() == [0, 1, 0]
    assert drawn[1, 13] == 0
    drawn[1, 13] = clean[1, 13]
    assert torch.equal(drawn, clean)


@pytest.mark.parametrize("hazard", [True, False])
@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_the_threshold_of_threads_changes_no_bit(tools: Any, hazard: bool) -> None:
    _cpu = pytest.importorskip("denizen.ops._cpu", exc_type=ImportError)
    before = torch.get_num_threads()
    for extra in (-1, 0, 5):
        values = torch.rand(1, _cpu._PARALLEL_FROM + extra)
        results = []
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(tools.both(ops.draw_mask, values, hazard, tools.empty, keys(1), tools.step, STREAM))
        torch.set_num_threads(before)
        tools.assert_same_bits(*results)


# --- sums -------------------------------------------------------------------------------------------------------------

GRAPHS = [(1, 0), (1, 3), (7, 0), (12, 30), (300, 2000)]


def values_of(dtype: torch.dtype, worlds: int, agents: int) -> torch.Tensor:
    values = torch.randint(-3, 4, (worlds, agents)) * torch.randint(0, 2, (worlds, agents))
    return values.to(dtype) if not dtype.is_floating_point else values * torch.rand(worlds, agents)


def where_of(kind: str, worlds: int, agents: int) -> torch.Tensor | None:
    return None if kind == "all" else torch.randint(0, 2, (1 if kind == "shared" else worlds, agents)).to(torch.int8)


@pytest.mark.parametrize("worlds", [1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
@pytest.mark.parametrize("kind", ["all", "shared", "each"])
def test_sum_counts(tools: Any, direction: str, worlds: int, dtype: torch.dtype, kind: str) -> None:
    for agents, edges in GRAPHS:
        g = tools.random_graph(agents, edges)
        values = (
            values_of(dtype, worlds, agents)
            if dtype != torch.uint8
            else torch.randint(0, 9, (worlds, agents)).to(dtype)
        )
        args = (values, where_of(kind, worlds, agents), g.in_ptr, g.in_idx, g.out_ptr, g.out_idx)
        assert tools.both(ops.sum_counts, *args).dtype == (torch.int32 if dtype == torch.int8 else torch.int64)


@pytest.mark.parametrize("worlds", [1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.float32])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["all", "shared", "each"])
def test_sum_fixed(tools: Any, direction: str, worlds: int, dtype: torch.dtype, weighted: bool, kind: str) -> None:
    for agents, edges in GRAPHS:
        g = tools.random_graph(agents, edges, weighted=weighted)
        args = (
            values_of(dtype, worlds, agents),
            where_of(kind, worlds, agents),
            g.weight,
            g.in_ptr,
            g.in_idx,
            g.out_ptr,
        )
        tools.both(ops.sum_fixed, *args, g.out_idx, g.out_edge, 38, 4.0)


@pytest.mark.parametrize("worlds", [1, 2, 5])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["all", "shared", "each"])
def test_sum_real(tools: Any, threads: int, worlds: int, weighted: bool, kind: str) -> None:
    for agents, edges in GRAPHS:
        g = tools.random_graph(agents, edges, weighted=weighted)
        args = (torch.randn(worlds, agents) * 1e3, where_of(kind, worlds, agents), g.weight, g.in_ptr, g.in_idx)
        tools.both(ops.sum_real, *args, g.out_ptr, g.out_idx, g.out_edge)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 4.1, -4.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_message_beyond_the_bound_poisons_its_world_only(
    tools: Any, direction: str, weighted: bool, bad: float
) -> None:
    g = tools.random_graph(30, 100, weighted=weighted)
    if weighted:
        g = g.with_weight(torch.ones(g.num_edges))
    sender = int(g.out_degree.argmax())
    values = torch.rand(3, 30)
    args = (g.weight, g.in_ptr, g.in_idx, g.out_ptr, g.out_idx, g.out_edge, 38, 4.0)
    values[1, sender] = bad
    out = tools.both(ops.sum_fixed, values, torch.zeros(1, 30, dtype=torch.int8), *args)  # even where nobody listens
    assert out[1].isnan().all()
    assert not out[0].isnan().any()
    assert not out[2].isnan().any()
    silent = torch.zeros(1, 30)
    silent[0, 29] = bad  # a bad value of an agent without contacts reaches nobody
    assert torch.equal(tools.both(ops.sum_fixed, silent, None, *args), torch.zeros(1, 30))


@pytest.mark.parametrize("weighted", [False, True])
def test_messages_go_to_the_nearest_unit_and_ties_to_the_even_one(tools: Any, direction: str, weighted: bool) -> None:
    g = tools.random_graph(40, 200, weighted=weighted)
    if weighted:
        g = g.with_weight(torch.ones(g.num_edges))
    values = (torch.arange(80).view(2, 40) - 40) / 16  # in quarters of a unit of 1/4
    found = tools.both(
        ops.sum_fixed, values, None, g.weight, g.in_ptr, g.in_idx, g.out_ptr, g.out_idx, g.out_edge, 2, 4.0
    )
    source, target = g.edges()
    rounded = torch.round(values * 4) / 4
    assert torch.equal(found, torch.zeros(2, 40).index_add(1, target, rounded[:, source]))


@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_an_inactive_sender_sends_nothing_whatever_its_weight(tools: Any, direction: str, weight: float) -> None:
    g = tools.random_graph(30, 100, weighted=True)
    weights = torch.ones(g.num_edges)
    weights[g.edges()[0] == 0] = weight
    values = torch.ones(1, 30)
    values[0, 0] = 0
    args = (weights, g.in_ptr, g.in_idx, g.out_ptr, g.out_idx, g.out_edge, 38, 4.0)
    assert not tools.both(ops.sum_fixed, values, None, *args).isnan().any()


def test_nobody_listening_hears_zero(tools: Any) -> None:
    g = tools.random_graph(30, 100)
    values = torch.full((1, 30), -float("inf"))
    nobody = torch.zeros(1, 30, dtype=torch.int8)
    args = (None, g.in_ptr, g.in_idx, g.out_ptr, g.out_idx, g.out_edge)
    tools.assert_same_bits(tools.both(ops.sum_real, values, nobody, *args), torch.zeros(1, 30))
    tools.assert_same_bits(tools.both(ops.sum_fixed, values.clamp(min=-1), nobody, *args, 38, 4.0), torch.zeros(1, 30))


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code_dtype", [torch.int8, torch.uint8, torch.int16, torch.int64])
@pytest.mark.parametrize(("tables", "coded"), [(1, 1), (1, 4), (4, 1), (4, 4)])
@pytest.mark.parametrize("grouped", [False, True])
def test_lookup(tools: Any, threads: int, code_dtype: torch.dtype, tables: int, coded: int, grouped: bool) -> None:
    for agents in (0, 1, 130):
        table, codes = torch.randn(tables, 3 if grouped else 1, 6), torch.randint(0, 6, (coded, agents)).to(code_dtype)
        group = torch.randint(0, 3, (1, agents)).to(torch.uint8) if grouped else None
        out = tools.both(ops.lookup, table, codes, group)
        rows = torch.zeros(1, agents, dtype=torch.int64) if group is None else group.long()
        for w in range(max(tables, coded)):
            assert torch.equal(out[w], table[w % tables, rows[0], codes[w % coded].long()])


@pytest.mark.parametrize("code_dtype", [torch.int8, torch.uint8, torch.int16])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("worlds", [1, 3])
def test_histogram(tools: Any, threads: int, code_dtype: torch.dtype, worlds: int, grouped: bool) -> None:
    for agents in (0, 1, 130):
        codes = torch.randint(0, 6, (worlds, agents)).to(code_dtype)
        group = torch.randint(0, 3, (1, agents)).to(torch.int8) if grouped else None
        out = tools.both(ops.histogram, codes, group, 3 if grouped else 1, 6)
        assert out.sum(dim=(1, 2)).tolist() == [agents] * worlds
        for code in range(6):
            assert torch.equal(out[:, :, code].sum(dim=1), (codes == code).sum(dim=1))


@pytest.mark.parametrize("code", [-1, 6, 100])
@pytest.mark.parametrize("device", ["cpu"], indirect=True)  # a check on CUDA would read the device
def test_codes_out_of_range_are_refused_by_both_variants(tools: Any, code: int) -> None:
    codes = torch.zeros(1, 20, dtype=torch.int8)
    codes[0, 7] = code
    for context in (torch.no_grad, ops.reference_only):
        with context():
            with pytest.raises(ModelError, match="expected 0 to 5"):
                ops.lookup(torch.zeros(1, 1, 6), codes, None)
            with pytest.raises(ModelError, match="expected 0 to 5"):
                ops.histogram(codes, None, 1, 6)
            with pytest.raises(ModelError, match="expected 0 to 5"):
                ops.lookup(torch.zeros(1, 6, 6), torch.zeros(1, 20, dtype=torch.int8), codes)
