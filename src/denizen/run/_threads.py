"""Torch's threads during a run on the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

WORTH_THREADS = 500_000  # agents times worlds from which a second thread was measured to pay for itself


@contextmanager
def calm_threads(elements: int) -> Iterator[None]:
    """One thread for small populations; restored afterwards.

    OpenMP's workers spin between small operations: on a busy machine with two cores a COVID step on Astoria took 39 to
    73 ms of CPU time with two threads and 1.3 ms with one.
    """
    wanted = torch.get_num_threads()
    if wanted == 1 or elements >= WORTH_THREADS:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(wanted)
