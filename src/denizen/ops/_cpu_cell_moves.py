"""Moves of agents between cells on the CPU with numba; the values of `_cell_moves.settle_cells` and `fill_cells`.

Draws are made for those alone whom they decide about. Those are put in order by the 31 bits of their draws, in three
passes of a radix sort, which keeps those of equal draws in the order of their identities.
"""

import numpy as np
import torch
from torch import Tensor

from denizen.ops._cpu import _jit, over_ranges
from denizen.ops._cpu_draws import _MASK, _32, _philox

_DIGITS = 11  # bits of a pass
_BINS = 1 << _DIGITS
_FEW = 48  # items up to which inserting each costs less than three passes


@_jit
def _draw(items, num, ids, step, stream, key, words):
    """31 random bits for each of the first `num` items, by identity; of no `ids` items are their own."""
    k0, k1 = np.uint64(key[0]), np.uint64(key[1])
    block, a, b, c, d = np.int64(-1), _MASK, _MASK, _MASK, _MASK
    for j in range(num):
        number = items[j] if ids.shape[0] == 0 else ids[items[j]]
        if number >> 2 != block:
            block = number >> 2
            a, b, c, d = _philox(np.uint64(block) & _MASK, np.uint64(block) >> _32, step, stream, k0, k1)
        lane = number & 3
        word = a if lane == 0 else b if lane == 1 else c if lane == 2 else d
        words[j] = np.uint32(word >> np.uint64(1))


@_jit
def _sort(items, words, num, more_items, more_words):
    """Put the first `num` items in the order of their words; equal ones keep theirs."""
    if num <= _FEW:
        for j in range(1, num):
            item, word, k = items[j], words[j], j
            while k > 0 and words[k - 1] > word:
                items[k], words[k] = items[k - 1], words[k - 1]
                k -= 1
            items[k], words[k] = item, word
        return
    counts = np.zeros((3, _BINS), np.int64)
    for j in range(num):
        word = words[j]
        counts[0, word & (_BINS - 1)] += 1
        counts[1, (word >> _DIGITS) & (_BINS - 1)] += 1
        counts[2, word >> (2 * _DIGITS)] += 1
    for p in range(3):
        total = 0
        for bin in range(_BINS):
            here = counts[p, bin]
            counts[p, bin] = total
            total += here
        from_items, from_words, to_items, to_words = items, words, more_items, more_words
        if p == 1:
            from_items, from_words, to_items, to_words = more_items, more_words, items, words
        for j in range(num):
            bin = (from_words[j] >> (p * _DIGITS)) & (_BINS - 1)
            place = counts[p, bin]
            counts[p, bin] += 1
            to_items[place], to_words[place] = from_items[j], from_words[j]
    for j in range(num):  # slices of unequal shapes would raise, whose words take numba seconds to compile
        items[j], words[j] = more_items[j], more_words[j]


@_jit
def _round(here, target, room, next_room, wanted, waiting, trying, turn, key, items, words, more_items, more_words):
    """Let those who wait go where there is room; returns how many of them still wait, listed in `waiting`."""
    ids, step, stream = turn
    wanted[:] = 0
    for j in range(trying):
        wanted[target[waiting[j]]] += 1
    rivals = 0
    for j in range(trying):
        i = waiting[j]
        goal = target[i]
        if wanted[goal] <= room[goal]:  # there is room for all: nothing to draw
            next_room[here[i]] += 1
            next_room[goal] -= 1
            here[i] = goal
        elif room[goal] > 0:
            items[rivals] = i
            rivals += 1
    _draw(items, rivals, ids, step, stream, key, words)
    _sort(items, words, rivals, more_items, more_words)
    for j in range(rivals):
        i = items[j]
        goal = target[i]
        if room[goal] > 0:
            room[goal] -= 1
            next_room[here[i]] += 1
            next_room[goal] -= 1
            here[i] = goal
    still = 0
    for j in range(trying):
        i = waiting[j]
        if here[i] != target[i]:
            waiting[still] = i
            still += 1
    for c in range(room.shape[0]):
        room[c] = next_room[c]
    return still


