"""Performance figures of a runner, with the same keys on every device."""

import dataclasses
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from denizen.run import Run

SUBSTEPS = 2
WATCHED_STEPS = 21


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


class _Traffic(TorchDispatchMode):
    """Counts values read on the host, and bytes that cross between devices."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._local_scalar_dense.default:
            self.reads += 1
            self.bytes += args[0].element_size() if args[0].device.type != "cpu" else 0
        elif func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default) and isinstance(out, Tensor):
            origin = args[1] if func is torch.ops.aten.copy_.default else args[0]
            if origin.device != out.device:
                self.reads += out.device.type == "cpu"
                self.bytes += out.numel() * out.element_size()
        return out


@dataclasses.dataclass(frozen=True)
class Watched:
    """What a repetition of the first steps showed, made apart from the run so that watching costs it nothing."""

    watched_steps: int
    host_reads: int
    host_device_bytes: int
    launches_per_step: float | None


def watch(begin: Callable[[], Run], steps: int) -> Watched:
    """Repeat the first steps (21 at most) of a run and count.

    Args:
        begin: starts the run anew, without a step.
        steps: steps of the run.
    """
    count = min(steps, WATCHED_STEPS)
    with _Traffic() as traffic:
        run = begin().extend(count)
    launches = None
    if run.device.type == "cuda":
        run.extend(1)
        launches = _launches(lambda: run.extend(1))
    return Watched(count, traffic.reads, traffic.bytes, launches)


def _launches(advance: Callable[[], object]) -> float:
    """CUDA kernels that `advance()` launches."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
        advance()
        torch.cuda.synchronize()
    kernels = [event.name for event in seen.events() or [] if event.device_type == DeviceType.CUDA]
    return float(sum(not name.startswith(("Memcpy", "Memset")) for name in kernels))


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
