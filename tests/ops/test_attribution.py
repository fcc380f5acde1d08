"""Who caused what: the same bits by every variant, and the law of competing hazards."""

from typing import Any

import pytest
import torch
from torch import Tensor

from denizen import ops

STREAM = 12345


def pick(values: Tensor, where: Tensor, graph: Any, ids: Tensor, key: Tensor, step: Tensor, factor: Any = 1.0) -> Any:
    factor = torch.tensor([[factor]]) if isinstance(factor, float) else factor
    graphs = graph if isinstance(graph, list) else [graph]
    weights = [torch.empty(0) if one.weight is None else one.weight for one in graphs]
    arrays = (weights, [one.in_ptr for one in graphs], [one.in_idx for one in graphs])
    values, where = ([one] * len(graphs) if isinstance(one, Tensor) else one for one in (values, where))
    return ops.attribute(values, where, factor, *arrays, ids, key, step, [STREAM + k for k in range(len(graphs))])


@pytest.mark.parametrize("worlds", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("agents", [1, 16, 40])  # 16 by the interpreter: lanes of eight go twice
def test_pairs_of_causes(tools: Any, worlds: int, weighted: bool, agents: int) -> None:
    graph = tools.random_graph(agents, 12 * agents, weighted=weighted)
    second = tools.random_graph(agents, 12 * agents, seed=1)
    key = torch.stack([torch.full((worlds,), 7), torch.arange(worlds)], dim=1)
    where = (torch.rand(worlds, agents) < 0.6).to(torch.int8)
    mask = (torch.rand(worlds, agents) < 0.5).to(torch.int8)
    real = torch.where(torch.rand(worlds, agents) < 0.7, torch.randn(worlds, agents), torch.nan)
    own, seen = (torch.randperm(worlds * agents) * 2**33 + 5).view(worlds, agents), set()
    for values in (mask, real):
        for ids in (tools.empty, own, own[:1]):
            source, layer = tools.both(pick, values, where, graph, ids, key, tools.step, torch.rand(worlds, 1))
            found = source >= 0
            assert torch.equal(layer, torch.where(found, 0, -1).to(torch.int8))
            assert not (found & (where == 0)).any()
            positive = graph.sum((values[0] > 0).to(torch.int8)) > 0
            assert torch.equal(found[0], (where[0] != 0) & positive) or weighted  # a weight may be 0
            assert (values.gather(1, source.long().clamp(min=0))[found] > 0).all()
            both, to = [values, mask], [where * (torch.rand(agents) < 0.5), where]
            _, layer = tools.both(pick, both, to, [graph, second], ids, key, tools.step, torch.rand(worlds, 2))
            seen |= set(layer.flatten().tolist())
            assert agents < 40 or worlds == 1 or set(layer.flatten().tolist()) == {-1, 0, 1}
            assert not ((layer == 0) & (to[0] == 0)).any()
    assert agents == 1 or seen == {-1, 0, 1}


def test_hardly_any_and_all_at_once(tools: Any) -> None:
    """A hub with 70 in-neighbours, each with an edge or two, and nobody at all."""
    graph = tools.hub(70, outwards=False, weighted=True)
    key, n = torch.tensor([[3, 4]]), graph.num_agents
    for where in (torch.zeros(1, n, dtype=torch.int8), torch.ones(1, n, dtype=torch.int8)):
        tools.both(pick, torch.rand(1, n), where, graph, tools.empty, key, tools.step)


def test_worlds_of_causes_alone_or_together_under_vmap(tools: Any) -> None:
    graph = tools.random_graph(60, 500)
    key = torch.tensor([[1, 0], [1, 1], [9, 5]])
    values, where, factor = torch.rand(3, 60), torch.ones(60, dtype=torch.int8), torch.tensor([[1.0, 2.0]])

    def one(values: Tensor, key: Tensor) -> Any:
        source, layer = pick(values[None], where[None], [graph, graph], tools.empty, key[None], tools.step, factor)
        return source[0], layer[0]

    together = torch.vmap(one)(values, key)
    for world in range(3):
        tools.assert_same_bits([part[world] for part in together], one(values[world], key[world]))


def test_shares_are_those_of_the_hazards(tools: Any) -> None:
    """One receiver with eight edges, two of them parallel: counts of 200,000 draws against shares, by chi squared."""
    if tools.examples < 60:
        pytest.skip("many draws, which the CPU makes")
    weight = torch.tensor([0.001, 0.4, 2.0, 1.0, 1.0, 3.5, 0.25, 7.0])
    source = torch.tensor([1, 2, 3, 4, 4, 5, 6, 7])
    graph = tools.graph(source, torch.zeros(8, dtype=torch.int64), 8, weight)
    values = torch.tensor([[1.0, 9.0, 1.0, 0.5, 1.0, 1.0, 0.0, 2.0]])
    where = (torch.arange(8) == 0).to(torch.int8)[None]
    draws = 200_000
    key = torch.stack([torch.full((draws,), 11), torch.arange(draws)], dim=1)
    won, _ = pick(values.expand(draws, -1), where.expand(draws, -1), graph, tools.empty, key, tools.step)
    rate = torch.zeros(8).index_add(0, source, weight * values[0, source])
    counts, expected = torch.bincount(won[:, 0], minlength=8), draws * rate / rate.sum()
    assert counts[[0, 6]].sum() == 0
    runs = rate > 0
    assert float(((counts - expected)[runs] ** 2 / expected[runs]).sum()) < 20.5  # chi squared of 5: p = 0.001


def test_edges_in_another_order_and_agents_elsewhere_give_the_same_cause(tools: Any) -> None:
    generator = torch.Generator("cpu").manual_seed(0)
    n, edges = 50, 400
    source, target = (torch.randint(0, n, (edges,), generator=generator, device="cpu") for _ in range(2))
    order, place = (
        torch.randperm(edges, generator=generator, device="cpu"),
        torch.randperm(n, generator=generator, device="cpu"),
    )
    values, key = torch.rand(1, n), torch.tensor([[5, 2]])
    here = pick(
        values, torch.ones(1, n, dtype=torch.int8), tools.graph(source, target, n), tools.empty, key, tools.step
    )
    moved = tools.graph(place[source][order], place[target][order], n)
    ids = torch.argsort(place).to(tools.device)
    at = place.to(tools.device)
    there = pick(values[:, ids], torch.ones(1, n, dtype=torch.int8), moved, ids[None], key, tools.step)
    back = torch.where(there[0][0, at] >= 0, ids[there[0][0, at].long().clamp(min=0)].to(torch.int32), -1)
    assert torch.equal(back, here[0][0])


@pytest.mark.parametrize("worlds", [1, 3])
@pytest.mark.parametrize("capacity", [4, 2000])
def test_appended_rows(tools: Any, worlds: int, capacity: int) -> None:
    """Two steps; a buffer that is full counts on. Rows of a step have no order on a GPU."""
    num = 1100
    masks = (torch.rand(2, worlds, num) < 0.01).to(torch.int8)
    by = torch.randint(-1, num, (worlds, num), dtype=torch.int32)
    real, flag = torch.rand(worlds, num), torch.rand(worlds, num) < 0.5
    own = (torch.randperm(worlds * num) * 2**33 + 5).view(worlds, num)
    for ids in (tools.empty, own, own[:1]):
        made = []
        for reference in (False, True):
            count = torch.zeros(worlds, dtype=torch.int64)
            dtypes = (torch.int64, torch.int64, torch.float32, torch.int64, torch.bool)
            rows = [torch.zeros(worlds, capacity, dtype=dtype) for dtype in dtypes]
            for step, mask in enumerate(masks):
                columns, now = [real, by, flag], torch.tensor(step + 7)
                if reference:
                    with ops.reference_only():
                        ops.append_events(count, rows, ids, now, 1, [ops.Happened(mask, columns)])
                else:
                    ops.append_events(count, rows, ids, now, 1, [ops.Happened(mask, columns)])
            made.append((count, rows))
        (count, rows), (other, expected) = made
        assert torch.equal(count, other)
        assert torch.equal(count, masks.sum((0, 2)))
        for world in range(worlds):
            kept = min(int(count[world]), capacity)
            lines = [
                sorted(zip(*(row[world, :kept].tolist() for row in found), strict=True)) for found in (rows, expected)
            ]
            assert len(lines[0]) == kept
            assert lines[0] == lines[1] or capacity == 4  # which of a step find room is open


@pytest.mark.parametrize("graphs", [1, 2])
@pytest.mark.parametrize("worlds", [1, 3])
def test_races_of_rows(tools: Any, worlds: int, graphs: int) -> None:
    """Found out for the rows alone, of several steps at once where there are no other columns, causes are the same."""
    num = 24
    both = [tools.random_graph(num, 90, weighted=True), tools.random_graph(num, 90, seed=1)][:graphs]
    key = torch.stack([torch.full((worlds,), 7), torch.arange(worlds)], dim=1)
    streams = [STREAM, STREAM + 1][:graphs]
    weights = [one.weight if one.weight is not None else torch.empty(0) for one in both]
    arrays = (weights, [one.in_ptr for one in both], [one.in_idx for one in both])
    for ids, more in ((tools.empty, 0), ((torch.randperm(worlds * num) * 2**33 + 5).view(worlds, num), 1)):
        steps, known = [], []
        for turn in range(1 if more else 3):
            mask, values = (torch.rand(worlds, num) < 0.3).to(torch.int8), torch.rand(worlds, num)
            factor, price, now = torch.rand(1, graphs), torch.rand(worlds, num), tools.step + turn
            sent, to = [values, (values > 0.5).to(torch.int8)][:graphs], [mask * (price > 0.3), mask][:graphs]
            found = pick(sent, to, both, ids, key, now, factor)
            race = ops.Race(sent, to, factor, *arrays, ids, key, now, streams, more, more + 1)
            steps.append(ops.Happened(mask, [price, None, None] if more else [None, None], race))
            known.append(ops.Happened(mask, [price, *found] if more else list(found)))
        for capacity in (3 * num, 4):
            made = []
            for given in ([[one] for one in known], [steps]):
                count = torch.zeros(worlds, dtype=torch.int64)
                kinds = (torch.int64, torch.int64, *[torch.float32] * more, torch.int64, torch.int8)
                rows = [torch.zeros(worlds, capacity, dtype=kind) for kind in kinds]
                for turn, part in enumerate(given):
                    ops.append_events(count, rows, ids, tools.step + turn, more, part)
                lines = [sorted(zip(*(r[w].tolist() for r in rows), strict=True)) for w in range(worlds)]
                made.append((count.tolist(), lines))
            assert made[0][0] == made[1][0]
            assert made[0][1] == made[1][1] or capacity == 4  # which of a step find room is open
