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
def _histogram(codes, group, has_group, lanes, out, start, stop):
    # Four lanes: neighbours mostly share a code, and adding to one counter again and again waits for itself.
    num_codes = out.shape[2]
    for w in range(start, stop):
        c, o, lane = codes[w], out[w], lanes[w]
        n = c.shape[0]
        for i in range(n):
            place = np.int64(c[i])
            if has_group:
                place += np.int64(group[0, i]) * num_codes
            lane[i & 3, place] += 1
        for g in range(out.shape[1]):
            for k in range(num_codes):
                place = g * num_codes + k
                o[g, k] = lane[0, place] + lane[1, place] + lane[2, place] + lane[3, place]


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
    lanes = np.zeros((codes.shape[0], 4, num_groups * num_codes), dtype=np.int64)
    args = (codes.contiguous().numpy(), groups, group is not None, lanes, out.numpy())
    over_ranges(lambda a, b: _histogram(*args, a, b), codes.shape[0], codes.numel())
    return out
