"""What CUDA's caching allocator was asked for in a region."""

import dataclasses
from collections.abc import Generator
from contextlib import contextmanager

import torch


@dataclasses.dataclass
class Allocations:
    """What a region asked of the allocator.

    Attributes:
        count: blocks handed out.
        device_mallocs: times that it had to ask the driver (cudaMalloc), which waits for the device.
    """

    count: int = 0
    device_mallocs: int = 0

    @property
    def reuse(self) -> float | None:
        """Share of the blocks that came from memory held already; None without blocks."""
        return 1 - min(self.device_mallocs, self.count) / self.count if self.count else None


@contextmanager
def allocations(device: torch.device) -> Generator[Allocations]:
    """Filled in at the end of the block; every thread's allocations count."""
    before, found = _read(device), Allocations()
    yield found
    after = _read(device)
    found.count, found.device_mallocs = after[0] - before[0], after[1] - before[1]


def _read(device: torch.device) -> tuple[int, int]:
    stats = torch.cuda.memory_stats(device)
    return stats.get("allocation.all.allocated", 0), stats.get("segment.all.allocated", 0)
