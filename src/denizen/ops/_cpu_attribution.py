"""Who caused what on the CPU with numba; the bits of `_attribution`."""

import math
from collections.abc import Sequence

import numpy as np
import torch

from denizen.ops import _attribution as reference
from denizen.ops._cpu import _inline, _jit, over_ranges
from denizen.ops._cpu_draws import _MASK, _32, _philox

_HIGH, _LOW, _HALF_SQRT2 = reference.LN2_HIGH, reference.LN2_LOW, reference.HALF_SQRT2
_LEFT, _RIGHT = np.uint64(reference.BITS - 32), np.uint64(64 - reference.BITS)
_BITS, _TERMS = reference.BITS, reference.TERMS
_RECIPROCALS = np.array([1 / k for k in range(1, 2 * _TERMS, 2)])


@_inline
def _arrival(first, second, rate):  # type: ignore[no-untyped-def]  # numba infers the types
    odd = np.int64((first << _LEFT) | (second >> _RIGHT)) * 2 + 1
    m, exponent = math.frexp(np.float64(odd))
    halvings = _BITS + 1 - exponent
    if m < _HALF_SQRT2:
        m = m * 2.0
        halvings += 1
    t = (m - 1.0) / (m + 1.0)
    s = t * t
    q = _RECIPROCALS[_TERMS - 1]
    for k in range(_TERMS - 2, -1, -1):
        q = q * s + _RECIPROCALS[k]
    return (halvings * _HIGH + (halvings * _LOW - 2.0 * t * q)) / rate


@_jit
def _race(
    values,
    where,
    factor,
    number,
    weight,
    has_weight,
    ptr,
    idx,
    ids,
    has_ids,
    key,
    step,
    stream,
    source,
    layer,
    time,
    start,
    stop,
):
    """One graph after the other: `time` is that of the winner so far."""
    for w in range(start, stop):
        v, row = values[w], ids[min(w, ids.shape[0] - 1)]
        by = np.float64(factor[min(w, factor.shape[0] - 1), number])
        k0, k1 = np.uint64(key[w, 0]), np.uint64(key[w, 1])
        for i in range(where.shape[1]):
            if number == 0:
                source[w, i], layer[w, i], time[w, i] = -1, -1, np.inf
            if where[w, i] == 0:
                continue
            goal = np.uint64(row[i] if has_ids else i)
            a, b, c, _ = _philox(goal & _MASK, goal >> _32, step, stream, k0, k1)
            lowest, repeat = np.int64(0), np.uint64(0)
            for e in range(ptr[i], ptr[i + 1]):
                j = idx[e]
                repeat = repeat + np.uint64(1) if e > ptr[i] and idx[e - 1] == j else np.uint64(0)
                x = np.float32(v[j])
                if has_weight and x != 0:
                    x = x * weight[e]
                rate = np.float64(x) * by
                if not rate > 0:
                    continue
                sender = row[j] if has_ids else np.int64(j)
                whose = np.uint64(sender)
                first, second, _, _ = _philox(whose & _MASK, whose >> _32, repeat, c, a, b)
                t = _arrival(first, second, rate)
                if t < time[w, i] or (t == time[w, i] and layer[w, i] == number and sender < lowest):
                    time[w, i], source[w, i], layer[w, i], lowest = t, j, number, sender


_NO_IDS = np.zeros((1, 1), dtype=np.int64)
_NO_WEIGHT = np.zeros(1, dtype=np.float32)


def attribute(
    values: Sequence[torch.Tensor],
    where: Sequence[torch.Tensor],
    factor: torch.Tensor,
    weights: Sequence[torch.Tensor],
    in_ptr: Sequence[torch.Tensor],
    in_idx: Sequence[torch.Tensor],
    ids: torch.Tensor,
    key: torch.Tensor,
    step: torch.Tensor,
    streams: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """`_attribution.attribute`."""
    shape = where[0].shape
    source, layer = torch.empty(shape, dtype=torch.int32), torch.empty(shape, dtype=torch.int8)
    time = torch.empty(shape, dtype=torch.float64)
    who = (ids.contiguous().numpy() if ids.numel() else _NO_IDS, ids.numel() > 0, key.contiguous().numpy())
    for number, (weight, pointer, index) in enumerate(zip(weights, in_ptr, in_idx, strict=True)):
        graph = (
            weight.numpy() if weight.numel() else _NO_WEIGHT,
            weight.numel() > 0,
            pointer.numpy(),
            index.numpy(),
        )
        draws = (np.uint64(int(step)), np.uint64(streams[number]), source.numpy(), layer.numpy(), time.numpy())
        sent = values[number]
        sent = sent if sent.dtype in (torch.int8, torch.float32) else sent.to(torch.float32)
        rows = (sent.contiguous().numpy(), where[number].contiguous().numpy(), factor.contiguous().numpy())
        args = (*rows, number, *graph, *who, *draws)
        over_ranges(lambda start, stop, args=args: _race(*args, start, stop), shape[0], source.numel())
    return source, layer
