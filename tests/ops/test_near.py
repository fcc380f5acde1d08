"""Sums over pairs that are near each other: every variant has the bits of the reference."""

import itertools

import pytest
import torch

from denizen import ops
from denizen.ops import PairBuilder
from denizen.space import Space


def program(dims: int) -> str:
    """Every operation that kernels know, of (offset, square, two of a neighbour, one of the receiver, one for all)."""
    made = PairBuilder(dims, 2, 1, 1)
    offset, square, (weight, other), (own,), (reach,) = made.inputs
    distance = made.op("sqrt", square)
    close = made.op("lt", distance, reach)
    push = made.op("where", close, made.op("div", weight, distance), made.neg(other))
    same = made.op("or", made.op("eq", weight, own), made.op("not", made.op("le", own, made.op("abs", other))))
    kept = made.op("and", same, made.op("lt", made.op("floor", made.scaled(own, 3.0)), made.const(2.0)))
    waves = made.add(made.exp(made.neg(distance)), made.sub(made.sin(made.scaled(square, 9.0)), made.sin(own, True)))
    forces = [made.mul(push, one) for one in offset]
    return made.program([*forces, waves, made.number(kept), made.const(1.0)]).text


@pytest.mark.parametrize(("dims", "torus"), list(itertools.product((1, 2, 3), (True, False))))
@pytest.mark.parametrize(("worlds", "num", "side"), [(1, 1, 2.0), (2, 9, 3.1), (3, 41, 3.1), (2, 150, 7.3)])
def test_sums_over_near_pairs(tools, inside, dims, torus, worlds, num, side):
    sizes = [float(torch.tensor(one)) for one in (side, 1.6 * side, 2.0)[:dims]]
    counts = Space(size=tuple(sizes), torus=torus)._cells(1.0, num)
    position = torch.rand(worlds, num, dims) * torch.tensor(sizes)
    position[:, -num // 3 :] = position[:, :1]  # many in one place
    key = (torch.randperm(num) * 5)[None]
    present = (torch.rand(worlds, num) < 0.9).to(torch.int8)
    theirs, own, shared = torch.rand(worlds, num, 2), torch.rand(worlds, num, 1), torch.rand(worlds, 1)
    for few, ids, there in ((True, key, None), (False, key[:, :0], present), (False, key, present)):
        if ops.variant(position.device) == "triton" and not few:  # the sort as for many agents
            inside.sorted_pairs()
        if there is not None:  # those who are not there come last in any order
            there = there if ids.numel() else there[:1]
        binned = ops.bin_agents(position, ids, there, sizes, counts)
        with ops.reference_only():
            plain = ops.bin_agents(position, ids, there, sizes, counts)
        kept = binned[2] < torch.tensor(counts).prod()
        for one, other in zip(binned, plain, strict=True):
            if one.dim() == 2 and one.shape[1] == num:
                tools.assert_same_bits(one * kept, other * kept)
        tools.assert_same_bits(binned[1], plain[1])
        tools.assert_same_bits(binned[3] * kept[:, None], plain[3] * kept[:, None])
        spec = (sizes, counts, torus, 1.0)
        out = tools.both(ops.sum_pairs, position, theirs, own, shared, *binned, *spec, program(dims))
        nearest = tools.both(ops.nearest_agent, *binned, *spec)
        assert torch.equal(nearest >= 0, out[..., -1] > 0)


def test_a_position_outside_near_pairs(tools):
    position = torch.rand(2, 20, 2)
    position[1, 3, 0] = torch.nan
    binned = ops.bin_agents(position, torch.zeros(1, 0, dtype=torch.int64), None, [1.0, 1.0], [3, 3])
    empty = torch.zeros(2, 20, 0)
    made = PairBuilder(2, 0, 0, 0)
    ones = made.program([made.const(1.0)]).text
    spec = ([1.0, 1.0], [3, 3], True, 0.3)
    found = tools.both(ops.sum_pairs, position, empty, empty, empty[:, 0], *binned, *spec, ones)
    assert found[1].isnan().all()
    assert not found[0].isnan().any()
    assert (tools.both(ops.nearest_agent, *binned, *spec)[1] == -2).all()
