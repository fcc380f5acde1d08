"""Draws that take their masks apart: the bits of draws of products, and of all."""

from typing import Any

import pytest
import torch

from denizen import ops
from denizen.rng import Rng


def identities(tools: Any, num: int, named: str) -> torch.Tensor:
    """None, those of places with some of the born among them, or any."""
    if named == "places":
        return tools.empty
    if named == "any":
        return (2**40 + torch.randperm(3 * num)[:num])[None]
    born = torch.randint(2**61, 2**62, (num,))
    return torch.where(torch.rand(num) < 0.1, born, torch.arange(num))[None]


@pytest.mark.parametrize(("num", "named"), [(5, "places"), (2051, "places"), (1503, "born"), (1500, "any")])
@pytest.mark.parametrize("hazard", [False, True])
def test_draws_among_those_of_masks(tools: Any, num: int, named: str, hazard: bool) -> None:
    key, ids = torch.tensor([[3, 0], [3, 1]]), identities(tools, num, named)
    masks = [torch.empty(2, 0, dtype=torch.int8), *((torch.rand(2, num) < p).to(torch.int8) for p in (0.5, 0.002, 0))]
    each = tools.hazards(2, num) if hazard else torch.rand(2, num)
    one = torch.tensor([[0.3], [0.0]])
    for values in (each, one, one / 0.3):  # drawn by each one's own threshold, and by that of all
        for where, alive in zip(masks, [*masks[1:], masks[0]], strict=True):
            arguments = (num, hazard, ids, key, tools.step, 9)
            drawn, bad = tools.both(ops.draw_among, values, where, alive, *arguments)
            every = values.isfinite().all() or not where.numel()
            wanted, wrong = ops.draw_mask(values.expand(2, num).contiguous(), hazard, *arguments[2:])
            for mask in (one for one in (where, alive) if one.numel()):
                wanted = wanted * mask
            if every:  # 0 times infinity is a bad value, as it is in a product
                assert torch.equal(drawn, wanted)
                assert torch.equal(bad, wrong)


@pytest.mark.parametrize("num", [5, 70])
def test_a_mask_is_no_factor(tools: Any, num: int) -> None:
    """Whole numbers of any width that are not 0 let an event happen, and do not multiply its hazard."""
    key, gate = torch.tensor([3, 0]), torch.arange(num) % 3
    drawn = [
        Rng(key, tools.step, num=num, ids=ids).event("x", hazard, where=gate.to(dtype))
        for ids in (None, torch.arange(num))
        for hazard in (0.4, torch.full((num,), 0.4), torch.full((num,), 0.4, dtype=torch.float64))
        for dtype in (torch.bool, torch.int8, torch.uint8, torch.int32, torch.float32)
    ]
    with ops.reference_only():
        drawn.append(Rng(key, tools.step, num=num).event("x", 0.4, where=gate.to(torch.int8)))
    assert all(torch.equal(one, drawn[0]) for one in drawn)


@pytest.mark.parametrize("bad", [float("nan"), -0.5, float("inf"), 1.5])
def test_bad_values_among_those_of_masks(tools: Any, bad: float) -> None:
    """A bad value counts where it is not masked out, of one for all as of one for each."""
    key, num = torch.tensor([[3, 0], [3, 1]]), 40
    where, alive = (torch.arange(num)[None] >= torch.tensor([[first], [num]]) for first in (10, 20))
    gates = where.to(torch.int8), alive.to(torch.int8)
    none = torch.empty(2, 0, dtype=torch.int8)
    for hazard in (False, True):
        for values in (torch.full((2, 1), bad), torch.full((2, num), bad)):
            for pair in (gates, (gates[0], none), (none, gates[1]), (none, none)):
                tools.both(ops.draw_among, values, *pair, num, hazard, tools.empty, key, tools.step, 9)


def test_worlds_of_draws_among_those_of_masks(tools: Any) -> None:
    worlds, num = 3, 50
    key = torch.stack([torch.full((worlds,), 3), torch.arange(worlds)], dim=1)
    where, alive = ((torch.rand(worlds, num) < 0.5).to(torch.int8) for _ in range(2))
    none = torch.empty(1, 0, dtype=torch.int8)

    def world(rate: torch.Tensor, where: torch.Tensor, alive: torch.Tensor, key: torch.Tensor) -> Any:
        place = tools.empty, key[None], tools.step
        among = [
            ops.draw_among(rate.reshape(1, 1), *pair, num, True, *place, 7)[0][0]
            for pair in ((where[None], alive[None]), (none, alive[None]), (none, none))
        ]
        times, bad = ops.draw_exponential(rate.reshape(1, 1), where[None], *place, 8)
        return [*among, times[0], bad[0]]

    rates = torch.tensor([0.4, 0.0, 2.0])
    together = torch.vmap(world)(rates, where, alive, key)
    for k in range(worlds):
        tools.assert_same_bits([one[k] for one in together], world(rates[k], where[k], alive[k], key[k]))


@pytest.mark.parametrize("named", ["places", "born"])
def test_exponential_times_of_some(tools: Any, named: str) -> None:
    """They are those that everybody would have, and nobody else's rate matters."""
    num = 3000
    ids, key = identities(tools, num, named), torch.tensor([[3, 0], [3, 1]])
    where, rates = (torch.rand(2, num) < 0.1).to(torch.int8), torch.rand(2, num) + 0.5
    rates = torch.where(where != 0, rates, torch.tensor([0.0, float("nan"), -1.0])[torch.randint(0, 3, (2, num))])
    drawn, bad = tools.both(ops.draw_exponential, rates, where, ids, key, tools.step, 9)
    assert not bad.any()
    rates[1] = torch.where(torch.rand(num) < 0.1, -1.0, rates[1])
    assert tools.both(ops.draw_exponential, rates, where, ids, key, tools.step, 9)[1].tolist() == [0, 1]
    of = {"num": num, "ids": None if named == "places" else ids[0]}
    some = Rng(key[0], tools.step, **of).exponential("a", 0.5, where=where[0])
    everybody = Rng(key[0], tools.step, **of).exponential("a", 0.5)
    tools.assert_same_bits(some, torch.where(where[0] != 0, everybody, 0.0))
