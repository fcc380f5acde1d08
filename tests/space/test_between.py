"""Sums between kinds of agents, and pairs by lot: exact, one to one, as many as can be, fair, whatever the order."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import denizen as dz
from denizen import ops
from denizen.errors import ModelError
from denizen.rng import Rng
from denizen.space import pairing, partners, sum_by

CELLS = 6


def rng_for(seed: int = 0) -> Rng:
    return Rng(torch.tensor([seed, 0]), torch.tensor(3), num=1)


def pairs(wolves: Tensor, sheep: Tensor, seed: int = 0, ids: tuple[Tensor, Tensor] | None = None) -> list[Tensor]:
    rng = rng_for(seed)
    if ids is not None:
        rng._axes |= {axis: dz.rng.Known(one.numel(), one) for axis, one in zip(("wolves", "sheep"), ids, strict=True)}
    return list(pairing(rng, "hunt", CELLS, wolves=wolves, sheep=sheep))


@given(
    wolves=st.lists(st.integers(-1, CELLS - 1), max_size=12),
    sheep=st.lists(st.integers(-1, CELLS - 1), max_size=12),
    seed=st.integers(0, 99),
)
def test_pairs_are_one_to_one_and_as_many_as_can_be(wolves: list[int], sheep: list[int], seed: int) -> None:
    one, other = torch.tensor(wolves, dtype=torch.int32), torch.tensor(sheep, dtype=torch.int32)
    found, back = pairs(one, other, seed)
    for k, partner in enumerate(found.tolist()):
        assert partner < 0 or (back[partner] == k and one[k] == other[partner] >= 0)
    assert int((back >= 0).sum()) == int((found >= 0).sum())
    for cell in range(CELLS):
        most = min(wolves.count(cell), sheep.count(cell))
        assert int(((found >= 0) & (one == cell)).sum()) == most


def test_every_matching_is_as_likely() -> None:
    """Two wolves and three sheep in a cell: six matchings."""
    wolves, sheep = torch.zeros(2, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    found = [tuple(pairs(wolves, sheep, seed)[0].tolist()) for seed in range(1_800)]
    counts = np.array([found.count((a, b)) for a in range(3) for b in range(3) if a != b])
    assert counts.sum() == 1_800
    assert ((counts - 300) ** 2 / 300).sum() < 20.5  # chi-square of 5 degrees, 0.1 %


def test_the_order_of_places_changes_nothing_and_worlds_go_in_a_batch() -> None:
    gen = torch.Generator().manual_seed(0)
    wolves, sheep = torch.randint(-1, CELLS, (40,), generator=gen), torch.randint(-1, CELLS, (70,), generator=gen)
    ids = (torch.arange(40), torch.arange(70))
    found, _ = pairs(wolves, sheep, 5, ids)
    order = tuple(torch.randperm(len(one), generator=gen) for one in ids)
    there, _ = pairs(wolves[order[0]], sheep[order[1]], 5, order)
    partner = torch.where(there >= 0, order[1][there.clamp(min=0)], -1)
    assert torch.equal(found[order[0]], partner)

    def one(cells: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        return pairing(rng_for(5), "hunt", CELLS, wolves=cells, sheep=other)

    both = torch.vmap(one)(torch.stack([wolves, wolves.flip(0)]), torch.stack([sheep, sheep]))
    assert torch.equal(both[0][0], found)
    assert torch.equal(both[1][1], one(wolves.flip(0), sheep)[1])
    compiled = torch.compile(one, fullgraph=True, backend="eager")
    assert torch.equal(compiled(wolves, sheep)[0], found)


def test_equal_lots_are_settled_by_identity(inside: Any) -> None:
    inside.one_lot_for_all()
    cells = torch.zeros(3, dtype=torch.int64)
    with ops.reference_only():  # tests/ops/test_pairing.py asks the CPU's own loop
        found, _ = pairs(cells, cells[:1], ids=(torch.tensor([7, 5, 6]), torch.tensor([0])))
    assert found.tolist() == [-1, 0, -1]


def test_partners_of_one_kind() -> None:
    group = torch.tensor([0, 1, 0, 0, -1, 1, 0, 0, -1])
    found = partners(Rng(torch.tensor([2, 0]), torch.tensor(3), num=9), "meet", 2, group)
    assert (found < 0).sum() == 3  # who seeks nobody, and the odd one of the first group
    for k, other in enumerate(found.tolist()):
        assert other < 0 or (found[other] == k != other and group[other] == group[k])
    everybody = partners(Rng(torch.tensor([2, 0]), torch.tensor(3), num=8), "meet")
    assert torch.equal(everybody[everybody], torch.arange(8))


def test_sums_by_group_are_exact_in_any_order() -> None:
    gen = torch.Generator().manual_seed(1)
    firm = torch.randint(-1, 5, (10_000,), generator=gen)
    wages = torch.rand(10_000, generator=gen) * 1e3
    order = torch.randperm(10_000, generator=gen)
    paid = sum_by(firm, wages, 5, max=1e3)
    assert torch.equal(paid, sum_by(firm[order], wages[order], 5, max=1e3))
    exact = torch.stack([wages[firm == k].double().sum() for k in range(5)])
    assert torch.allclose(paid.double(), exact, rtol=1e-6)
    assert sum_by(firm, torch.ones_like(firm), 5).tolist() == [int((firm == k).sum()) for k in range(5)]
    assert sum_by(firm, wages, 4).isnan().all()
    assert sum_by(firm, firm, 4).tolist() == [-(2**31)] * 4
    slope = wages.clone().requires_grad_()
    (sum_by(firm, slope, 5) * torch.arange(5)).sum().backward()
    assert torch.equal(slope.grad, firm.clamp(min=0).float())


def test_wrong_uses() -> None:
    cells = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ModelError, match=r"got 1 kinds \(wolves\), expected two, by their axes"):
        pairing(rng_for(), "hunt", 4, wolves=cells)
    with pytest.raises(ModelError, match=r"pairing: sheep is torch.float32 \(3,\), expected whole numbers"):
        pairing(rng_for(), "hunt", 4, wolves=cells, sheep=cells.float())
    with pytest.raises(ModelError, match="pairing: wolves has 3 entries, expected 2, one for each of wolves"):
        pairs(cells, cells, ids=(torch.arange(2), torch.arange(3)))
    with pytest.raises(ModelError, match="sum_by: values has 2 entries, expected 3, as group has"):
        sum_by(cells, cells[:2], 4)
    with pytest.raises(ModelError, match=r"pairing: sheep is torch.bool \(3,\), expected whole numbers"):
        pairing(
            Rng(torch.tensor([1, 0]), torch.tensor(0), num=3), "x", 3, sheep=torch.ones(3) > 0, wolves=torch.zeros(3)
        )
    with pytest.raises(ModelError, match="pairing: rng is str 'rng', expected the rng of the step"):
        pairing("rng", "x", 3, sheep=torch.arange(3), wolves=torch.arange(3))  # pyrefly: ignore
    with pytest.raises(ModelError, match=r"sum_by: group is torch\.float32, expected whole numbers"):
        sum_by(cells.float(), cells, 4)


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int16, torch.int64])
def test_groups_of_a_narrow_kind_may_be_few_of_many(kind):
    group = torch.tensor([100, 3, 100, 3], dtype=kind)
    assert sum_by(group, torch.ones(4, dtype=torch.int8), 300).nonzero().flatten().tolist() == [3, 100]
    rng = dz.rng.Rng(torch.tensor([0, 0]), torch.tensor(0), num=4)
    assert partners(rng, "meet", 300, group).tolist() == [2, 3, 0, 1]
    assert not any(bad for _, bad in rng._bad)
