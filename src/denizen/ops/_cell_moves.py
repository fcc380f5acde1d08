"""Moves of agents between cells: conflicts settled by draws, and random matchings of agents and free places.

`settle_cells` and `fill_cells` are written for one world, in plain torch; a GPU runs them, fused and captured. On the
CPU each of their operations is a pass over all agents or cells, and they sort all of them; so `settle_rows` and
`fill_rows` do the same there in a few loops over those who have something to win.

Priorities are 31 bits of a random word. Of equal ones the lower identity goes first, or the lower place.
"""

from typing import Any

import torch
from torch import Tensor

from denizen.ops._draws import _ids, draw_words
from denizen.ops._library import fold_worlds, register, unfold_worlds, variant, vmap_rule

WORD = 31  # bits of a priority; as many are left for a number, in an int64 without its sign
_LAST = torch.iinfo(torch.int64).max


def settle_cells(
    cell: Tensor,
    target: Tensor,
    alive: Tensor | None,
    capacity: Tensor,
    num_cells: int,
    rounds: int,
    one_each: bool,
    ids: Tensor,
    key: Tensor,
    step: Tensor,
    stream: int,
) -> tuple[Tensor, Tensor]:
    """Move the agents of one world to the cells that they want, as far as there is room; see `Grid.settle`.

    Args:
        cell: int64 `[N]`, where each is.
        target: int64 `[N]`, where each wants to be, -1 to stay.
        alive: `[N]`, not 0 for those who are there; or None.
        capacity: int64 `[cells]`, or `[1]` where all cells have the same.
        num_cells: number of cells.
        rounds: how often the losers try.
        one_each: whether `capacity` is 1, known without a look.
        ids: int64 `[1, N]`, or empty for 0 … N - 1.
        key: int64 `[1, 2]`.
        step: int64 `[]`.
        stream: of the priorities.

    Returns:
        int64 `[N]`, where each is now; int8 `[3]`: whether an agent was outside, a cell too full, a target beyond.
    """
    if variant(cell.device) == "numba":
        mask = None if alive is None else (alive != 0).to(torch.int8)[None]
        out, bad = settle_rows(
            cell[None], target[None], mask, capacity[None], num_cells, rounds, ids, key, step, stream
        )
        return out[0], bad[0]
    there, outside = counted(cell, alive, num_cells)
    held = _count(cell, there, num_cells)
    beyond = target >= num_cells if alive is None else (target >= num_cells) & (alive != 0)
    bad = torch.stack([outside.any(), (held > capacity).any(), beyond.any()]).to(torch.int8)
    wants = there & (target >= 0) & (target < num_cells) & (target != cell)
    here, goal = aside(cell, there, num_cells), aside(target, wants, num_cells)
    room = (capacity - held).clamp(min=0).to(torch.int32)
    priority = draw_words(ids, cell.shape[0], key, step, stream)[0] >> 1
    for _ in range(rounds):
        won = (first_of_each if one_each else lowest_of_each)(goal, wants, room, priority, ids)
        left = won.to(torch.int32)
        room = room.scatter_add(0, here, left).scatter_add(0, goal, -left)
        here, wants = torch.where(won, goal, here), wants & ~won
    return torch.where(there, here, cell), bad


