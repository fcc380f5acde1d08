"""Sums over neighbours on the CPU with numba: push from active senders or pull to eligible receivers.

Bits equal `_neighbours`: integer sums have no order, `pull` keeps the canonical one. `sum_counts` chooses the direction
for each world by the edges on either side, which changes no bit; `sum_fixed` always pushes, which was measured to be
faster even with every sender active.
"""

import numpy as np
import torch

from denizen.ops._cpu import _jit, over_parts, over_ranges, parts

# Edges at active senders for each edge at eligible receivers up to which pushing was measured to be cheaper.
_PUSH_UP_TO = 1.5
_SENDER = 1.0  # nanoseconds that a sum takes for each agent, with few active senders
COUNTS = 8  # numbers that a part counts, with room, so that no two threads write into one line of the cache
_LOOK = 1024  # receivers that are counted at a time


@_jit
def _list_active(v, active):
    """Positions of the senders that are not 0; returns their number. Rows of nobody are passed over at once."""
    num, first = 0, 0
    if v.itemsize == 1:
        eights = v[: v.shape[0] & ~31].view(np.uint64)
        for g in range(0, eights.shape[0], 4):
            if (eights[g] | eights[g + 1] | eights[g + 2] | eights[g + 3]) != 0:
                for j in range(8 * g, 8 * g + 32):
                    active[num] = j
                    num += v[j] != 0
        first = 8 * eights.shape[0]
    for j in range(first, v.shape[0]):
        active[num] = j
        num += v[j] != 0
    return num


@_jit
def _pushes(work, push_up_to, has_where, row, in_ptr):
    """Whether edges at active senders are few beside those at eligible receivers, counted as far as it takes."""
    n = in_ptr.shape[0] - 1
    if not has_where:
        return work <= push_up_to * in_ptr[n]
    eligible = 0
    for low in range(0, n, _LOOK):
        for i in range(low, min(low + _LOOK, n)):
            eligible += (in_ptr[i + 1] - in_ptr[i]) * (row[i] != 0)
        if work <= push_up_to * eligible:
            return True
    return work <= push_up_to * eligible


@_jit
def _push_counts(v, active, out_ptr, out_idx, o):
    for k in range(active.shape[0]):
        j = np.uint32(active[k])  # unsigned: an index that might be negative costs more
        x = v[j]
        for e in range(np.uint64(out_ptr[j]), np.uint64(out_ptr[j + 1])):
            o[np.uint32(out_idx[e])] += x


@_jit
def _list_part(values, out_ptr, active, counts, part, start, stop):
    """Of one world: lists active senders start … stop - 1 from `start` on, and counts them and their edges."""
    num, work = _list_active(values[0, start:stop], active[start:]), 0
    for k in range(start, start + num):
        active[k] += start
        work += out_ptr[np.uint32(active[k]) + 1] - out_ptr[np.uint32(active[k])]
    counts[part, 0], counts[part, 1] = num, work


@_jit
def _push_part(
    values, where, has_where, in_ptr, out_ptr, out_idx, push_up_to, active, counts, more, out, part, parts, start, stop
):
    """Pushes from a part's senders, if that is cheaper: into `out` from the first, into rows of `more` from others."""
    work = 0
    for p in range(parts):
        work += counts[p, 1]
    counts[part, 2] = _pushes(work, push_up_to, has_where, where[0], in_ptr)
    if counts[part, 2] != 0:
        into = more[part - 1] if part > 0 else out[0]
        into[:] = 0
        _push_counts(values[0], active[start : start + counts[part, 0]], out_ptr, out_idx, into)


@_jit
def _sum_part(values, where, has_where, in_ptr, in_idx, counts, more, out, part, parts, start, stop):
    """Sums of receivers start … stop - 1: of what was pushed, or pulled now."""
    row, o = where[0], out[0, start:stop]
    if counts[part, 2] == 0:
        _pull_counts(values[0], row, has_where, in_ptr, in_idx, out[0], start, stop)
        return
    for p in range(parts - 1):
        also = more[p, start:stop]
        for i in range(o.shape[0]):
            o[i] += also[i]
    if has_where:
        mask = row[start:stop]
        for i in range(o.shape[0]):
            o[i] = o[i] * (mask[i] != 0)


@_jit
def _pull_counts(v, row, has_where, in_ptr, in_idx, o, start, stop):
    for i in range(start, stop):
        total = np.int64(0)
        if not has_where or row[i] != 0:
            for e in range(np.uint64(in_ptr[i]), np.uint64(in_ptr[i + 1])):
                total += v[np.uint32(in_idx[e])]
        o[i] = total


@_jit
def _sum_counts(values, where, has_where, in_ptr, in_idx, out_ptr, out_idx, push_up_to, out, start, stop):
    n = values.shape[1]
    active, counts = np.empty(n + 1, np.int32), np.empty((1, 3), np.int64)
    more = np.empty((0, n), out.dtype)
    for w in range(start, stop):
        v, o, row = values[w : w + 1], out[w : w + 1], where[min(w, where.shape[0] - 1) :]
        _list_part(v, out_ptr, active, counts, 0, 0, n)
        _push_part(v, row, has_where, in_ptr, out_ptr, out_idx, push_up_to, active, counts, more, o, 0, 1, 0, n)
        _sum_part(v, row, has_where, in_ptr, in_idx, counts, more, o, 0, 1, 0, n)


