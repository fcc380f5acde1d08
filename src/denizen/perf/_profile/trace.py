"""Reading traces that torch.profiler writes: what the device ran, what each thread of the host did meanwhile."""

import bisect
import dataclasses
import gzip
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from denizen.errors import DataError
from denizen.perf.watch._spans import Span

STEP = "ProfilerStep#"
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver", "privateuse1_runtime", "privateuse1_driver", "hip_runtime")
HOST = ("cpu_op", "user_annotation", "python_function", *RUNTIME)
# Operators by category that compute nothing: guards of compiled code are checked.
NO_WORK = ("TorchDynamo Cache Lookup",)
SAMPLE = "denizen_sample"  # category of what `profile` adds of its own: states of threads


@dataclasses.dataclass(slots=True, eq=False)
class Event:
    """One span of a trace.

    Attributes:
        name: of the kernel, operator, runtime call, range or Python function.
        category: as the trace has it, such as ``"kernel"``, ``"cpu_op"``, ``"cuda_runtime"``.
        start: nanoseconds.
        end: nanoseconds.
        thread: on the host; -1 for work of a device.
        device: index of the device; -1 on the host.
        stream: of the device.
        correlation: joins device work with the call that launched it; 0 without.
        args: whatever else the trace says.
        parent: the span around it on the same thread.
        children: nanoseconds of it that spans within it take.
    """

    name: str
    category: str
    start: int
    end: int
    thread: int = -1
    device: int = -1
    stream: int = 0
    correlation: int = 0
    args: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    parent: "Event | None" = None
    children: int = 0

    @property
    def duration(self) -> int:
        """Nanoseconds."""
        return self.end - self.start

    @property
    def self_time(self) -> int:
        """Nanoseconds that no span within it takes."""
        return max(0, self.duration - self.children)

    @property
    def is_copy(self) -> bool:
        """Whether a device copied or filled memory."""
        return self.category in ("gpu_memcpy", "gpu_memset")

    def span(self) -> Span:
        """The interval alone."""
        return Span(self.start, self.end, self.name, self.stream)


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """What a thread was doing at one moment; only in traces of `denizen.perf.profile`.

    Attributes:
        time: nanoseconds.
        thread: on the host.
        used: nanoseconds of a core that the thread has had since it began.
        late: nanoseconds that the sampling thread waited before, for the interpreter lock above all.
        waits: whether the line is one that gives the lock away, such as a sleep.
        at: ``file:line function`` of the innermost frame.
    """

    time: int
    thread: int
    used: int
    late: int
    waits: bool
    at: str


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of a thread's time within which one span is the innermost one."""

    start: int
    end: int
    event: Event | None


