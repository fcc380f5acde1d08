"""The host while steps run: as many threads as a population keeps busy, and freed memory given back.

Tensors on a CPU are aligned blocks, and glibc (2.36) does not always put one where another of the same size was: its
heap grows with the steps although nothing is held, to many times what lives in tensors (docs/log.md).
"""

import ctypes
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from denizen.perf.watch import free_on_host

WORTH_THREADS = 500_000  # agents times worlds from which a second thread was measured to pay for itself


def busy_threads(elements: int) -> int:
    """As many as so many agents times worlds keep busy."""
    return max(1, elements // (WORTH_THREADS // 2))


@contextmanager
def calm_threads(elements: int) -> Iterator[None]:
    """As many threads as a population keeps busy, one for a small one; restored afterwards.

    OpenMP's workers spin between small operations, which on a busy machine costs many times what the step itself takes
    (docs/log.md).
    """
    wanted = torch.get_num_threads()
    busy = busy_threads(elements)
    if wanted <= busy:
        yield
        return
    torch.set_num_threads(busy)
    try:
        yield
    finally:
        torch.set_num_threads(wanted)


SPARE = 1 << 28  # bytes that the process may grow by in any case,
EACH = 64  # more for each agent of a world, since a step comes and goes with as much,
SHARE = 4  # or the free memory by this: to take again what was given back costs time, as much as a few steps

_kept: int | None = None  # of memory when it was given back last, by whichever run


def give_back(device: torch.device, agents: int) -> None:
    """Give free memory back where the process has grown by so much that it matters; between two chunks of steps.

    Args:
        device: where steps run; on another one than the CPU nothing piles up.
        agents: of all worlds together.
    """
    global _kept
    trim, held = (_trim(), _held()) if device.type == "cpu" else (None, None)
    if trim is None or held is None:
        return
    if _kept is None or held < _kept:
        _kept = held
    grown = held - _kept
    if grown > SPARE + EACH * agents and grown > (free_on_host() or 0) // SHARE:
        trim(0)
        _kept = _held()


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """What glibc calls `malloc_trim`; None with another C library."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


def _held() -> int | None:
    """Bytes of memory that the process takes."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError, IndexError):
        return None