def fill_cells(
    cell: Tensor,
    who: Tensor | None,
    alive: Tensor | None,
    begins: bool,
    num_cells: int,
    capacity: int,
    ids: Tensor,
    key: Tensor,
    step: Tensor,
    turn: int,
    place: int,
) -> tuple[Tensor, Tensor]:
    """Move agents of one world to free places drawn at random; see `Grid.to_empty`.

    Args:
        cell: int64 `[N]`, where each is, and stays where it finds no place.
        who: `[N]`, not 0 for those who move; or None.
        alive: `[N]`, not 0 for those who are there; or None.
        begins: whether nobody is anywhere yet, so that all places are free.
        num_cells: number of cells.
        capacity: of each.
        ids: int64 `[1, N]`, or empty for 0 … N - 1.
        key: int64 `[1, 2]`.
        step: int64 `[]`.
        turn: stream of the agents.
        place: stream of the places.

    Returns:
        int64 `[N]`, where each is now; int8 `[2]`: whether an agent was outside, or a cell too full.
    """
    if variant(cell.device) == "numba":
        masks = [None if one is None else (one != 0).to(torch.int8)[None] for one in (who, alive)]
        out, bad = fill_rows(cell[None], *masks, begins, num_cells, capacity, ids, key, step, turn, place)
        return out[0], bad[0]
    agents, places = cell.shape[0], num_cells * capacity
    there, outside = counted(cell, alive, num_cells)
    if begins:
        there, outside = torch.ones_like(there) if alive is None else alive != 0, torch.zeros_like(outside)
    held = _count(cell, torch.zeros_like(there) if begins else there, num_cells)
    bad = torch.stack([outside.any(), (held > capacity).any()]).to(torch.int8)
    moves = there if who is None else there & (who != 0)
    most = places if begins or alive is not None else places - agents  # all others are taken
    if most <= 0:
        return cell, bad
    free = _shuffled_places(held, places, capacity, most, key, step, place)
    agent = _shuffled_agents(moves, ids, draw_words(ids, agents, key, step, turn)[0] >> 1)
    pairs = min(most, agents)
    free, agent = free[:pairs], agent[:pairs]
    taken = (free < places) & (agent < agents)
    after = torch.cat([cell, cell[:1]])  # one more, for pairs that are none
    after = after.scatter(0, torch.where(taken, agent, agents), torch.div(free, capacity, rounding_mode="floor"))
    return after[:agents], bad


def counted(cell: Tensor, alive: Tensor | None, num_cells: int) -> tuple[Tensor, Tensor]:
    """Bool `[N]`: who is in a cell and counts, and who counts and is in none."""
    inside = (cell >= 0) & (cell < num_cells)
    return (inside, ~inside) if alive is None else (inside & (alive != 0), ~inside & (alive != 0))


def aside(cell: Tensor, counts: Tensor, num_cells: int) -> Tensor:
    """The cell of those who count; of the others one each, which does not matter, as they add nothing.

    Were it the same for all of them, a GPU would make them queue for it: atomic additions of nothing took three times
    as long as all others.
    """
    return torch.where(counts, cell, torch.arange(cell.shape[0], device=cell.device) % num_cells)


def first_of_each(goal: Tensor, wants: Tensor, room: Tensor, priority: Tensor, ids: Tensor) -> Tensor:
    """Who gets the one place of each cell: the lowest priority, of equal ones the lowest id. Bool `[N]`.

    Args:
        goal: int64 `[N]`, a cell for each.
        wants: bool `[N]`: who wants it.
        room: int32 `[cells]`.
        priority: int64 `[N]`, below 2**31.
        ids: int64 `[1, N]`, or empty.
    """
    won, custom = wants & (room.gather(0, goal) > 0), ids.numel() > 0
    number = 0 if custom else torch.arange(goal.shape[0], device=goal.device)
    for code in [(priority << WORD) | number, *([ids[0]] if custom else [])]:
        code = torch.where(won, code, _LAST)
        best = torch.full(room.shape, _LAST, device=goal.device).scatter_reduce(0, goal, code, "amin")
        won = won & (best.gather(0, goal) == code)
    return won


def lowest_of_each(goal: Tensor, wants: Tensor, room: Tensor, priority: Tensor, ids: Tensor) -> Tensor:
    """Who gets the places of each cell: as many of the lowest priorities as it has room for; else `first_of_each`."""
    by_id = torch.argsort(ids[0], stable=True) if ids.numel() else None
    code = (torch.where(wants, goal, room.shape[0]) << WORD) | priority
    code, order = torch.sort(code if by_id is None else code[by_id], stable=True)
    order = order if by_id is None else by_id[order]
    wanted = code >> WORD
    rank = torch.arange(goal.shape[0], device=goal.device) - torch.searchsorted(code, wanted << WORD)
    enters = (wanted < room.shape[0]) & (rank < room.gather(0, wanted.clamp(max=room.shape[0] - 1)))
    return torch.zeros_like(wants).scatter(0, order, enters)


def _count(cell: Tensor, counts: Tensor, num_cells: int) -> Tensor:
    """Those who count by cell: int32 `[cells]`."""
    zeros = torch.zeros(num_cells, dtype=torch.int32, device=cell.device)
    return zeros.scatter_add(0, aside(cell, counts, num_cells), counts.to(torch.int32))


