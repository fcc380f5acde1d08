"""Performance figures of a runner, with the same keys on every device."""

import dataclasses
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

SUBSTEPS = 2


@dataclasses.dataclass
class Clock:
    """Time of the steps since the last reset.

    Attributes:
        device: where they ran.
        steps: how many.
        wall: seconds.
        busy: seconds of the device: between events on CUDA, of the process on the CPU.
    """

    device: torch.device
    steps: int = 0
    wall: float = 0.0
    busy: float = 0.0

    @contextmanager
    def running(self, steps: int) -> Generator[None]:
        """Times a block that runs this many steps."""
        cuda = self.device.type == "cuda"
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if cuda else []
        began, cpu = time.perf_counter(), time.process_time()
        if cuda:
            marks[0].record()
        yield
        if cuda:
            marks[1].record()
            marks[1].synchronize()
        self.wall += time.perf_counter() - began
        self.busy += marks[0].elapsed_time(marks[1]) / 1e3 if cuda else time.process_time() - cpu
        self.steps += steps


def rates(clock: Clock, *, agents: int, edges: int) -> dict[str, Any]:
    """Times and rates; None before the first step. Per substep: the mean, since both run as one function."""
    steps, wall, busy = clock.steps, clock.wall, clock.busy
    ran = steps > 0
    return {
        "steps": steps,
        "wall_seconds_per_step": wall / steps if ran else None,
        "wall_seconds_per_substep": wall / (SUBSTEPS * steps) if ran else None,
        "device_seconds_per_step": busy / steps if ran else None,
        "device_seconds_per_substep": busy / (SUBSTEPS * steps) if ran else None,
        "agents_per_second": agents * steps / wall if ran else None,
        "edges_per_second": edges * steps / wall if ran else None,
    }