@_jit
def _settle(cell, target, alive, capacity, cells, rounds, ids, order, step, stream, key, out, bad, start, stop):
    n = cell.shape[1]
    room, next_room, wanted = np.empty(cells, np.int32), np.empty(cells, np.int32), np.empty(cells, np.int32)
    items, more_items, waiting = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    words, more_words = np.empty(n, np.uint32), np.empty(n, np.uint32)
    for w in range(start, stop):
        row, here, goals = min(w, ids.shape[0] - 1), out[w], target[w]
        for c in range(cells):
            room[c] = capacity[w, min(c, capacity.shape[1] - 1)]
        outside, full, beyond, trying = False, False, False, 0
        for j in range(n):
            i = order[row, j] if order.shape[1] else j
            c, goal = cell[w, i], goals[i]
            here[i] = c
            if alive.shape[0] and alive[w, i] == 0:
                continue
            beyond |= goal >= cells
            if c < 0 or c >= cells:
                outside = True
                continue
            room[c] -= 1
            if 0 <= goal < cells and goal != c:
                waiting[trying] = i
                trying += 1
        for c in range(cells):
            full |= room[c] < 0
            room[c] = max(room[c], 0)
        for c in range(cells):
            next_room[c] = room[c]
        turn = ids[row], step, stream
        for _ in range(rounds):
            trying = _round(
                here,
                goals,
                room,
                next_room,
                wanted,
                waiting,
                trying,
                turn,
                key[w],
                items,
                words,
                more_items,
                more_words,
            )
        bad[w, 0], bad[w, 1], bad[w, 2] = outside, full, beyond


@_jit
def _fill(cell, who, alive, begins, cells, capacity, ids, order, step, turn, place, key, out, bad, start, stop):
    n, places = cell.shape[1], cells * capacity
    most = max(n, places)
    held = np.empty(cells, np.int32)
    movers, more_movers = np.empty(n, np.int64), np.empty(n, np.int64)
    free, more_free = np.empty(places, np.int64), np.empty(places, np.int64)
    words, more_words = np.empty(most, np.uint32), np.empty(most, np.uint32)
    for w in range(start, stop):
        row, moving, num = min(w, ids.shape[0] - 1), 0, 0
        held[:] = 0
        outside, full = False, False
        for j in range(n):
            i = order[row, j] if order.shape[1] else j
            c = cell[w, i]
            out[w, i] = c
            if alive.shape[0] and alive[w, i] == 0:
                continue
            if not begins:
                if c < 0 or c >= cells:
                    outside = True
                    continue
                held[c] += 1
            if who.shape[0] == 0 or who[w, i] != 0:
                movers[moving] = i
                moving += 1
        for c in range(cells):
            full |= held[c] > capacity
            for k in range(held[c], capacity):
                free[num] = c * capacity + k
                num += 1
        bad[w, 0], bad[w, 1] = outside, full
        if moving and num:
            _draw(movers, moving, ids[row], step, turn, key[w], words)
            _sort(movers, words, moving, more_movers, more_words)
            _draw(free, num, ids[row, :0], step, place, key[w], words)
            _sort(free, words, num, more_free, more_words)
            for j in range(min(moving, num)):
                out[w, movers[j]] = free[j] // capacity


def _rows(tensor: Tensor | None) -> np.ndarray:
    """A mask as bytes; of none, no rows."""
    if tensor is None:
        return np.empty((0, 0), np.int8)
    return tensor.to(torch.int8).contiguous().numpy()


def _numbers(ids: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Identities, and agents in their order: `[rows, N]`, or `[1, 0]` where identities are places."""
    if not ids.numel():
        none = np.empty((1, 0), np.int64)
        return none, none
    return ids.contiguous().numpy(), torch.argsort(ids, dim=1, stable=True).numpy()


def settle(
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
    """`_cell_moves.settle_rows`."""
    out, bad = torch.empty(cell.shape, dtype=torch.int64), torch.empty(cell.shape[0], 3, dtype=torch.int8)
    agents = cell.contiguous().numpy(), target.contiguous().numpy(), _rows(alive)
    draws = *_numbers(ids), np.uint64(step.item()), np.uint64(stream), key.contiguous().numpy()
    args = *agents, capacity.contiguous().numpy(), num_cells, rounds, *draws, out.numpy(), bad.numpy()
    over_ranges(lambda start, stop: _settle(*args, start, stop), cell.shape[0], cell.numel())
    return out, bad


def fill(
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
    """`_cell_moves.fill_rows`."""
    out, bad = torch.empty(cell.shape, dtype=torch.int64), torch.empty(cell.shape[0], 2, dtype=torch.int8)
    agents = cell.contiguous().numpy(), _rows(who), _rows(alive), begins
    draws = *_numbers(ids), np.uint64(step.item()), np.uint64(turn), np.uint64(place), key.contiguous().numpy()
    args = *agents, num_cells, capacity, *draws, out.numpy(), bad.numpy()
    over_ranges(lambda start, stop: _fill(*args, start, stop), cell.shape[0], cell.numel())
    return out, bad
