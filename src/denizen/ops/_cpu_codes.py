"""Masks from codes, and codes that count steps, on the CPU with numba; the same values as `_codes`.

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
