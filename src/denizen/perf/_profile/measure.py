"""What a trace says in numbers: busy time, queue, operators by self time, memory."""

import dataclasses
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from denizen.perf._profile.gaps import CAUSES, Gap, attribute
from denizen.perf._profile.trace import RUNTIME, Event, Trace
from denizen.perf.watch import _spans


@dataclasses.dataclass(frozen=True)
class Idle:
    """Idle time of one cause.

    Attributes:
        cause: one of `CAUSES`.
        seconds: of the window; parts of gaps count with their part.
        gaps: number of gaps that are mostly due to it.
        longest: seconds of the longest of these.
        evidence: of the longest.
        at: line or function of the host; "" where not known.
    """

    cause: str
    seconds: float
    gaps: int
    longest: float
    evidence: str
    at: str = ""


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator, by the time that is its own: what it spends in other operators is theirs.

    Attributes:
        name: of the operator.
        calls: in the window.
        host: seconds of the host.
        device: seconds of the kernels and copies that it launched itself; they run beside the host.
        shapes: of its arguments, those that came most often; "" where they were not recorded.
    """

    name: str
    calls: int
    host: float
    device: float
    shapes: str = ""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel or copy of the device.

    Attributes:
        name: of the kernel.
        calls: in the window.
        seconds: in all; those of several streams run beside one another, so that all together may exceed the busy time.
    """

    name: str
    calls: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Queue:
    """How far the host was ahead of the device.

    Attributes:
        launches: of kernels, graphs and copies.
        mean: launches waiting or running, averaged over time.
        most: of them at any moment.
        empty: share of the launches that found nothing waiting or running: the device stood still.
        latency: seconds from a launch that found nothing to the start on the device, the median; None without one.
    """

    launches: int
    mean: float
    most: int
    empty: float
    latency: float | None


