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
