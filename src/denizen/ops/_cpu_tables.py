"""Look-ups and histograms on the CPU with numba; the same values as `_tables`."""

import numpy as np
import torch

from denizen.ops._cpu import _jit, over_ranges

_NO_GROUP = np.zeros((1, 1), dtype=np.int8)


@_jit
def _lookup(table, codes, group, has_group, out, start, stop):
    for w in range(out.shape[0]):
        rows, c = table[min(w, table.shape[0] - 1)], codes[min(w, codes.shape[0] - 1)]
        if has_group:
            for i in range(start, stop):
                out[w, i] = rows[group[0, i], c[i]]
        else:
            row = rows[0]
            for i in range(start, stop):
                out[w, i] = row[c[i]]


@_jit
def _histogram(codes, group, has_group, out, start, stop):
    for w in range(start, stop):
        c, o = codes[w], out[w]
        if has_group:
            for i in range(c.shape[0]):
                o[group[0, i], c[i]] += 1
        else:
            row = o[0]
            for i in range(c.shape[0]):
                row[c[i]] += 1


def lookup(table: torch.Tensor, codes: torch.Tensor, group: torch.Tensor | None) -> torch.Tensor:
    """`_tables.lookup`."""
    worlds = max(table.shape[0], codes.shape[0])
    out = torch.empty(worlds, codes.shape[1], dtype=torch.float32)
    groups = _NO_GROUP if group is None else group.contiguous().numpy()
    args = (table.contiguous().numpy(), codes.contiguous().numpy(), groups, group is not None, out.numpy())
    over_ranges(lambda a, b: _lookup(*args, a, b), codes.shape[1], out.numel())
    return out


def histogram(codes: torch.Tensor, group: torch.Tensor | None, num_groups: int, num_codes: int) -> torch.Tensor:
    """`_tables.histogram`."""
    out = torch.zeros(codes.shape[0], num_groups, num_codes, dtype=torch.int64)
    groups = _NO_GROUP if group is None else group.contiguous().numpy()
    args = (codes.contiguous().numpy(), groups, group is not None, out.numpy())
    over_ranges(lambda a, b: _histogram(*args, a, b), codes.shape[0], codes.numel())
    return out
