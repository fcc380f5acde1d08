"""How the CPU variants are compiled by numba and spread over threads; imported only where numba is installed.

Kernels release the interpreter lock, so worlds, or agents of one world, are spread over threads; the result does not
depend on their number because worlds and draws are independent and sums are integers.
"""

import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue

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
_PART = 40_000.0  # nanoseconds of work that are worth another thread, which takes some 20 microseconds to be handed it


class _Pool:
    """Threads that wait for work, made when there is some for them."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], None], SimpleQueue[BaseException | None]]] = SimpleQueue()
        self._threads, self._out, self._lock = 0, 0, threading.Lock()

    def run(self, first: Callable[[], None], others: Sequence[Callable[[], None]]) -> None:
        """Run all, the first in this thread; raises what any of them raised once all are done."""
        with self._lock:
            self._out += len(others)
            for _ in range(self._threads, self._out):  # those of one call may wait for each other
                threading.Thread(target=self._wait, name="denizen-ops", daemon=True).start()
                self._threads += 1
        done: SimpleQueue[BaseException | None] = SimpleQueue()
        for one in others:
            self._jobs.put((one, done))
        errors = []
        try:
            first()
        finally:
            errors = [done.get() for _ in others]
            with self._lock:
                self._out -= len(others)
        for error in errors:
            if error is not None:
                raise error

    def _wait(self) -> None:
        while True:
            work, done = self._jobs.get()
            try:
                work()
            except BaseException as error:  # it is raised where the work was given out
                done.put(error)
            else:
                done.put(None)


_pool = _Pool()


def _forked() -> None:
    """The child of a fork has none of the threads."""
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def parts(cost: float, total: int, multiple: int = 1) -> int:
    """Into how many parts [0, total) is cut at multiples of a number, where all of it takes so many nanoseconds."""
    most = min(torch.get_num_threads(), int(cost / _PART))
    if most < 2:
        return 1
    chunk = -(-total // (most * multiple)) * multiple
    return -(-total // chunk)


def over_parts(work: Callable[[int, int, int], None], total: int, parts: int, multiple: int = 1) -> None:
    """Call `work(start, stop, part)` over [0, total), cut into at most so many parts at multiples of a number."""
    chunk = -(-total // (parts * multiple)) * multiple
    if chunk >= total:
        work(0, total, 0)
        return
    jobs = [partial(work, start, min(start + chunk, total), part) for part, start in enumerate(range(0, total, chunk))]
    _pool.run(jobs[0], jobs[1:])


def over_ranges(work: Callable[[int, int], None], total: int, size: int, multiple: int = 1) -> None:
    """Call `work(start, stop)` over [0, total), on torch's number of threads where `size` elements make it pay."""
    threads = min(torch.get_num_threads(), total // multiple or 1)
    over_parts(lambda start, stop, _: work(start, stop), total, 1 if size < _PARALLEL_FROM else threads, multiple)