def _sum_in_parts(values, where, has_where, in_ptr, in_idx, out_ptr, out_idx, out, number):  # type: ignore[no-untyped-def]
    """`_sum_counts` of one world by so many threads, each of which pushes from a part of the senders."""
    n = values.shape[1]
    active, counts = np.empty(n + 1, np.int32), np.empty((number, COUNTS), np.int64)
    given, more = (values, where, has_where, in_ptr), np.empty((number - 1, n), out.dtype)
    push = *given, out_ptr, out_idx, _PUSH_UP_TO, active, counts, more, out
    over_parts(lambda a, b, part: _list_part(values, out_ptr, active, counts, part, a, b), n, number)
    over_parts(lambda a, b, part: _push_part(*push, part, number, a, b), n, number)
    over_parts(lambda a, b, part: _sum_part(*given, in_idx, counts, more, out, part, number, a, b), n, number)


@_jit
def _sum_fixed(
    values, where, has_where, weight, has_weight, out_ptr, out_idx, out_edge, scale, bound, out, start, stop
):
    n = values.shape[1]
    unit = 1.0 / np.float64(scale)
    active = np.empty(n + 1, np.int32)
    acc = np.empty(n, np.int64)
    for w in range(start, stop):
        v, row, o = values[w], where[min(w, where.shape[0] - 1)], out[w]
        bad = False
        num = _list_active(v, active)
        for i in range(n):
            acc[i] = 0
        for k in range(num):
            j = active[k]
            x = np.float32(v[j])
            if not has_weight:
                if not (abs(x) <= bound):
                    bad = bad or out_ptr[j + 1] > out_ptr[j]
                    continue
                fixed = np.int64(np.rint(x * scale))
                for e in range(out_ptr[j], out_ptr[j + 1]):
                    acc[out_idx[e]] += fixed
            else:
                for e in range(out_ptr[j], out_ptr[j + 1]):
                    y = x * weight[out_edge[e]]
                    if not (abs(y) <= bound):
                        bad = True
                        continue
                    acc[out_idx[e]] += np.int64(np.rint(y * scale))
        if has_where:
            for i in range(n):
                o[i] = np.float32(np.float64(acc[i] * (row[i] != 0)) * unit)
        else:
            for i in range(n):
                o[i] = np.float32(np.float64(acc[i]) * unit)
        if bad:
            out[w, :] = np.nan


@_jit
def _pull(values, weight, has_weight, ptr, idx, edge, has_edge, out, start, stop):
    for w in range(values.shape[0]):
        for i in range(start, stop):
            total = np.float32(0)
            for e in range(ptr[i], ptr[i + 1]):
                x = values[w, idx[e]]
                if has_weight:
                    x = x * weight[edge[e] if has_edge else e]
                total += x
            out[w, i] = total


_NO_MASK = np.zeros((1, 1), dtype=np.int8)
_NO_WEIGHT = np.zeros(1, dtype=np.float32)
_NO_EDGE = np.zeros(1, dtype=np.int32)


def _rows(tensor: torch.Tensor | None, empty: np.ndarray) -> np.ndarray:
    return empty if tensor is None else tensor.contiguous().numpy()


def sum_counts(values: torch.Tensor, where: torch.Tensor | None, arrays: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """`_neighbours.sum_counts`; `arrays` are (in pointer, in index, out pointer, out index)."""
    dtype = torch.int32 if values.dtype == torch.int8 else torch.int64
    out = torch.empty(values.shape, dtype=dtype)
    in_ptr, in_idx, out_ptr, out_idx = (a.numpy() for a in arrays)
    args = (_rows(values, _NO_MASK), _rows(where, _NO_MASK), where is not None, in_ptr, in_idx, out_ptr, out_idx)
    number = parts(_SENDER * values.numel(), values.shape[1]) if values.shape[0] == 1 else 1
    if number > 1:
        _sum_in_parts(*args, out.numpy(), number)
    else:
        over_ranges(lambda a, b: _sum_counts(*args, _PUSH_UP_TO, out.numpy(), a, b), values.shape[0], values.numel())
    return out


def sum_fixed(
    values: torch.Tensor,
    where: torch.Tensor | None,
    weight: torch.Tensor | None,
    arrays: tuple[torch.Tensor, ...],
    bits: int,
    bound: float,
) -> torch.Tensor:
    """`_neighbours.sum_fixed`; `arrays` are (out pointer, out index, out edge)."""
    out = torch.empty(values.shape, dtype=torch.float32)
    out_ptr, out_idx, out_edge = (a.numpy() for a in arrays)
    args = (
        _rows(values, _NO_MASK),
        _rows(where, _NO_MASK),
        where is not None,
        _rows(weight, _NO_WEIGHT),
        weight is not None,
        out_ptr,
        out_idx,
        out_edge if out_edge.size else _NO_EDGE,
        np.float32(2.0**bits),
        np.float32(bound),
        out.numpy(),
    )
    over_ranges(lambda a, b: _sum_fixed(*args, a, b), values.shape[0], values.numel())
    return out


def pull(
    values: torch.Tensor, weight: torch.Tensor | None, pointer: torch.Tensor, index: torch.Tensor, edge: torch.Tensor
) -> torch.Tensor:
    """`_neighbours.pull`; `edge` maps positions to canonical edges, empty where they are the same."""
    out = torch.empty(values.shape, dtype=torch.float32)
    has_edge = edge.numel() > 0
    args = (
        _rows(values.to(torch.float32), _NO_MASK),
        _rows(weight, _NO_WEIGHT),
        weight is not None,
        pointer.numpy(),
        index.numpy(),
        edge.numpy() if has_edge else _NO_EDGE,
        has_edge,
        out.numpy(),
    )
    over_ranges(lambda a, b: _pull(*args, a, b), values.shape[1], max(values.numel(), index.numel()))
    return out