def _shuffled_places(
    held: Tensor, places: int, capacity: int, most: int, key: Tensor, step: Tensor, stream: int
) -> Tensor:
    """Free places in random order, int64 `[most]`, after them numbers of none."""
    number = torch.arange(places, device=held.device)
    free = held.gather(0, torch.div(number, capacity, rounding_mode="floor")) <= number % capacity
    rank = free.cumsum(0) - 1
    listed = torch.full((most + 1,), places, device=held.device)
    listed = listed.scatter(0, torch.where(free & (rank < most), rank, most), number)[:most]
    return _by_priority(listed < places, listed, draw_words(listed[None], most, key, step, stream)[0] >> 1)


def _shuffled_agents(moves: Tensor, ids: Tensor, priority: Tensor) -> Tensor:
    """Agents that move in random order, int64 `[N]`, after them numbers of none."""
    number = torch.arange(moves.shape[0], device=moves.device)
    if not ids.numel():
        return _by_priority(moves, number, priority)
    by_id = torch.argsort(ids[0], stable=True)
    rank = _by_priority(moves[by_id], number, priority[by_id])
    return torch.where(rank < moves.shape[0], by_id[rank.clamp(max=moves.shape[0] - 1)], rank)


def _by_priority(taken: Tensor, number: Tensor, priority: Tensor) -> Tensor:
    """Numbers below 2**31 by priority, of equal ones the lowest first; those not taken last, as 2**31 - 1."""
    code = torch.where(taken, (priority << WORD) | number, _LAST)
    return torch.sort(code)[0] & ((1 << WORD) - 1)


# --- on the CPU ------------------------------------------------------------------------------------------------------


@register
def settle_rows(
    cell: Tensor,
    target: Tensor,
    alive: Tensor | None,
    capacity: Tensor,
    num_cells: int,
    rounds: int,
    ids: Tensor,
    key: Tensor,
    step: Tensor,
    stream: int,
) -> tuple[Tensor, Tensor]:
    """`settle_cells` of all worlds: `[W, …]` throughout, `ids` `[1 or W, N]`, `alive` int8."""
    from denizen.ops import _cpu_cell_moves

    return _cpu_cell_moves.settle(cell, target, alive, capacity, num_cells, rounds, ids, key, step, stream)


@torch.library.register_fake("denizen::settle_rows")
def _(cell, target, alive, capacity, num_cells, rounds, ids, key, step, stream):  # type: ignore[no-untyped-def]
    return cell.new_empty(cell.shape), cell.new_empty(cell.shape[0], 3, dtype=torch.int8)


@vmap_rule("settle_rows")
def _(info, in_dims, cell, target, alive, capacity, num_cells, rounds, ids, key, step, stream):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    given = [fold_worlds(one, dim, batch) for one, dim in zip((cell, target, alive, capacity), in_dims, strict=False)]
    key = fold_worlds(key, in_dims[7], batch)
    out = settle_rows(*given, num_cells, rounds, _ids(ids, in_dims[6], batch, key.shape[0]), key, step, stream)
    return tuple(unfold_worlds(one, batch) for one in out), (0, 0)


@register
def fill_rows(
    cell: Tensor,
    who: Tensor | None,
    alive: Tensor | None,
    begins: bool,
    num_cells: int,
    capacity: int,
    ids: Tensor,
    key: Tensor,
    step: Tensor,
    turn: int,
    place: int,
) -> tuple[Tensor, Tensor]:
    """`fill_cells` of all worlds: `[W, …]` throughout, `ids` `[1 or W, N]`, `who` and `alive` int8."""
    from denizen.ops import _cpu_cell_moves

    return _cpu_cell_moves.fill(cell, who, alive, begins, num_cells, capacity, ids, key, step, turn, place)


@torch.library.register_fake("denizen::fill_rows")
def _(cell, who, alive, begins, num_cells, capacity, ids, key, step, turn, place):  # type: ignore[no-untyped-def]
    return cell.new_empty(cell.shape), cell.new_empty(cell.shape[0], 2, dtype=torch.int8)


@vmap_rule("fill_rows")
def _(info, in_dims, cell, who, alive, begins, num_cells, capacity, ids, key, step, turn, place):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    given: list[Any] = [fold_worlds(one, dim, batch) for one, dim in zip((cell, who, alive), in_dims, strict=False)]
    key = fold_worlds(key, in_dims[7], batch)
    ids = _ids(ids, in_dims[6], batch, key.shape[0])
    out = fill_rows(*given, begins, num_cells, capacity, ids, key, step, turn, place)
    return tuple(unfold_worlds(one, batch) for one in out), (0, 0)
