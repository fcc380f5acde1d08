"""What a device ran in a region: kernels by torch's profiler on CUDA, operations on the CPU."""

import dataclasses
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from denizen.perf.watch import _rules
from denizen.perf.watch._spans import Span


@dataclasses.dataclass
class Profile:
    """What a device ran.

    Attributes:
        kernels: in order of their start; on the CPU operations take their place, views included.
        copies: copies and fills, in order of their start.
    """

    kernels: list[Span] = dataclasses.field(default_factory=list)
    copies: list[Span] = dataclasses.field(default_factory=list)


@contextmanager
def profiled(device: torch.device) -> Generator[Profile]:
    """Filled in at the end of the block, where the device is waited for.

    On the CPU code compiled by torch cannot be called within; see `counting`.
    """
    found = Profile()
    with _cuda(device) if device.type == "cuda" else _cpu() as seen:
        yield found
    spans = seen()
    found.copies = [span for span in spans if is_copy(span)]
    found.kernels = [span for span in spans if not is_copy(span)]


def is_copy(span: Span) -> bool:
    """Whether it is a copy or a fill by the device's copy engine, as CUPTI names them."""
    return span.name.startswith(("Memcpy", "Memset"))


@contextmanager
def _cuda(device: torch.device) -> Generator[Any]:
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        yield lambda: spans(e for e in profiler.events() or [] if e.device_type == DeviceType.CUDA)
        torch.cuda.synchronize(device)


@contextmanager
def _cpu() -> Generator[Any]:
    # Not the profiler, which prints a line to stderr at each start and stop where there is no CUDA (torch 2.13).
    with _Clock() as clock:
        yield lambda: clock.spans


class _Clock(TorchDispatchMode):
    """Start and end of every operation of this thread; what the mode itself costs lies between them."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[Span] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        start = time.perf_counter_ns()
        out = func(*args, **(kwargs or {}))
        self.spans.append(Span(start, time.perf_counter_ns(), _rules.name(func)))
        return out


def spans(events: Iterable[Any]) -> list[Span]:
    """Spans of the profiler's events in order of their start; ranges that a user named are no work."""
    return sorted(
        Span(
            round(1e3 * event.time_range.start),
            round(1e3 * event.time_range.end),
            event.name,
            getattr(event, "device_resource_id", 0) or 0,
        )
        for event in events
        if not getattr(event, "is_user_annotation", False)
    )
