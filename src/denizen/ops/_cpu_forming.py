"""New ties on the CPU with numba: seekers alone draw, pair up and are written; the values of `_forming`."""

import numpy as np
import torch

from denizen.ops._cpu import _inline, _jit, over_ranges
from denizen.ops._cpu_couples import matched
from denizen.ops._cpu_draws import found, words_of_few
from denizen.ops._cpu_slots import _rows, put

_NO_ROOM = -2
_FOREVER = 2**31 - 1
_LONGEST, _HALF, _PART, _ZERO = np.float32(2.0**30), np.float32(0.5), np.float32(2.0**-16), np.float32(0)


@_inline
def _end(days, word, step):
    part = (np.float32(word & 0xFFFF) + _HALF) * _PART
    steps = min(max(np.floor(days + part), _ZERO), _LONGEST)
    return min(step + np.int64(steps), _FOREVER)


@_jit
def _form(seat, lasts, ids, key, step, draw, stream, num_pools, sides, who, until, bad, start, stop):
    n, named = seat.shape[1], ids.shape[0] > 0
    for w in range(start, stop):
        row, days, wrong = seat[w], lasts[w], np.int32(0)
        least = np.int32(0)
        for i in range(n):
            least = min(least, row[i])
        for i in range(n):
            wrong |= np.int32(not (days[i] >= _ZERO))
        bad[w, 0], bad[w, 1] = least == _NO_ROOM, wrong
        seeker = found(row, np.int32(0))
        lot = np.empty(seeker.shape[0], np.int64)
        name = ids[min(w, ids.shape[0] - 1)] if named else lot
        words_of_few(seeker, name, named, np.uint64(key[w, 0]), np.uint64(key[w, 1]), draw, stream, lot)
        left, right = matched(seeker, row, lot, name, named, num_pools, sides)
        for k in range(left.shape[0]):
            a, b = seeker[left[k]], seeker[right[k]]
            first = name[a] < name[b] if named else a < b
            last = _end(days[a if first else b], lot[left[k] if first else right[k]], step)
            put(who[w * n + a], until[w * n + a], b, last, step)
            put(who[w * n + b], until[w * n + b], a, last, step)


def form_ties(
    who: torch.Tensor,
    until: torch.Tensor,
    seat: torch.Tensor,
    lasts: torch.Tensor,
    ids: torch.Tensor,
    key: torch.Tensor,
    step: torch.Tensor,
    draw: torch.Tensor,
    stream: int,
    num_pools: int,
    sides: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`_forming.form_ties`."""
    new, after = (slots.clone(memory_format=torch.contiguous_format) for slots in (who, until))
    bad = torch.zeros(len(seat), 2, dtype=torch.int32)
    named = ids.contiguous().numpy() if ids.numel() else np.empty((0, 0), np.int64)
    args = (
        *(seat.contiguous().numpy(), lasts.contiguous().numpy(), named, key.contiguous().numpy(), step.item()),
        *(np.uint64(draw.item()), np.uint64(stream), num_pools, sides, _rows(new), _rows(after), bad.numpy()),
    )
    over_ranges(lambda a, b: _form(*args, a, b), len(seat), seat.numel())
    return new, after, bad
