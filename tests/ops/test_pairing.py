"""Pairs of two kinds, steps aside and places of the newborn: the CPU's loops have the bits of plain torch."""

from typing import Any

import pytest
import torch

from denizen import ops
from denizen.rng import Rng
from denizen.space import Grid


@pytest.mark.parametrize(("num", "other", "groups"), [(1, 1, 1), (60, 40, 300), (200, 300, 20), (150, 400, 2)])
def test_two_kinds_in_pairs(tools: Any, num: int, other: int, groups: int) -> None:
    first, second = torch.randint(-1, groups, (num,)), torch.randint(-1, groups, (other,))
    key = torch.tensor([[3, 0]])
    names = torch.randint(0, 2**61, (1, num)), (torch.randperm(other) + 2**40)[None]
    for ids in ((tools.empty, tools.empty), names):
        a, b, bad = tools.both(ops.pair_kinds, first, second, *ids, groups, key, tools.step, 7, 8)
        assert [int(flag) for flag in bad] == [0, 0]
        assert torch.equal(first[a >= 0], second[a[a >= 0]])
        assert torch.equal(b[a[a >= 0]], torch.arange(num)[a >= 0])
        met = torch.minimum(*(torch.bincount(one[one >= 0], minlength=groups) for one in (first, second)))
        assert int((a >= 0).sum()) == int(met.sum())


def test_groups_that_do_not_exist(tools: Any) -> None:
    args = tools.empty, tools.empty, 2, torch.tensor([[1, 0]]), tools.step, 1, 2
    a, b, bad = tools.both(ops.pair_kinds, torch.tensor([0, 2, -1]), torch.tensor([-2, 0]), *args)
    assert (a.tolist(), b.tolist(), [int(flag) for flag in bad]) == ([1, -1, -1], [-1, 0], [1, 1])


@pytest.mark.parametrize(
    "grid",
    [Grid((5, 7)), Grid((4, 6), torus=False, radius=2), Grid((3, 4, 5), torus=False), Grid((1, 6), torus=False)],
    ids=str,
)
@pytest.mark.parametrize("named", [False, True])
def test_steps_aside(tools: Any, grid: Grid, named: bool) -> None:
    cell = torch.arange(-1, grid.num_cells + 1).repeat(11)
    ids = torch.randint(0, 2**61, cell.shape) if named else None
    who = torch.randint(0, 2, cell.shape).to(torch.int8)

    def moved(cell: Any, ids: Any, key: Any, step: Any, who: Any) -> Any:
        return grid.random_neighbour(cell, Rng(key, step, num=cell.numel(), ids=ids), who=who)

    given = cell, ids, torch.tensor([1, 2]), tools.step
    everybody, some = tools.both(moved, *given, None), tools.both(moved, *given, who)
    assert torch.equal(some, torch.where(who != 0, everybody, cell))


def test_in_worlds(tools: Any) -> None:
    """Under vmap as alone."""
    first, second, key = (
        torch.randint(-1, 9, (3, 40)),
        torch.randint(-1, 9, (3, 30)),
        torch.tensor([[1, w] for w in range(3)]),
    )

    def pairs(a: Any, b: Any, k: Any) -> Any:
        return ops.pair_kinds(a, b, tools.empty, tools.empty, 9, k[None], tools.step, 5, 6)[:2]

    together = torch.vmap(pairs)(first, second, key)
    for w in range(3):
        tools.assert_same_bits(pairs(first[w], second[w], key[w]), tuple(one[w] for one in together))
