"""The CPU variants of the ops, compiled by numba; imported only where numba is installed.

Each function gives the bits of the torch reference beside it (`_philox`, `_threshold`, `_neighbours`). Kernels release
the interpreter lock, so a batch of worlds is spread over threads; the result does not depend on their number because
worlds are independent and sums are integers.
"""

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

if not os.access(Path(__file__).parent, os.W_OK):  # an installation that may not be written keeps its cache elsewhere
    os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"denizen-numba-{os.getuid()}"))

import numba

from denizen.ops import _threshold as reference
from denizen.ops._philox import MULTIPLIERS, ROUNDS, WEYL

_jit = numba.njit(nogil=True, cache=True)
_inline = numba.njit(nogil=True, cache=True, inline="always")

_M0, _M1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
_W0, _W1 = np.uint64(WEYL[0]), np.uint64(WEYL[1])
_MASK = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)

_f = np.float32
_LOG2E, _LN2_HIGH, _LN2_LOW = _f(reference.LOG2E), _f(reference.LN2_HIGH), _f(reference.LN2_LOW)
_C0, _C1, _C2, _C3, _C4, _C5 = (_f(c) for c in reference.COEFFICIENTS)
_HALF, _ONE, _ZERO = _f(0.5), _f(1.0), _f(0.0)
_MAX, _TWO32 = _f(reference.MAX_EXPONENT), _f(reference.TWO32)
_POWERS = np.array([2.0**-k for k in range(64)], dtype=np.float32)

_PARALLEL_FROM = 200_000  # elements below which handing work to a second thread costs more than it saves
_pool = ThreadPoolExecutor(max_workers=max(1, os.cpu_count() or 1), thread_name_prefix="denizen-ops")


def over_ranges(work: Callable[[int, int], None], total: int, size: int, multiple: int = 1) -> None:
    """Call `work(start, stop)` over [0, total), on torch's number of threads where `size` elements make it pay."""
    threads = min(torch.get_num_threads(), total // multiple or 1)
    if threads == 1 or size < _PARALLEL_FROM:
        work(0, total)
        return
    chunk = -(-total // (threads * multiple)) * multiple
    jobs = [_pool.submit(work, start, min(start + chunk, total)) for start in range(0, total, chunk)]
    for job in jobs:
        job.result()


@_inline
def _philox(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]  # numba infers the types
    for _ in range(ROUNDS):
        p0 = _M0 * c0
        p1 = _M1 * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _MASK, (p0 >> _32) ^ c3 ^ k1, p0 & _MASK
        k0 = (k0 + _W0) & _MASK
        k1 = (k1 + _W1) & _MASK
    return c0, c1, c2, c3


@_inline
def _hazard_threshold(x):  # type: ignore[no-untyped-def]
    x = min(x, _MAX)
    n = np.floor(x * _LOG2E + _HALF)
    y = n * _LN2_HIGH - x
    y = y + n * _LN2_LOW
    q = _C0
    q = q * y + _C1
    q = q * y + _C2
    q = q * y + _C3
    q = q * y + _C4
    q = q * y + _C5
    q = q * y * y + y
    s = _POWERS[np.int64(n)]
    p = (_ONE - s) - s * q
    return np.uint64(p * _TWO32)


@_jit
def _words(ids, arange, key, step, stream, out, start, stop):  # type: ignore[no-untyped-def]
    for w in range(out.shape[0]):
        k0, k1 = np.uint64(key[w, 0]), np.uint64(key[w, 1])
        row = min(w, ids.shape[0] - 1)
        i = start
        while i < stop:
            if arange:
                block = np.uint64(i >> 2)
                a, b, c, d = _philox(block & _MASK, block >> _32, step, stream, k0, k1)
                last = min(i + 4, stop)
                out[w, i] = a
                if i + 1 < last:
                    out[w, i + 1] = b
                if i + 2 < last:
                    out[w, i + 2] = c
                if i + 3 < last:
                    out[w, i + 3] = d
                i = last
            else:
                block = np.uint64(ids[row, i]) >> np.uint64(2)
                a, b, c, d = _philox(block & _MASK, block >> _32, step, stream, k0, k1)
                lane = ids[row, i] & 3
                out[w, i] = a if lane == 0 else b if lane == 1 else c if lane == 2 else d
                i += 1


@_jit
def _draw_mask(values, hazard, ids, arange, key, step, stream, out, bad, start, stop):  # type: ignore[no-untyped-def]
    """Events from hazards, or Bernoulli draws from probabilities; lanes that cannot fire draw nothing."""
    for w in range(out.shape[0]):
        k0, k1 = np.uint64(key[w, 0]), np.uint64(key[w, 1])
        row = min(w, ids.shape[0] - 1)
        drawn = np.int64(-1)  # block whose words are at hand
        a = b = c = d = np.uint64(0)
        for i in range(start, stop):
            x = values[w, i]
            if x == _ZERO:
                out[w, i] = 0
                continue
            if not hazard and x == _ONE:  # certain: no word is below its threshold by chance
                out[w, i] = 1
                continue
            if not (x > _ZERO) or (not hazard and x > _ONE):
                bad[w] = 1
                out[w, i] = 0
                continue
            agent = np.int64(i) if arange else ids[row, i]
            if agent >> 2 != drawn:
                drawn = agent >> 2
                block = np.uint64(drawn)
                a, b, c, d = _philox(block & _MASK, block >> _32, step, stream, k0, k1)
            lane = agent & 3
            word = a if lane == 0 else b if lane == 1 else c if lane == 2 else d
            threshold = _hazard_threshold(x) if hazard else np.uint64(x * _TWO32)
            out[w, i] = word < threshold


def _ids_array(ids: torch.Tensor) -> tuple[np.ndarray, bool]:
    if ids.numel() == 0:
        return np.zeros((1, 1), dtype=np.int64), True
    array = ids.numpy()
    return (array if array.ndim == 2 else array[None]), False


def words(ids: torch.Tensor, num: int, key: torch.Tensor, step: torch.Tensor, stream: int) -> torch.Tensor:
    """`_philox.words`; empty `ids` stand for 0 … num - 1."""
    out = torch.empty(key.shape[0], num, dtype=torch.int64)
    id_array, arange = _ids_array(ids)
    args = (id_array, arange, key.numpy(), np.uint64(step.item()), np.uint64(stream), out.numpy())
    over_ranges(lambda start, stop: _words(*args, start, stop), num, out.numel(), multiple=4)
    return out


def draw_mask(
    values: torch.Tensor, hazard: bool, ids: torch.Tensor, key: torch.Tensor, step: torch.Tensor, stream: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """0/1 draws int8 `[worlds, ids]` from float32 hazards or probabilities, and which worlds held a bad one."""
    out = torch.empty(values.shape, dtype=torch.int8)
    bad = torch.zeros(values.shape[0], dtype=torch.int8)
    id_array, arange = _ids_array(ids)
    args = (values.contiguous().numpy(), hazard, id_array, arange, key.numpy(), np.uint64(step.item()))
    rest = (np.uint64(stream), out.numpy(), bad.numpy())
    over_ranges(lambda start, stop: _draw_mask(*args, *rest, start, stop), values.shape[1], out.numel(), multiple=4)
    return out, bad
