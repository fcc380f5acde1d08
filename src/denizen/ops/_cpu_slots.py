"""Ties in slots on the CPU with numba; the values of `_slots`."""

import numpy as np
import torch

from denizen.ops._cpu import _jit, over_ranges

_NO_ROOM, _FOREVER = -2, 2**31 - 1  # as in `_slots`


@_jit
def _taken(until, step, out, start, stop):
    slots, o = until.shape[1], out[start:stop]
    if slots == 1:
        u = until.reshape(-1)[start:stop]
        for i in range(o.shape[0]):
            o[i] = u[i] > step
        return
    u = until[start:stop]
    for i in range(o.shape[0]):
        count = 0
        for slot in range(slots):
            count += u[i, slot] > step
        o[i] = count


@_jit
def _seated(until, seat, wanted, step, out, start, stop):
    _taken(until, step, out, start, stop)
    slots, o, g = until.shape[1], out[start:stop], wanted[start:stop]
    if seat.shape[0]:
        own = seat[start:stop]
        for i in range(o.shape[0]):
            there = own[i] if o[i] < slots else np.int32(_NO_ROOM)
            o[i] = there if g[i] != 0 else np.int32(-1)
    else:
        for i in range(o.shape[0]):
            there = np.int32(0) if o[i] < slots else np.int32(_NO_ROOM)
            o[i] = there if g[i] != 0 else np.int32(-1)


@_jit
def _sum_whole(values, who, until, step, out, start, stop):
    n, slots, now = values.shape[1], who.shape[1], np.int32(min(step, _FOREVER))
    last = np.int32(n - 1)
    for w in range(start // n, -(-stop // n)):
        row, begin, end = values[w], max(start, w * n), min(stop, w * n + n)
        other, over, o = who[begin:end], until[begin:end], out[begin:end]
        if slots == 1:
            whom, ends = other.reshape(-1), over.reshape(-1)
            for i in range(o.shape[0]):
                value = np.int32(row[np.uint32(min(max(whom[i], np.int32(0)), last))])
                o[i] = value if ends[i] > now else np.int32(0)
            continue
        for i in range(o.shape[0]):
            total = np.int32(0)
            for slot in range(slots):
                # Without branches: free slots may hold anything, and nobody can predict which ones are free.
                place = min(max(other[i, slot], np.int32(0)), last)
                value = np.int32(
                    row[np.uint32(place)]
                )  # unsigned: an index that might be negative costs twice the time
                total += value if over[i, slot] > now else np.int32(0)
            o[i] = total


@_jit
def _sum_real(values, who, until, step, out, start, stop):
    n, slots, now = values.shape[1], who.shape[1], np.int32(min(step, _FOREVER))
    last = np.int32(n - 1)
    for w in range(start // n, -(-stop // n)):
        row, begin, end = values[w], max(start, w * n), min(stop, w * n + n)
        other, over, o = who[begin:end], until[begin:end], out[begin:end]
        for i in range(o.shape[0]):
            total = np.float64(0)
            for slot in range(slots):
                # Without branches: free slots may hold anything, and nobody can predict which ones are free.
                place = min(max(other[i, slot], np.int32(0)), last)
                value = np.float64(
                    row[np.uint32(place)]
                )  # unsigned: an index that might be negative costs twice the time
                total += value if over[i, slot] > now else np.float64(0)
            o[i] = total


@_jit
def put(who, until, other, last, step):
    """A new tie in the first free slot of one agent, unless there is none or the two are tied."""
    free, slots = who.shape[0], who.shape[0]
    for slot in range(slots - 1, -1, -1):
        if until[slot] <= step:
            free = slot
        elif who[slot] == other:
            return
    if free < slots:
        who[free], until[free] = other, last


@_jit
def _join(partner, end, ids, step, who, until, start, stop):
    n = partner.shape[1]
    for i in range(start, stop):
        world, place = i // n, i % n
        other = partner[world, place]
        if other < 0:
            continue
        mine = place < other
        if ids.shape[0]:
            row = ids[min(world, ids.shape[0] - 1)]
            mine = row[place] < row[other]
        put(who[i], until[i], other, end[world, place] if mine else end[world, other], step)


def _rows(slots: torch.Tensor) -> np.ndarray:
    return slots.contiguous().numpy().reshape(-1, slots.shape[2])


def taken(until: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """`_slots.taken_slots`."""
    out = torch.empty(until.shape[:2], dtype=torch.int32)
    args = _rows(until), step.item(), out.numpy().reshape(-1)
    over_ranges(lambda a, b: _taken(*args, a, b), out.numel(), until.numel())
    return out


def seated(until: torch.Tensor, seat: torch.Tensor, wanted: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """`_slots.seated_slots`."""
    out = torch.empty(until.shape[:2], dtype=torch.int32)
    own, some = seat.contiguous().numpy().reshape(-1), wanted.contiguous().numpy().reshape(-1)
    args = _rows(until), own, some, step.item(), out.numpy().reshape(-1)
    over_ranges(lambda a, b: _seated(*args, a, b), out.numel(), until.numel())
    return out


def sum_slots(values: torch.Tensor, who: torch.Tensor, until: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """`_slots.sum_in_slots` of int8 and float32."""
    real = values.dtype.is_floating_point
    out = torch.empty(values.shape, dtype=torch.float32 if real else torch.int32)
    args = values.contiguous().numpy(), _rows(who), _rows(until), step.item(), out.numpy().reshape(-1)
    work = _sum_real if real else _sum_whole
    over_ranges(lambda a, b: work(*args, a, b), out.numel(), until.numel())
    return out


def join(
    who: torch.Tensor,
    until: torch.Tensor,
    partner: torch.Tensor,
    end: torch.Tensor,
    ids: torch.Tensor,
    step: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`_slots.join_slots`."""
    new, after = (slots.clone(memory_format=torch.contiguous_format) for slots in (who, until))
    named = ids.contiguous().numpy() if ids.numel() else np.empty((0, 0), np.int64)
    other, ends, now = partner.contiguous().numpy(), end.contiguous().numpy(), step.item()
    rows, over = _rows(new), _rows(after)
    over_ranges(lambda a, b: _join(other, ends, named, now, rows, over, a, b), partner.numel(), who.numel())
    return new, after
