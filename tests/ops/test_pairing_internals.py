"""Places of the newborn, and lots that are equal."""

from typing import Any

import numpy as np
import pytest
import torch

from denizen import ops
from denizen.model._births import _placed


@pytest.mark.parametrize(("born", "lives"), [(0.0, 0.5), (0.2, 0.5), (0.9, 0.9), (1.0, 0.0)])
def test_places_of_the_newborn(tools: Any, born: float, lives: float) -> None:
    alive, parents = (torch.rand(300) < lives).to(torch.int8), (torch.rand(200) < born).to(torch.int8)
    given = alive, parents, torch.randint(0, 2**61, (200,)), torch.randint(0, 2**61, (300,)), tools.step
    there, parent, ids, full = _placed(*given)
    with ops.reference_only():
        expected = _placed(*given)
    tools.assert_same_bits((there, ids, full), (expected[0], *expected[2:]))
    assert torch.equal(parent[there], expected[1][there])


def test_children_of_worlds_in_different_steps() -> None:
    """As those of environments are."""
    alive, parents = torch.randint(0, 2, (3, 40)).to(torch.int8), torch.randint(0, 2, (3, 9)).to(torch.int8)
    ids, parent_ids, steps = torch.randint(0, 2**61, (3, 40)), torch.arange(9), torch.tensor([4, 0, 7])
    together = torch.vmap(_placed, (0, 0, None, 0, 0))(alive, parents, parent_ids, ids, steps)
    for w in range(3):
        alone = _placed(alive[w], parents[w], parent_ids, ids[w], steps[w])
        assert all(torch.equal(one[w], other) for one, other in zip(together, alone, strict=True))


@pytest.mark.parametrize("num", [3, 200])
def test_equal_lots_are_settled_by_identity(num: int) -> None:
    ordered = pytest.importorskip("denizen.ops._cpu_pairing", exc_type=ImportError)._ordered
    ids, words = np.random.default_rng(0).permutation(num), np.arange(num, dtype=np.uint32) % 2
    for names, expected in ((ids, np.lexsort((ids, words))), (ids[:0], np.argsort(words, kind="stable"))):
        who, lots = np.arange(num, dtype=np.int32), words.copy()
        ordered(who, lots, num, names)
        assert who.tolist() == expected.tolist()
        assert lots.tolist() == sorted(words)
