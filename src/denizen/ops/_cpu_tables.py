"""Look-ups and histograms on the CPU with numba; the same values as `_tables`."""

import numpy as np
import torch

from denizen.ops._cpu import _jit, over_ranges

_NO_GROUP = np.zeros((1, 1), dtype=np.int8)


@_jit
def _lookup(table, codes, group, has_group, out, start, stop):
    # Slices and unsigned places: an index that might be negative is tested again for every agent.
    num_codes = np.uintp(table.shape[2])
    for w in range(out.shape[0]):
        rows = table[min(w, table.shape[0] - 1)].reshape(-1)
        c, o = codes[min(w, codes.shape[0] - 1)][start:stop], out[w][start:stop]
        if has_group:
            g = group[0][start:stop]
            for i in range(c.shape[0]):
                o[i] = rows[np.uintp(g[i]) * num_codes + np.uintp(c[i])]
        else:
            for i in range(c.shape[0]):
                o[i] = rows[np.uintp(c[i])]


@_jit
def _histogram(codes, group, has_group, lanes, out, start, stop):
    # Four lanes: neighbours mostly share a code, and adding to one counter again and again waits for itself.
    num_groups, num_codes = out.shape[1], np.uintp(out.shape[2])
    g = group[0]
    for w in range(start, stop):
        c, lane = codes[w], lanes[w]
        for i in range(c.shape[0]):
            place = np.uintp(c[i])
            if has_group:
                place += np.uintp(g[i]) * num_codes
            lane[np.uintp(i & 3), place] += 1
        total = out[w].reshape(-1)
        for place in range(num_groups * out.shape[2]):
            total[place] = lane[0, place] + lane[1, place] + lane[2, place] + lane[3, place]


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
