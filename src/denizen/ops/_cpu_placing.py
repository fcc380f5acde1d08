"""Places of the newborn on the CPU with numba; the values of `denizen.model.births` and `child_id`."""

import numpy as np
import torch
from torch import Tensor

from denizen.ops._cpu import _inline, _jit, over_ranges

_ODD0, _ODD1, _ODD2 = (
    np.uint64(one % 2**64) for one in (-7046029254386353131, -4658895280553007687, -7723592293110705685)
)
_27, _30, _31 = np.uint64(27), np.uint64(30), np.uint64(31)
_BORN = np.uint64(1 << 61)


@_inline
def _child_id(parent, step):
    z = np.uint64(parent) * _ODD0 + (step + np.uint64(1)) * _ODD1
    z = (z ^ (z >> _30)) * _ODD1
    z = (z ^ (z >> _27)) * _ODD2
    z = z ^ (z >> _31)
    return np.int64((z & (_BORN - np.uint64(1))) | _BORN)


@_jit
def _place(alive, parents, parent_ids, ids, step, parent, named, bad, start, stop):
    n, m = alive.shape[1], parents.shape[1]
    for w in range(start, stop):
        row, free = min(w, ids.shape[0] - 1), 0
        for i in range(n):
            parent[w, i], named[w, i] = -1, ids[row, i]
        bad[w] = 0
        row, now = min(w, parent_ids.shape[0] - 1), np.uint64(step[min(w, step.shape[0] - 1), 0])
        for j in range(m):
            if parents[w, j] == 0:
                continue
            while free < n and alive[w, free] != 0:
                free += 1
            if free == n:
                bad[w] = 1
                break
            parent[w, free], named[w, free] = j, _child_id(parent_ids[row, j], now)
            free += 1


def place(
    alive: Tensor, parents: Tensor, parent_ids: Tensor, ids: Tensor, step: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`_placing.place_rows`."""
    parent, named = torch.empty(alive.shape, dtype=torch.int64), torch.empty(alive.shape, dtype=torch.int64)
    bad = torch.empty(alive.shape[0], dtype=torch.int8)
    masks = alive.contiguous().numpy(), parents.contiguous().numpy()
    names = parent_ids.contiguous().numpy(), ids.contiguous().numpy()
    args = *masks, *names, step.contiguous().numpy(), parent.numpy(), named.numpy(), bad.numpy()
    over_ranges(lambda start, stop: _place(*args, start, stop), alive.shape[0], parent.numel())
    return parent, named, bad