@dataclasses.dataclass
class Trace:
    """A trace, sorted.

    Attributes:
        device_work: kernels, copies and fills of all devices, by start.
        threads: spans of each thread of the host, by start, outer ones first, with their parents.
        memory: events of torch's allocators as (nanoseconds, arguments), by time.
        samples: states of threads, by time.
        counters: values over time, such as ``"GPU power W"``: (nanoseconds, value).
        facts: what the trace says of itself.
        source: file that it was read from; "" otherwise.
    """

    device_work: list[Event] = dataclasses.field(default_factory=list)
    threads: dict[int, list[Event]] = dataclasses.field(default_factory=dict)
    memory: list[tuple[int, Mapping[str, Any]]] = dataclasses.field(default_factory=list)
    samples: dict[int, list[Sample]] = dataclasses.field(default_factory=dict)
    counters: dict[str, list[tuple[int, float]]] = dataclasses.field(default_factory=dict)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    source: str = ""

    @cached_property
    def device(self) -> int | None:
        """The device with the most work; None where no device did any, as on the CPU."""
        counts = Counter(event.device for event in self.device_work)
        return counts.most_common(1)[0][0] if counts else None

    @property
    def on_device(self) -> bool:
        """Whether a device worked; otherwise operators of the host stand for its kernels."""
        return self.device is not None

    @cached_property
    def kernels(self) -> list[Event]:
        """Work that counts as busy: kernels of `device`, or operators of the host that lie in no other."""
        if self.on_device:
            return [event for event in self.device_work if event.device == self.device and not event.is_copy]
        return sorted(
            (e for events in self.threads.values() for e in events if _is_outer_op(e)), key=lambda event: event.start
        )

    @cached_property
    def copies(self) -> list[Event]:
        """Copies and fills of `device`."""
        return [event for event in self.device_work if event.device == self.device and event.is_copy]

    @cached_property
    def steps(self) -> list[Event]:
        """Steps that the profiler was told of."""
        events = (event for thread in self.threads.values() for event in thread)
        found = (event for event in events if event.category == "user_annotation" and event.name.startswith(STEP))
        ordered = sorted(found, key=lambda event: event.start)
        return ordered[: self.facts.get("denizen", {}).get("steps")]  # the last one may have been cut off

    @cached_property
    def window(self) -> tuple[int, int]:
        """What shares are taken of, in nanoseconds: the recorded steps, else from the first work to the last.

        In traces of others the first step begins where its first work does: what ran before was not recorded.
        """
        work = [*self.kernels, *self.copies]
        if not self.steps:
            return min((e.start for e in work), default=0), max((e.end for e in work), default=0)
        first = self.steps[0].start
        if not self.facts.get("denizen"):
            first = min((event.start for event in work if event.start >= first), default=first)
        last = self.steps[-1].end  # on the host; what it asked for by then may end later
        return first, max(last, first, *(event.end for event in work if self._asked(event) < last))

    def _asked(self, work: Event) -> int:
        """When the host asked for some work."""
        call = self.launches.get(work.correlation) if work.correlation else None
        return call.start if call is not None else work.start

    @cached_property
    def launches(self) -> dict[int, Event]:
        """Calls of the runtime by correlation."""
        return {
            event.correlation: event
            for events in self.threads.values()
            for event in events
            if event.category in RUNTIME and event.correlation
        }

    @cached_property
    def results(self) -> dict[int, Event]:
        """Device work by correlation; the first one of a graph."""
        found: dict[int, Event] = {}
        for event in self.device_work:
            if event.correlation:
                found.setdefault(event.correlation, event)
        return found

    def pieces(self, thread: int, start: int, end: int) -> Iterator[Piece]:
        """The thread's time from `start` to `end`, cut where its innermost span changes; covers it without a gap."""
        starts, pieces = self._timeline(thread)
        at, place = start, max(0, bisect.bisect_right(starts, start) - 1)
        while at < end:
            while place < len(pieces) and pieces[place].end <= at:
                place += 1
            if place == len(pieces) or pieces[place].start >= end:
                yield Piece(at, end, None)
                return
            piece = pieces[place]
            if piece.start > at:
                yield Piece(at, piece.start, None)
                at = piece.start
            until = min(piece.end, end)
            yield Piece(at, until, piece.event)
            at = until

    def _timeline(self, thread: int) -> tuple[list[int], list[Piece]]:
        known = self.__dict__.setdefault("_timelines", {})
        if thread not in known:
            pieces = list(_flattened(self.threads.get(thread, [])))
            known[thread] = ([piece.start for piece in pieces], pieces)
        return known[thread]


