"""Ties in slots on the CPU with numba; the values of `_slots`."""

import numpy as np
import torch

from denizen.ops._cpu import _jit, over_ranges


@_jit
def _taken(until, step, out, start, stop):
    for i in range(start, stop):
        count = 0
        for slot in range(until.shape[1]):
            count += until[i, slot] > step
        out[i] = count


@_jit
def _sum_whole(values, who, until, step, out, start, stop):
    n = values.shape[1]
    for i in range(start, stop):
        total, row = np.int32(0), values[i // n]
        for slot in range(who.shape[1]):
            if until[i, slot] > step:
                total += row[who[i, slot]]
        out[i] = total


@_jit
def _sum_real(values, who, until, step, out, start, stop):
    n = values.shape[1]
    for i in range(start, stop):
        total, row = np.float64(0), values[i // n]
        for slot in range(who.shape[1]):
            if until[i, slot] > step:
                total += np.float64(row[who[i, slot]])
        out[i] = total


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
        last = end[world, place] if mine else end[world, other]
        free, slots = who.shape[1], who.shape[1]
        for slot in range(slots - 1, -1, -1):
            if until[i, slot] <= step:
                free = slot
            elif who[i, slot] == other:
                other = -1
        if other >= 0 and free < slots:
            who[i, free], until[i, free] = other, last


def _rows(slots: torch.Tensor) -> np.ndarray:
    return slots.contiguous().numpy().reshape(-1, slots.shape[2])


def taken(until: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """`_slots.taken_slots`."""
    out = torch.empty(until.shape[:2], dtype=torch.int32)
    args = _rows(until), step.item(), out.numpy().reshape(-1)
    over_ranges(lambda a, b: _taken(*args, a, b), out.numel(), until.numel())
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
