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
    here, goal = cell_bins(cell, alive, num_cells), cell_bins(target, alive, num_cells)
    held = _count(here, num_cells)
    beyond = ((goal == num_cells) & (target >= 0)).any()
    bad = torch.stack([held[num_cells] > 0, (held[:num_cells] > capacity).any(), beyond]).to(torch.int8)
    goal = torch.where((goal < num_cells) & (here < num_cells) & (goal != here), goal, num_cells)
    room = _only_cells((capacity - held[:num_cells]).clamp(min=0).to(torch.int32), held)
    priority = draw_words(ids, cell.shape[0], key, step, stream)[0] >> 1
    for _ in range(rounds):
        won = (first_of_each if one_each else lowest_of_each)(goal, room, priority, ids)
        left = won.to(torch.int32)
        room = room.scatter_add(0, here, left).scatter_add(0, goal, -left)
        room = _only_cells(room[:num_cells], held)
        here, goal = torch.where(won, goal, here), torch.where(won, num_cells, goal)
    return torch.where(here < num_cells, here, cell), bad


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
    here = torch.full_like(cell, num_cells) if begins else cell_bins(cell, alive, num_cells)
    held = torch.zeros_like(_count(here, num_cells)) if begins else _count(here, num_cells)
    bad = torch.stack([held[num_cells] > 0, (held[:num_cells] > capacity).any()]).to(torch.int8)
    moves = torch.ones_like(here, dtype=torch.bool) if begins else here < num_cells
    for mask in (alive, who):
        moves = moves if mask is None else moves & (mask != 0)
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


def cell_bins(cell: Tensor, alive: Tensor | None, num_cells: int) -> Tensor:
    """The bin of each agent, int64 `[N]`: its cell, `num_cells` outside, `num_cells + 1` who does not count."""
    inside = torch.where((cell >= 0) & (cell < num_cells), cell, num_cells)
    return inside if alive is None else torch.where(alive != 0, inside, num_cells + 1)


def first_of_each(goal: Tensor, room: Tensor, priority: Tensor, ids: Tensor) -> Tensor:
    """Who gets the one place of each cell: the lowest priority, of equal ones the lowest id. Bool `[N]`.

    Args:
        goal: int64 `[N]`, the bin that each wants.
        room: int32 `[bins]`.
        priority: int64 `[N]`, below 2**31.
        ids: int64 `[1, N]`, or empty.
    """
    tries, custom = room.gather(0, goal) > 0, ids.numel() > 0
    number = 0 if custom else torch.arange(goal.shape[0], device=goal.device)
    won = tries
    for code in [(priority << WORD) | number, *([ids[0]] if custom else [])]:
        code = torch.where(won, code, _LAST)
        best = torch.full(room.shape, _LAST, device=goal.device).scatter_reduce(0, goal, code, "amin")
        won = won & (best.gather(0, goal) == code)
    return won


def lowest_of_each(goal: Tensor, room: Tensor, priority: Tensor, ids: Tensor) -> Tensor:
    """Who gets the places of each cell: as many of the lowest priorities as it has room for; else `first_of_each`."""
    by_id = torch.argsort(ids[0], stable=True) if ids.numel() else None
    code = (goal << WORD) | priority
    code, order = torch.sort(code if by_id is None else code[by_id], stable=True)
    order = order if by_id is None else by_id[order]
    wanted = code >> WORD
    rank = torch.arange(goal.shape[0], device=goal.device) - torch.searchsorted(code, wanted << WORD)
    return torch.zeros_like(goal, dtype=torch.bool).scatter(0, order, rank < room.gather(0, wanted))


def _count(here: Tensor, num_cells: int) -> Tensor:
    zeros = torch.zeros(num_cells + 2, dtype=torch.int32, device=here.device)
    return zeros.scatter_add(0, here, torch.ones_like(here, dtype=torch.int32))


def _only_cells(room: Tensor, held: Tensor) -> Tensor:
    """Room by bin, none in those that are no cells: int32 `[cells + 2]`."""
    return torch.cat([room, torch.zeros_like(held[-2:])])


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