def read_trace(path: str | Path) -> Trace:
    """Read a trace that torch.profiler or `denizen.perf.profile` wrote.

    Args:
        path: of a Chrome trace, ``.json`` or ``.json.gz``.

    Returns:
        The trace; `denizen.perf.attribute` tells what its idle gaps come from.

    Raises:
        DataError: it cannot be read, or is no such trace.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        content = json.loads(text)
    except (OSError, EOFError, ValueError, RecursionError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
        raise DataError(
            f"read_trace(path={str(path)!r}): {error}; expected a Chrome trace of torch.profiler"
        ) from error
    events = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise DataError(f"read_trace(path={str(path)!r}): has no list traceEvents, as traces of torch.profiler have")
    facts = {k: v for k, v in content.items() if k != "traceEvents"} if isinstance(content, dict) else {}
    try:
        trace = trace_of(events, facts, str(path))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(f"read_trace(path={str(path)!r}): an event is malformed ({error!r})") from error
    if not trace.threads and not trace.device_work:
        raise DataError(
            f"read_trace(path={str(path)!r}): none of its {len(events)} events is an operator, a kernel or a copy; "
            f"expected a Chrome trace of torch.profiler"
        )
    return trace


def recorded(profiler: Any) -> Trace:
    """The trace of a `torch.profiler.profile` that has stopped."""
    content = exported(profiler)
    return trace_of(content.pop("traceEvents"), content)


def exported(profiler: Any) -> dict[str, Any]:
    """What a `torch.profiler.profile` that has stopped writes."""
    with tempfile.TemporaryDirectory(prefix="denizen-profile-") as folder:
        file = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(file)
        return json.loads(Path(file).read_bytes())


def trace_of(events: Iterable[Mapping[str, Any]], facts: Mapping[str, Any] | None = None, source: str = "") -> Trace:
    """The trace of events in Chrome's format, times in microseconds."""
    trace = Trace(facts=dict(facts or {}), source=source)
    for raw in events:
        kind, category = raw.get("ph"), raw.get("cat", "")
        if kind == "X" and category in DEVICE_WORK:
            trace.device_work.append(_device_event(raw))
        elif kind == "X" and category in HOST:
            event = _host_event(raw)
            trace.threads.setdefault(event.thread, []).append(event)
        elif kind == "i" and raw.get("name") == "[memory]":
            trace.memory.append((_ns(raw["ts"]), raw.get("args", {})))
        elif kind == "i" and category == SAMPLE:
            sample = _sample(raw)
            trace.samples.setdefault(sample.thread, []).append(sample)
        elif kind == "C":
            for value in raw.get("args", {}).values():
                trace.counters.setdefault(raw["name"], []).append((_ns(raw["ts"]), float(value)))
    trace.device_work.sort(key=lambda event: (event.start, event.end))
    for thread in trace.threads.values():
        thread.sort(key=lambda event: (event.start, -event.end))
        _nest(thread)
    trace.memory.sort(key=lambda pair: pair[0])
    for samples in trace.samples.values():
        samples.sort(key=lambda sample: sample.time)
    return trace


def _ns(microseconds: float) -> int:
    return round(1e3 * float(microseconds))


def _device_event(raw: Mapping[str, Any]) -> Event:
    args, start = raw.get("args", {}), _ns(raw["ts"])
    device = args.get("device", raw.get("pid", 0))
    return Event(
        raw["name"],
        raw["cat"],
        start,
        start + _ns(raw.get("dur", 0)),
        device=int(device),
        stream=int(args.get("stream", 0) or 0),
        correlation=int(args.get("correlation", 0) or 0),
        args=args,
    )


def _host_event(raw: Mapping[str, Any]) -> Event:
    args, start = raw.get("args", {}), _ns(raw["ts"])
    thread = raw.get("tid", 0)
    return Event(
        raw["name"],
        raw["cat"],
        start,
        start + _ns(raw.get("dur", 0)),
        thread=int(thread),
        correlation=int(args.get("correlation", 0) or 0),
        args=args,
    )


def _sample(raw: Mapping[str, Any]) -> Sample:
    args = raw["args"]
    used, late = int(args["used_ns"]), int(args["late_ns"])
    return Sample(_ns(raw["ts"]), int(raw["tid"]), used, late, bool(args["waits"]), str(args["at"]))


def _nest(events: list[Event]) -> None:
    """Give each span the one around it, and each its time within spans."""
    open_: list[Event] = []
    for event in events:
        while open_ and open_[-1].end <= event.start:
            open_.pop()
        if open_:
            event.parent = open_[-1]
            event.parent.children += min(event.end, event.parent.end) - event.start
        open_.append(event)


def _is_outer_op(event: Event) -> bool:
    if event.category != "cpu_op" or event.name in NO_WORK:
        return False
    parent = event.parent
    while parent is not None:
        if parent.category == "cpu_op":
            return False
        parent = parent.parent
    return True


def _flattened(events: list[Event]) -> Iterator[Piece]:
    """Disjoint pieces in order, each with the innermost span there."""
    open_: list[Event] = []
    at = 0
    for event in [*events, None]:
        until = event.start if event is not None else None
        while open_ and (until is None or open_[-1].end <= until):
            inner = open_.pop()
            if inner.end > at:
                yield Piece(at, inner.end, inner)
                at = inner.end
        if event is None:
            return
        if open_ and event.start > at:
            yield Piece(at, event.start, open_[-1])
        at = max(at, event.start)
        open_.append(event)
