"""Ties in slots: the same by every variant, and by hand."""

from typing import Any

import pytest
import torch

from denizen import ops


def ties(worlds: int, agents: int, slots: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Partners of anybody, half of them over in step 5."""
    who = torch.randint(0, agents, (worlds, agents, slots), dtype=torch.int32)
    return who, torch.randint(3, 8, (worlds, agents, slots), dtype=torch.int32)


@pytest.mark.parametrize(("worlds", "agents", "slots"), [(1, 1, 1), (3, 50, 4), (2, 700, 1), (1, 5, 9)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int32, torch.float32, torch.float64])
def test_sums_in_slots(tools: Any, worlds: int, agents: int, slots: int, dtype: torch.dtype) -> None:
    who, until = ties(worlds, agents, slots)
    values = torch.randint(0, 2 if dtype == torch.bool else 100, (worlds, agents)).to(dtype)
    with torch.no_grad():
        total = tools.both(ops.sum_slots, values, who, until, tools.step)
    taken = until > 5
    told = values.double().gather(1, who.flatten(1).long()).view(who.shape)
    assert torch.equal(total.double(), (told * taken).sum(dim=2))
    assert torch.equal(tools.both(ops.taken, until, tools.step).long(), taken.sum(dim=2))


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_new_ties(tools: Any, slots: int) -> None:
    who, until = ties(2, 60, slots)
    partner = torch.randint(-30, 60, (2, 60), dtype=torch.int32).clamp(min=-1)
    end = torch.randint(6, 9, (2, 60), dtype=torch.int32)
    ids = torch.stack([torch.randperm(60) for _ in range(2)])
    for named in (tools.empty, ids[:1]):
        tools.both(ops.join, who, until, partner, end, named, tools.step)
    new, after = tools.both(ops.join, who, until, partner, end, ids, tools.step)
    other = partner.long().clamp(min=0)
    end = torch.where(ids < ids.gather(1, other), end, end.gather(1, other))
    taken = until > 5
    known = (taken & (who == partner[..., None])).any(dim=2)
    joins = (partner >= 0) & ~known & ~taken.all(dim=2)
    changed = (new != who) | (after != until)
    assert (changed.sum(dim=2) <= joins).all()
    assert not (changed & taken).any()
    first = (~taken).to(torch.int8).argmax(dim=2, keepdim=True)
    assert torch.equal(new.gather(2, first)[..., 0][joins], partner[joins])
    assert torch.equal(after.gather(2, first)[..., 0][joins], end[joins])


@pytest.mark.parametrize(
    ("agents", "slots", "pools", "sides"), [(1, 1, 1, False), (300, 3, 2, True), (700, 2, 1, False)]
)
def test_seekers_form_ties(tools: Any, agents: int, slots: int, pools: int, sides: bool) -> None:
    """By one op as by one after the other, for any ids; a world alone as among others."""
    who, until = ties(3, agents, slots)
    room = (until <= 5).any(dim=2)
    seat = torch.where(room, torch.randint(-1, pools, room.shape), -1).to(torch.int32)
    seat[2, 0], seat[0, -1] = ops.NO_ROOM, -1
    lasts = torch.rand(3, agents) * 9
    lasts[:, ::7], lasts[0, -1] = torch.inf, torch.nan
    key, draw = torch.randint(0, 2**32, (3, 2)), torch.tensor(11)
    ids = torch.stack([torch.randperm(agents) for _ in range(3)])
    changed = 0
    for named in (tools.empty, ids):
        given = (seat, lasts, named, key, tools.step, draw, 2**31 + 7, pools, sides)
        new, after, bad = tools.both(ops.form_ties, who, until, *given)
        assert bad.tolist() == [[0, 1], [0, 0], [1, 0]]
        one = who[1:2], until[1:2], seat[1:2], lasts[1:2], named[-2:-1] if len(named) == 3 else named, key[1:2]
        alone = ops.form_ties(*one, *given[4:])
        tools.assert_same_bits(alone, (new[1:2], after[1:2], bad[1:2]))
        changed += int((after != until).sum())
        assert not ((after != until) & (until > 5)).any()
    assert changed > 0 or agents == 1


def test_slots_in_worlds(tools: Any) -> None:
    """Under vmap as alone; what all worlds share is given once."""
    who, until = ties(3, 40, 2)
    values = torch.randint(0, 2, (40,), dtype=torch.int8)
    together = torch.vmap(lambda w, u: ops.sum_slots(values[None], w[None], u[None], tools.step)[0])(who, until)
    assert torch.equal(together, ops.sum_slots(values.expand(3, -1), who, until, tools.step))
    degree = torch.vmap(lambda u: ops.taken(u[None], tools.step)[0])(until)
    assert torch.equal(degree, ops.taken(until, tools.step))
    seat, lasts, key = (
        -torch.randint(0, 2, (3, 40), dtype=torch.int32),
        torch.rand(3, 40) * 9,
        torch.arange(6).view(3, 2),
    )
    more = (tools.empty, key, tools.step, tools.step, 7, 1, False)
    each = torch.vmap(
        lambda *one: [t[0] for t in ops.form_ties(*(t[None] for t in one[:4]), more[0], one[4][None], *more[2:])]
    )
    alone = ops.form_ties(who, until, seat, lasts, *more)
    assert all(map(torch.equal, each(who, until, seat, lasts, key), alone))


def test_slots_in_worlds_that_began_at_different_times(tools: Any) -> None:
    """As lives of environments do: each has a step of its own under vmap."""
    who, until = ties(3, 40, 2)
    steps = tools.step + torch.tensor([0, 2, -1], device=tools.step.device)
    seat = -torch.randint(0, 2, (3, 40), dtype=torch.int32)
    lasts, key, values = torch.rand(3, 40) * 9, torch.arange(6).view(3, 2), torch.randint(0, 2, (3, 40)).to(torch.int8)
    lasts[:, 3] = torch.inf

    def world(who: Any, until: Any, seat: Any, lasts: Any, key: Any, values: Any, step: Any) -> tuple[Any, ...]:
        slots = who[None], until[None]
        formed = ops.form_ties(*slots, seat[None], lasts[None], tools.empty, key[None], step, tools.step, 7, 1, False)
        joined = ops.join(*slots, seat[None], (step + lasts).clamp(max=99).to(torch.int32)[None], tools.empty, step)
        return *formed, *joined, ops.sum_slots(values[None], *slots, step), ops.taken(slots[1], step)

    given = (who, until, seat, lasts, key, values, steps)
    together = torch.vmap(world)(*given)
    for number, each in enumerate(zip(*given, strict=True)):
        assert all(torch.equal(one[number], other) for one, other in zip(together, world(*each), strict=True))
