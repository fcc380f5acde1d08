"""Torch's threads during a run on the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

WORTH_THREADS = 500_000  # agents times worlds from which a second thread was measured to pay for itself


def busy_threads(elements: int) -> int:
    """As many as so many agents times worlds keep busy."""
    return max(1, elements // (WORTH_THREADS // 2))


@contextmanager
def calm_threads(elements: int) -> Iterator[None]:
    """As many threads as a population keeps busy, one for a small one; restored afterwards.

    OpenMP's workers spin between small operations: on a busy machine with two cores a COVID step on Astoria took 39 to
    73 ms of CPU time with two threads and 1.3 ms with one. On one of 32 cores a million agents took 13 ms with two
    threads and 38 with all.
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
