"""What a device ran in a region, as intervals: how long it was busy, where it was idle, what repeats.

Kernels by torch's profiler on CUDA, operations on the CPU.
"""

import bisect
import dataclasses
import itertools
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from denizen.perf.watch._operations import schema_name


@dataclasses.dataclass(frozen=True, order=True)
class Span:
    """A piece of work.

    Attributes:
        start: nanoseconds.
        end: nanoseconds, not before the start.
        name: of the kernel, copy or operation.
        stream: what it ran on.
    """

    start: int
    end: int
    name: str = ""
    stream: int = 0


def union(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """The times at which anything ran, as disjoint intervals in order; neighbours that touch become one."""
    merged: list[tuple[int, int]] = []
    for span in sorted(spans):
        if merged and span.start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], span.end))
        else:
            merged.append((span.start, span.end))
    return merged


def busy(spans: Iterable[Span]) -> int:
    """Length of the union, in nanoseconds: never a sum of durations, which counts concurrent streams twice."""
    return sum(end - start for start, end in union(spans))


def gaps(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """Idle intervals between the first start and the last end."""
    merged = union(spans)
    return [(end, start) for (_, end), (start, _) in itertools.pairwise(merged)]


def clipped(intervals: Sequence[tuple[int, int]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of disjoint intervals, given in order, that lie between two moments."""
    for place in range(max(0, bisect.bisect_right(intervals, (start, start)) - 1), len(intervals)):
        first, last = intervals[place]
        if first >= end:
            return
        if min(last, end) > max(first, start):
            yield max(first, start), min(last, end)


def repeating(names: Sequence[str], count: int) -> tuple[int, int] | None:
    """The block of names that occurs `count` times in a row, as (start, length); the longest one, the earliest start.

    What precedes and follows the repetitions (loading, storing) is thereby told from a step. None where nothing repeats
    so often.
    """
    if count == 1:
        return (0, len(names)) if names else None
    for length in range(len(names) // count, 0, -1):
        wanted, matched = length * (count - 1), 0
        for place in range(len(names) - length):
            matched = matched + 1 if names[place] == names[place + length] else 0
            if matched == wanted:
                return place + 1 - wanted, length
    return None


def collapsed(names: Iterable[str]) -> list[tuple[str, int]]:
    """Names with how often each occurs in a row."""
    out: list[tuple[str, int]] = []
    for name in names:
        if out and out[-1][0] == name:
            out[-1] = (name, out[-1][1] + 1)
        else:
            out.append((name, 1))
    return out


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
        self.spans.append(Span(start, time.perf_counter_ns(), schema_name(func)))
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
