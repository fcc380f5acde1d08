"""Masks from codes, codes that count steps, look-ups and histograms on the CPU with numba; the same values as `_codes`.

torch compares bytes one at a time on the CPU; these loops become vector instructions.
"""

import numpy as np
import torch

from denizen.ops._cpu import _jit, over_ranges


@_jit
def _in_range(codes, low, high, out, start, stop):
    c, o = codes[start:stop], out[start:stop]  # from 0 on: an index that might be negative stops vectorisation
    for i in range(c.shape[0]):
        o[i] = (c[i] >= low) & (c[i] <= high)


@_jit
def _grow(codes, event, last, out, start, stop):
    c, e, o = codes[start:stop], event[start:stop], out[start:stop]
    for i in range(c.shape[0]):
        o[i] = c[i] + ((c[i] > 0) & (c[i] < last)) + ((c[i] == 0) & (e[i] != 0))


def in_range(codes: torch.Tensor, low: int, high: int) -> torch.Tensor:
    """`_codes.in_range`."""
    out = torch.empty(codes.shape, dtype=torch.int8)
    dtype = np.int16 if codes.dtype == torch.int16 else np.int8
    args = (codes.contiguous().numpy().reshape(-1), dtype(low), dtype(high), out.numpy().reshape(-1))
    over_ranges(lambda start, stop: _in_range(*args, start, stop), codes.numel(), codes.numel())
    return out


def grow(codes: torch.Tensor, event: torch.Tensor, last: int) -> torch.Tensor:
    """`_codes.grow`."""
    out = torch.empty(codes.shape, dtype=codes.dtype)
    arrays = (codes.contiguous().numpy().reshape(-1), event.contiguous().numpy().reshape(-1))
    limit = (np.int16 if codes.dtype == torch.int16 else np.int8)(last)
    flat = out.numpy().reshape(-1)
    over_ranges(lambda start, stop: _grow(*arrays, limit, flat, start, stop), codes.numel(), codes.numel())
    return out


# --- tables -----------------------------------------------------------------------------------------------------------


_NO_GROUP = np.zeros((1, 1), dtype=np.uint8)


@_jit
def _lookup(table, num_codes, codes, group, has_group, out, start, stop):
    # Slices and unsigned places: an index that might be negative is tested again for every agent.
    for w in range(out.shape[0]):
        row = table[min(w, table.shape[0] - 1)]
        c, g, o = codes[min(w, codes.shape[0] - 1)][start:stop], group[0][start:stop], out[w][start:stop]
        for i in range(c.shape[0]):
            place = np.uintp(c[i])
            if has_group:
                place += np.uintp(g[i]) * num_codes
            o[i] = row[place]


@_jit
def _histogram(num_codes, codes, group, has_group, lanes, out, start, stop):
    # Four lanes: neighbours mostly share a code, and adding to one counter again and again waits for itself.
    g = group[0]
    for w in range(start, stop):
        c, lane = codes[w], lanes[w]
        for i in range(c.shape[0]):
            place = np.uintp(c[i])
            if has_group:
                place += np.uintp(g[i]) * num_codes
            lane[np.uintp(i & 3), place] += 1
        for place in range(out.shape[1]):
            out[w, place] = lane[0, place] + lane[1, place] + lane[2, place] + lane[3, place]


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    """Bytes as unsigned ones, whatever their sign is called: they are not negative, and one kernel serves both."""
    array = tensor.contiguous().numpy()
    return array.view(np.uint8) if array.dtype == np.int8 else array


def lookup(table: torch.Tensor, codes: torch.Tensor, group: torch.Tensor | None) -> torch.Tensor:
    """`_codes.lookup`."""
    worlds = max(table.shape[0], codes.shape[0])
    out = torch.empty(worlds, codes.shape[1], dtype=torch.float32)
    groups = _NO_GROUP if group is None else _bytes(group)
    args = (table.contiguous().flatten(1).numpy(), np.uintp(table.shape[2]), _bytes(codes), groups, group is not None)
    over_ranges(lambda a, b: _lookup(*args, out.numpy(), a, b), codes.shape[1], out.numel())
    return out


def histogram(codes: torch.Tensor, group: torch.Tensor | None, num_groups: int, num_codes: int) -> torch.Tensor:
    """`_codes.histogram`."""
    out = torch.zeros(codes.shape[0], num_groups * num_codes, dtype=torch.int64)
    groups = _NO_GROUP if group is None else _bytes(group)
    lanes = np.zeros((codes.shape[0], 4, num_groups * num_codes), dtype=np.int64)
    args = (np.uintp(num_codes), _bytes(codes), groups, group is not None, lanes, out.numpy())
    over_ranges(lambda a, b: _histogram(*args, a, b), codes.shape[0], codes.numel())
    return out.unflatten(1, (num_groups, num_codes))