@dataclasses.dataclass(frozen=True)
class Memory:
    """What the allocator was asked for.

    Attributes:
        allocations: blocks handed out.
        bytes: of them.
        driver_calls: times that memory was asked of the driver or given back (cudaMalloc, cudaFree), which is slow.
        peak: most bytes in use; None where the trace does not say.
        growth: bytes in use at the end less those at the beginning.
        timeline: (seconds from the beginning, bytes in use).
    """

    allocations: int
    bytes: int
    driver_calls: int
    peak: int | None
    growth: int
    timeline: list[tuple[float, int]]


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a trace says in numbers.

    Attributes:
        start: of the window, in nanoseconds of the trace's clock.
        window: seconds examined.
        busy: seconds of it in which at least one kernel ran.
        copies: seconds in which memory was copied or filled.
        exposed_copies: seconds of these with no kernel beside them.
        kernels: number of kernels, or of operators on the CPU.
        idle: idle time by cause, the longest first.
        gaps: every idle gap.
        operators: by self time, the longest first.
        device_ops: kernels and copies, the longest first; empty on the CPU.
        queue: how far the host was ahead; None on the CPU.
        memory: what the allocator was asked for; None where it was not recorded.
    """

    start: int
    window: float
    busy: float
    copies: float
    exposed_copies: float
    kernels: int
    idle: list[Idle]
    gaps: list[Gap]
    operators: list[Operator]
    device_ops: list[Kernel]
    queue: Queue | None
    memory: Memory | None


def measured(trace: Trace) -> Measured:
    """The numbers of a trace."""
    first, last = trace.window
    kernels = [event.span() for event in trace.kernels]
    work = list(_spans.clipped(_spans.union(kernels), first, last))
    copies = list(_spans.clipped(_spans.union(event.span() for event in trace.copies), first, last))
    beside = sum(_length(_spans.clipped(work, *copy)) for copy in copies)
    gaps = attribute(trace)
    in_window = [event for event in trace.kernels if first <= event.start < last]
    return Measured(
        start=first,
        window=_seconds(last - first),
        busy=_seconds(_length(work)),
        copies=_seconds(_length(copies)),
        exposed_copies=_seconds(_length(copies) - beside),
        kernels=len(in_window),
        idle=idle_by_cause(gaps),
        gaps=gaps,
        operators=operators(trace),
        device_ops=device_ops(trace),
        queue=queue(trace),
        memory=memory(trace),
    )


def idle_by_cause(gaps: Iterable[Gap]) -> list[Idle]:
    """Causes that took time, the longest first."""
    times, counts, longest = dict.fromkeys(CAUSES, 0.0), Counter[str](), dict[str, Gap]()
    for gap in gaps:
        counts[gap.cause] += 1
        for cause, share in gap.shares.items():
            times[cause] += share * gap.duration
        if gap.cause not in longest or gap.duration > longest[gap.cause].duration:
            longest[gap.cause] = gap
    found = []
    for cause, time in times.items():
        gap = longest.get(cause)
        if time:
            length, words, at = (
                (gap.duration, gap.evidence, gap.at) if gap else (0, "parts of gaps of other causes", "")
            )
            found.append(Idle(cause, _seconds(time), counts[cause], _seconds(length), words, at))
    return sorted(found, key=lambda idle: -idle.seconds)


def operators(trace: Trace) -> list[Operator]:
    """Operators by self time, of the host and of the device together, the longest first."""
    first, last = trace.window
    host, device, calls = Counter[str](), Counter[str](), Counter[str]()
    shapes: dict[str, Counter[str]] = {}
    work = Counter[int]()
    for event in trace.device_work:
        work[event.correlation] += event.duration
    for events in trace.threads.values():
        for event in events:
            if not first <= event.start < last:
                continue
            if event.category == "cpu_op":
                host[event.name] += event.self_time
                if _within_itself(event):
                    continue  # the same call, on another of torch's ways to its kernel
                calls[event.name] += 1
                if event.args.get("Input Dims"):
                    shapes.setdefault(event.name, Counter())[_shapes(event.args)] += 1
            elif event.category in RUNTIME:
                owner = _owner(event)
                if owner:  # launching is the operator's own work
                    host[owner] += event.self_time
                    if trace.launches.get(event.correlation) is event:  # one of the calls that it passes through
                        device[owner] += work[event.correlation]
    found = [
        Operator(
            name,
            number,
            _seconds(host[name]),
            _seconds(device[name]),
            shapes[name].most_common(1)[0][0] if name in shapes else "",
        )
        for name, number in calls.items()
    ]
    return sorted(found, key=lambda op: -max(op.host, op.device))


def _within_itself(event: Event) -> bool:
    """Whether an operator runs within one of its own name."""
    around = event.parent
    while around is not None and (around.category != "cpu_op" or around.name != event.name):
        around = around.parent
    return around is not None


def device_ops(trace: Trace) -> list[Kernel]:
    """Kernels and copies of the device, the longest first; empty on the CPU."""
    if not trace.on_device:
        return []
    first, last = trace.window
    times, calls = Counter[str](), Counter[str]()
    for event in (*trace.kernels, *trace.copies):
        if first <= event.start < last:
            times[event.name] += event.duration
            calls[event.name] += 1
    return [Kernel(name, calls[name], _seconds(time)) for name, time in times.most_common()]


def queue(trace: Trace) -> Queue | None:
    """How deep the queue of launches was; None where no device worked."""
    if not trace.on_device:
        return None
    first, last = trace.window
    works: dict[int, tuple[int, int]] = {}
    for event in trace.device_work:
        if event.device == trace.device and event.correlation in trace.launches:
            begun, ended = works.get(event.correlation, (event.start, event.end))
            works[event.correlation] = (min(begun, event.start), max(ended, event.end))
    changes: list[tuple[int, int, int]] = []
    for number, (begun, ended) in works.items():
        asked = trace.launches[number].start
        if first <= asked < last:
            changes += [(asked, 1, begun), (max(ended, asked), -1, 0)]
    depth = most = empty = 0
    area, at, latencies = 0, first, []
    for moment, change, begun in sorted(changes):
        area += depth * (moment - at)
        at = moment
        if change > 0 and depth == 0:
            empty += 1
            latencies.append(begun - moment)
        depth += change
        most = max(most, depth)
    count = len(changes) // 2
    if not count:
        return None
    latency = _seconds(statistics.median(latencies)) if latencies else None
    return Queue(count, area / max(1, last - first), most, empty / count, latency)


def memory(trace: Trace) -> Memory | None:
    """What the allocator of the device, or of the host where there is none, was asked for; None if not recorded."""
    first, last = trace.window
    wanted = 0 if not trace.on_device else 1  # c10's numbers: CPU, CUDA
    events = [
        (moment, args)
        for moment, args in trace.memory
        if first <= moment <= last
        and args.get("Device Type") == wanted
        and (not trace.on_device or args.get("Device Id") == trace.device)
    ]
    calls = [e for thread in trace.threads.values() for e in thread if first <= e.start < last]
    driver = sum(e.category in RUNTIME and e.name.startswith(_DRIVER) for e in calls)
    if not events:
        return Memory(0, 0, driver, None, 0, []) if trace.memory else None
    sizes = [int(args.get("Bytes", 0)) for _, args in events]
    taken = [size for size in sizes if size > 0]
    line = [(_seconds(moment - first), int(args.get("Total Allocated", 0))) for moment, args in events]
    begun = line[0][1] - sizes[0]
    peak = max(begun, *(value for _, value in line))
    return Memory(len(taken), sum(taken), driver, peak, line[-1][1] - begun, line)


_DRIVER = ("cudaMalloc", "cudaFree", "hipMalloc", "hipFree", "cuMemCreate", "cuMemRelease")


def _owner(event: Event) -> str:
    """The innermost operator around a call."""
    parent = event.parent
    while parent is not None:
        if parent.category == "cpu_op":
            return parent.name
        parent = parent.parent
    return ""


def _shapes(args: Mapping[str, Any]) -> str:
    return ", ".join(str(list(shape)) for shape in args["Input Dims"] if shape)


def _length(intervals: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in intervals)


def _seconds(nanoseconds: float) -> float:
    return nanoseconds / 1e9
