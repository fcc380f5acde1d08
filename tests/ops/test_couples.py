"""Pairs of seekers: the same by every variant, and what a lot by words promises."""

from typing import Any

import pytest
import torch
from torch import Tensor

from denizen import ops


def seekers(worlds: int, num: int, pools: int, equal: bool) -> tuple[Tensor, Tensor]:
    """Pools, a third of them nobody's, and words, few of them different where `equal`."""
    pool = torch.randint(-max(1, pools // 2), pools, (worlds, num)).clamp(min=-1).to(torch.int32)
    return pool, torch.randint(0, 3 if equal else 2**32, (worlds, num))


SIZES = [(1, 1), (2, 2), (7, 1), (64, 4), (700, 6), (5000, 2)]


@pytest.mark.parametrize(
    ("num", "pools", "equal", "sides"),
    # sides are two, and words have 32 bits: thousands of equal ones do not occur
    [
        (*s, e, two)
        for s in SIZES
        for e in (False, True)
        for two in (False, True)
        if s[1] % 2 < 2 - two and s[0] * e < 1000
    ],
)
def test_seekers_in_couples(tools: Any, num: int, pools: int, equal: bool, sides: bool) -> None:
    pool, word = seekers(3, num, pools, equal)
    for ids in (tools.empty, torch.randperm(num)[None], torch.stack([torch.randperm(num) for _ in range(3)])):
        partner = tools.both(ops.couples, pool, word, ids, pools, sides).long()
        paired, place = partner >= 0, torch.arange(num)
        back = partner.clamp(min=0).gather(1, partner.clamp(min=0))
        assert (back == place)[paired].all()
        assert (partner != place).all()
        other = pool.gather(1, partner.clamp(min=0))
        assert (other == (pool ^ 1 if sides else pool))[paired].all()
        assert (pool >= 0)[paired].all()
        counts = torch.stack([(pool == p).sum(dim=1) for p in range(pools)])
        pairs = torch.minimum(counts[::2], counts[1::2]).sum(dim=0) if sides else (counts // 2).sum(dim=0)
        assert torch.equal(paired.sum(dim=1), 2 * pairs)


def test_couples_do_not_depend_on_places(tools: Any) -> None:
    """Whoever has which id and which word pairs with whom: agents in another order are the same pairs."""
    pool, word = seekers(2, 300, 4, True)
    ids, order = torch.randperm(300)[None], torch.randperm(300)
    pairs = tools.both(ops.couples, pool, word, ids, 4, False)
    moved = tools.both(ops.couples, pool[:, order], word[:, order], ids[:, order], 4, False)
    named = torch.where(pairs < 0, -1, ids[0][pairs.clamp(min=0)])
    after = torch.where(moved < 0, -1, ids[0][order][moved.clamp(min=0)])
    assert torch.equal(after, named[:, order])


def test_couples_in_worlds(tools: Any) -> None:
    """Under vmap as alone."""
    pool, word = seekers(3, 50, 2, False)
    together = torch.vmap(lambda p, w: ops.couples(p[None], w[None], tools.empty, 2, False)[0])(pool, word)
    assert torch.equal(together, ops.couples(pool, word, tools.empty, 2, False))
