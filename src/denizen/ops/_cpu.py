"""How the CPU variants are compiled by numba and spread over threads; imported only where numba is installed.

Kernels release the interpreter lock, so a batch of worlds is spread over threads; the result does not depend on their
number because worlds are independent and sums are integers.
"""

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from denizen._garbage import uncollected

if not os.access(Path(__file__).parent, os.W_OK):  # an installation that may not be written keeps its cache elsewhere
    whose = os.getuid() if hasattr(os, "getuid") else "user"  # on Windows each user has a temporary folder
    os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"denizen-numba-{whose}"))

with uncollected():
    import numba

_jit = numba.njit(nogil=True, cache=True)
_divides = numba.njit(nogil=True, cache=True, error_model="numpy")  # a number by 0 is infinite
_inline = numba.njit(nogil=True, cache=True, inline="always")

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
