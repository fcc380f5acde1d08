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


_Job = tuple[Callable[[], None], "list[BaseException | None]", "SimpleQueue[None]"]  # work, how jobs ended, wakes


class _Pool:
    """Threads that wait for work, made when there is some for them."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._threads, self._out, self._lock = 0, 0, threading.Lock()

    def run(
        self, first: Callable[[], None], others: Sequence[Callable[[], None]], ended: Callable[[], None] | None = None
    ) -> None:
        """Run all, the first in this thread; raises what any of them raised once all are done.

        Args:
            first: job of this thread.
            others: further jobs.
            ended: what tells the others that this thread was interrupted, where they may wait for it.
        """
        ends: list[BaseException | None] = []
        wake: SimpleQueue[None] = SimpleQueue()
        out = 0
        try:
            with self._lock:
                self._out += len(others)
                out = len(others)
                for _ in range(self._threads, self._out):  # those of one call may wait for each other
                    threading.Thread(target=self._wait, name="denizen-ops", daemon=True).start()
                    self._threads += 1
            given = 0
            try:
                for one in others:
                    given += 1  # before the call, within which and after which Ctrl-C may come
                    self._jobs.put((one, ends, wake))
                first()
            except BaseException:
                if ended is not None:
                    ended()
                raise
            finally:
                _wait_for(ends, wake, given)
        finally:
            with self._lock:
                self._out -= out
        for error in ends:
            if error is not None:
                raise error

    def _wait(self) -> None:
        while True:
            self._do(*self._jobs.get())

    def _do(self, work: Callable[[], None], ends: list[BaseException | None], wake: "SimpleQueue[None]") -> None:
        try:
            work()
        except BaseException as error:  # it is raised where the work was given out
            ends.append(error)
        else:
            ends.append(None)
        wake.put(None)


def _wait_for(ends: list[BaseException | None], wake: "SimpleQueue[None]", count: int) -> None:
    """Until so many jobs are done, whatever interrupts the wait: they write into memory that the caller frees."""
    interrupt = None
    while True:
        try:
            while len(ends) < count:
                wake.get()
            break
        except BaseException as error:  # Ctrl-C; the jobs are short
            interrupt = error
    if interrupt is not None:
        raise interrupt


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


def over_parts(
    work: Callable[[int, int, int], None],
    total: int,
    parts: int,
    multiple: int = 1,
    ended: Callable[[], None] | None = None,
) -> None:
    """Call `work(start, stop, part)` over [0, total), cut into at most so many parts at multiples of a number.

    `ended` tells parts that wait for the first one that it was interrupted.
    """
    chunk = -(-total // (parts * multiple)) * multiple
    if chunk >= total:
        work(0, total, 0)
        return
    jobs = [partial(work, start, min(start + chunk, total), part) for part, start in enumerate(range(0, total, chunk))]
    _pool.run(jobs[0], jobs[1:], ended)


def over_ranges(work: Callable[[int, int], None], total: int, size: int, multiple: int = 1) -> None:
    """Call `work(start, stop)` over [0, total), on torch's number of threads where `size` elements make it pay."""
    threads = min(torch.get_num_threads(), total // multiple or 1)
    over_parts(lambda start, stop, _: work(start, stop), total, 1 if size < _PARALLEL_FROM else threads, multiple)
