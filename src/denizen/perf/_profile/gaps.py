"""Why a device stood still: each idle gap of a trace, what the host did meanwhile, and who held Python's lock."""

import bisect
import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from denizen.perf._profile.trace import RUNTIME, Event, Piece, Sample, Trace
from denizen.perf.watch import _spans

STANDS = 0.5  # of a core: a thread that uses less stands still for most of the time
RUNS = 0.25  # of a core: a thread that uses more may have held the lock, also on a machine that others use
COVERS = 0.5  # of the time, by calls that were recorded
LATE = 0.25  # of the time that the sampling thread had to wait for the lock itself
WANTS = 0.2  # of the looks at a thread on a line: then what it waits for there is the lock, not only what it asked for

# Lines on which a thread waits for another one, or for anything, of its own accord.
WAITS_FOR_THREADS = re.compile(r"\b(acquire|wait|join|get|put|result|synchronize)\(")
WAITS = re.compile(
    rf"{WAITS_FOR_THREADS.pattern}|\b(sleep|recv|recv_bytes|read|readline|select|poll|accept|communicate|urlopen|open|"
    r"input)\("
)
# The same, as recorded stacks name what is built in.
PAUSES = re.compile(r"built-in (method|function) (sleep|acquire|select|poll|read|recv|wait|get)\b")


def lock_holder(trace: Trace, thread: int, piece: Piece) -> str:
    """Evidence that another thread had the lock; "" where there is none."""
    if thread in trace.samples:
        return _by_samples(trace, thread, piece)
    return _by_stacks(trace, thread, piece)


def state_of(trace: Trace, thread: int, piece: Piece) -> tuple[str, str, bool] | None:
    """Where a thread was, in words too, and whether it only lacked a core; None where it was not sampled."""
    samples = trace.samples.get(thread, [])
    near = _around(samples, piece.start, piece.end)
    if not near:
        return None
    inside = [s for s in near if piece.start <= s.time <= piece.end] or near
    at, used = _place(inside), _used(samples, piece.start, piece.end)
    ready = False
    if used >= STANDS:
        words = f"the launching thread ran Python at {at} and launched nothing ({used:.0%} of a core)"
    elif sum(s.waits for s in inside) * 2 >= len(inside):
        words = f"the launching thread waited at {at} and launched nothing ({used:.0%} of a core)"
    else:
        ready = True
        words = f"the launching thread was ready to run at {at} and got {used:.0%} of a core: others had them"
    return at, words, ready


def _by_samples(trace: Trace, thread: int, piece: Piece) -> str:
    samples = trace.samples[thread]
    inside = _around(samples, piece.start, piece.end)
    if not inside or _used(samples, piece.start, piece.end) > STANDS or _wants(samples, inside) < WANTS:
        return ""
    length = piece.end - piece.start
    late = sum(max(0, min(s.time, piece.end) - max(s.time - s.late, piece.start)) for s in inside)
    if late / length < LATE:
        return ""
    shares = {o: _used(own, piece.start, piece.end) for o, own in trace.samples.items() if o != thread}
    other = max(shares, key=lambda number: shares[number], default=None)
    if other is None or shares[other] < RUNS:
        return ""
    near = _around(trace.samples[other], piece.start, piece.end)
    at = f" at {near[-1].at}" if near else ""
    return (
        f"the launching thread wanted to run and could not: thread {other} used {shares[other]:.0%} of a core{at} and "
        f"held the interpreter lock{_or_the_core(trace)}"
    )


def _or_the_core(trace: Trace) -> str:
    """A thread that waits for a core looks the same."""
    known = trace.facts.get("denizen", {})
    load, cores = known.get("load", 0), known.get("cores", 0)
    return f", or there was no core left (load {load:.1f} on {cores} cores)" if load > cores else ""


def _by_stacks(trace: Trace, thread: int, piece: Piece) -> str:
    """Only one thread runs Python at a time: calls that begin on another one, and none on this, show which."""
    event = piece.event
    if event is None or event.category != "python_function" or PAUSES.search(event.name):
        return ""
    for other, events in trace.threads.items():
        if other == thread or not any(e.category == "python_function" for e in events):
            continue
        pieces = [p for p in trace.pieces(other, piece.start, piece.end) if p.event is not None]
        runs = [p for p in pieces if p.event.category == "python_function" and not PAUSES.search(p.event.name)]  # type: ignore[union-attr]
        began = any(piece.start < p.start for p in runs)
        covered = sum(p.end - p.start for p in runs)
        if began and covered >= COVERS * (piece.end - piece.start):
            longest = max(runs, key=lambda p: p.end - p.start)
            return (
                f"no call began or ended on the launching thread while thread {other} ran Python, the longest in "
                f"{longest.event.name}"  # type: ignore[union-attr]
            )
    return ""


def _wants(samples: Sequence[Sample], inside: Sequence[Sample]) -> float:
    """How often a thread was ready to run when it was examined, on the line where it is now.

    Over all looks, for within a short gap there are few: somebody who sleeps for a moment and then waits for the lock
    is seen asleep at times.
    """
    at = _place(inside)
    looks = [sample for sample in samples if sample.at == at]
    return sum(not sample.waits for sample in looks) / len(looks)


def _place(samples: Sequence[Sample]) -> str:
    """Where they saw it most often."""
    return Counter(sample.at for sample in samples).most_common(1)[0][0]


def _around(samples: Sequence[Sample], start: int, end: int) -> list[Sample]:
    """Samples from `start` on and the first one after `end`, which was taken as soon as the lock could be had."""
    times = [sample.time for sample in samples]
    first, last = bisect.bisect_left(times, start), bisect.bisect_right(times, end)
    return list(samples[first : last + 1])


def _used(samples: Sequence[Sample], start: int, end: int) -> float:
    """Share of a core between two moments, between samples in proportion; 0 where too few are known."""
    length = end - start
    if length <= 0 or len(samples) < 2:
        return 0.0
    return max(0.0, (_at(samples, end) - _at(samples, start)) / length)


def _at(samples: Sequence[Sample], moment: int) -> float:
    times = [sample.time for sample in samples]
    place = min(max(bisect.bisect_right(times, moment), 1), len(samples) - 1)
    before, after = samples[place - 1], samples[place]
    if after.time == before.time or not before.time <= moment <= after.time:
        return float(before.used if moment < before.time else after.used)
    return before.used + (after.used - before.used) * (moment - before.time) / (after.time - before.time)


LAUNCH, READ, LOCK, ALLOCATOR = "launch-bound", "host read", "interpreter lock", "allocator"
COPY, DATA, HOST, CORE, UNKNOWN = "copy", "data wait", "host work", "no core", "unknown"
CAUSES = (LAUNCH, READ, LOCK, ALLOCATOR, COPY, DATA, HOST, CORE, UNKNOWN)

# What helps against each; the line is for `dz.doctor` to name.
REMEDIES = {
    LAUNCH: "fewer and larger operators: torch.compile, a CUDA graph, a larger batch, a fused optimizer",
    READ: "keep the value on the device and read it late: dz.tools.MetricsWriter; dz.doctor names the line",
    LOCK: "that thread's work belongs in a process of its own, or in code that frees the lock",
    ALLOCATOR: "fixed shapes, no empty_cache in the loop, PYTORCH_ALLOC_CONF=expandable_segments:True",
    COPY: "copy beside the kernels from pinned memory: dz.tools.PrefetchLoader",
    DATA: "workers and batches ahead of time: dz.tools.tune_workers, dz.tools.PrefetchLoader",
    HOST: "move it out of the loop, into another thread or process, or onto the device",
    CORE: "fewer processes and threads beside it than the machine has cores, or cores of its own: taskset",
    UNKNOWN: "profile with stacks=True (--stacks) to see what the host did",
}

# Longer pauses between two operators are not the cost of Python around them.
BETWEEN_OPERATORS = 100_000  # ns
# From the launch to the start on an idle device; longer ones wait for something on the device.
LATENCY = 20_000  # ns

# Files of loaders, as stacks name them; and ranges around waiting for them.
LOADERS = re.compile(r"utils/data/(dataloader|_utils/fetch)\.py|denizen/tools/_(feed|loader)\.py")
_DATA = re.compile(rf"DataLoader|PrefetchLoader|\bdata wait\b|{LOADERS.pattern}")
_ALLOCATOR = re.compile(
    r"^(cuda|hip)(Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister|MemPool)"
    r"|^cuMem(Alloc|Free|Create|Release|Map|Unmap|SetAccess|AddressReserve|AddressFree|HostAlloc)"
)
_SYNC = re.compile(r"^(cuda|hip)(Stream|Device|Event)Synchronize|^cu(Ctx|Stream|Event)Synchronize")
_COPY = re.compile(r"^(cuda|hip|cu)Memcpy")


@dataclasses.dataclass(frozen=True)
class Gap:
    """A time without work on the device.

    Attributes:
        start: nanoseconds, on the trace's clock.
        end: nanoseconds.
        cause: one of `CAUSES`; what most of it is due to.
        shares: of the gap, by cause; they add up to 1.
        evidence: what the trace shows, in words.
        at: line or function of the host that it waited for, as far as known.
        before: the work that ended there; "" at the beginning.
        after: the work that followed; "" at the end.
    """

    start: int
    end: int
    cause: str
    shares: dict[str, float]
    evidence: str
    at: str = ""
    before: str = ""
    after: str = ""

    @property
    def duration(self) -> int:
        """Nanoseconds."""
        return self.end - self.start

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def attribute(trace: Trace) -> list[Gap]:
    """Every idle gap of the window, with its cause.

    A gap is a time without a kernel on the trace's busiest device, on no stream of it; on the CPU a time without an
    operator. Together with the busy time the gaps make up `trace.window`.

    What the host did between the end of the work before a gap and the launch of the work after it decides:

    - ``launch-bound``: it dispatched operators, launched kernels or ran Python between them, too late for the device;
    - ``host read``: it waited for the device (item, a copy to the host, synchronize); launching then began anew;
    - ``interpreter lock``: the launching thread stood still and used no core while another thread held the lock;
    - ``allocator``: memory was asked of the driver or given back to it, pinned memory included;
    - ``copy``: memory was copied with no kernel beside it, or the host waited for a copy to the device;
    - ``data wait``: it was in a loader;
    - ``host work``: it was in Python that launches nothing, or waited there; `Gap.at` says where;
    - ``no core``: it was ready to run, and other threads or processes had the cores;
    - ``unknown``: the trace does not say.

    Args:
        trace: as `read_trace` gives it.

    Returns:
        Gaps in order of time.
    """
    return list(_Attribution(trace).gaps())


@dataclasses.dataclass(frozen=True)
class _Part:
    """A stretch of a gap and what it is due to."""

    start: int
    end: int
    cause: str
    evidence: str = ""
    at: str = ""


class _Attribution:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._known: dict[int, tuple[str, str]] = {}
        self._copies = _spans.union(event.span() for event in trace.copies)
        launching = {event.thread for event in trace.launches.values()}
        launching |= {event.thread for event in trace.steps}
        main = [event.thread for event in trace.steps[:1]]
        self._launching = [*main, *sorted(launching - set(main))]
        # The copies that each operator asks for, so that a wait is told from what it waits for.
        self._asked: dict[int, list[Event]] = {}
        for event in trace.launches.values():
            if _COPY.match(event.name) and event.parent is not None:
                self._asked.setdefault(id(event.parent), []).append(event)

    def gaps(self) -> Iterator[Gap]:
        first, last = self.trace.window
        before, at = "", first
        for kernel in self.trace.kernels:
            if kernel.start > at and at < last:
                yield self._gap(at, min(kernel.start, last), kernel, before)
            if kernel.end >= at:
                at, before = kernel.end, kernel.name
        if at < last:
            yield self._gap(at, last, None, before)

    def _gap(self, start: int, end: int, following: Event | None, before: str) -> Gap:
        parts = list(self._parts(start, end, following))
        times = dict.fromkeys(CAUSES, 0)
        for part in parts:
            times[part.cause] += part.end - part.start
        cause = max(CAUSES, key=lambda name: times[name])
        main = max((part for part in parts if part.cause == cause), key=lambda part: part.end - part.start)
        shares = {name: time / (end - start) for name, time in times.items() if time}
        after = following.name if following is not None else ""
        at = next((part.at for part in (main, *parts) if part.cause == cause and part.at), "")
        return Gap(start, end, cause, shares, main.evidence, at, before, after)

    def _parts(self, start: int, end: int, following: Event | None) -> Iterator[_Part]:
        """The gap, cut into what it is due to: times of copies, and between them what the host did."""
        at = start
        for first, last in _spans.clipped(self._copies, start, end):
            if first > at:
                yield from self._host(at, first, start, following)
            yield _Part(first, last, COPY, "the device copied memory with no kernel beside it")
            at = last
        if at < end:
            yield from self._host(at, end, start, following)

    def _host(self, start: int, end: int, gap: int, following: Event | None) -> Iterator[_Part]:
        thread, launched = self._launch_of(following, end)
        late = min(max(start, launched), end)
        if late > start:
            drained = self._drained_by(thread, gap)
            for piece in self._pieces(thread, start, late):
                part = self._part(piece, thread)
                if drained is not None and part.cause == LAUNCH:  # but for the wait it would have launched long before
                    part = dataclasses.replace(part, cause=drained.cause, evidence=drained.evidence, at=drained.at)
                yield part
        if end > late:
            if end - late <= LATENCY:
                queued = (
                    "between two kernels, the second one queued" if launched < start else "from the launch to the start"
                )
                yield _Part(late, end, LAUNCH, f"what the device takes {queued}")
            else:
                why = f"launched {(end - late) / 1e3:.0f} µs before it began: it waited on the device, as for an event "
                why += "or for other processes' work there"
                yield _Part(late, end, UNKNOWN, why)

    def _launch_of(self, following: Event | None, end: int) -> tuple[int, int]:
        """The thread that launched the work, and when it had."""
        if following is None:
            return (self._launching[0] if self._launching else -1), end
        if not self.trace.on_device:
            return following.thread, end
        call = self.trace.launches.get(following.correlation)
        if call is None:
            return (self._launching[0] if self._launching else -1), end
        return call.thread, min(call.end, end)  # the launch itself may be slow, as where code is loaded first

    def _drained_by(self, thread: int, moment: int) -> _Part | None:
        """What the launching thread waited for when the device ran dry."""
        for piece in self._pieces(thread, moment - 1, moment + 1):
            part = self._part(piece, thread)
            waited = piece.event is not None and piece.event.duration >= LATENCY  # shorter calls drain nothing
            if waited and part.cause in (READ, COPY, ALLOCATOR):
                return part
        return None

    def _pieces(self, thread: int, start: int, end: int) -> Iterator[Piece]:
        """The thread's pieces; where it has nothing, those of the threads that launch too (backward has its own)."""
        for piece in self.trace.pieces(thread, start, end):
            others = [other for other in self._launching if other != thread]
            yield from self._fill(piece, others) if self._bare(piece.event) else [piece]

    def _fill(self, piece: Piece, others: list[int]) -> Iterator[Piece]:
        if not others:
            yield piece
            return
        for part in self.trace.pieces(others[0], piece.start, piece.end):
            if self._bare(part.event):
                yield from self._fill(Piece(part.start, part.end, piece.event or part.event), others[1:])
            else:
                yield part

    def _bare(self, event: Event | None) -> bool:
        return event is None or self._cause(event)[0] == ""

    def _part(self, piece: Piece, thread: int) -> _Part:
        cause, evidence = self._cause(piece.event) if piece.event is not None else ("", "")
        if cause == LAUNCH and piece.end - piece.start > BETWEEN_OPERATORS and piece.event.category == "cpu_op":  # type: ignore[union-attr]
            holder = lock_holder(self.trace, thread, piece)  # some operators ask for the lock within
            if holder:
                return _Part(piece.start, piece.end, LOCK, holder, _function(piece.event))
        if cause:
            return _Part(piece.start, piece.end, cause, evidence, _function(piece.event))
        if piece.end - piece.start <= BETWEEN_OPERATORS:
            return _Part(piece.start, piece.end, LAUNCH, "Python between operators", _function(piece.event))
        return self._standstill(piece, thread)

    def _standstill(self, piece: Piece, thread: int) -> _Part:
        """A long time in which the launching thread did nothing that the trace records."""
        holder = lock_holder(self.trace, thread, piece)
        if holder:
            return _Part(piece.start, piece.end, LOCK, holder, _function(piece.event))
        seen = state_of(self.trace, thread, piece)
        if seen is not None:
            at, words, ready = seen
            cause = DATA if _DATA.search(at) else CORE if ready else HOST
            return _Part(piece.start, piece.end, cause, words, at)
        function = _function(piece.event)
        if function and piece.event is not None:
            verb = "waited in" if PAUSES.search(piece.event.name) else "was in"
            words = f"the launching thread {verb} {piece.event.name} and launched nothing"
            return _Part(piece.start, piece.end, HOST, words, function)
        return _Part(piece.start, piece.end, UNKNOWN, "the trace shows nothing on the launching thread")

    def _cause(self, event: Event) -> tuple[str, str]:
        """What time in a span is due to, and evidence; "" for ranges and Python functions that say nothing."""
        if id(event) not in self._known:
            above = self._cause(event.parent) if event.parent is not None else ("", "")
            self._known[id(event)] = above if above[0] in (DATA, ALLOCATOR) else self._own(event) or above
        return self._known[id(event)]

    def _own(self, event: Event) -> tuple[str, str] | None:
        if event.category in ("user_annotation", "python_function"):
            return (DATA, f"the loop waited in {event.name}") if _DATA.search(event.name) else None
        if event.category not in RUNTIME:
            return LAUNCH, f"the host dispatched {event.name}"
        if _ALLOCATOR.match(event.name):
            return ALLOCATOR, f"{event.name} took {event.duration / 1e3:.0f} µs"
        by = f" of {_operator(event)}" if _operator(event) else ""
        if _COPY.match(event.name):
            return self._copy(event, f"the host was in {event.name}{by}")
        if _SYNC.match(event.name):
            asked = [c for c in self._asked.get(id(event.parent), []) if c.start <= event.start]
            if asked and self._direction(asked[-1]) == "HtoD":
                return COPY, f"the host waited in {event.name}{by} for a copy to the device"
            return READ, f"the host waited in {event.name}{by} until the device had nothing left to do"
        return LAUNCH, f"the host was in {event.name}"

    def _copy(self, event: Event, words: str) -> tuple[str, str]:
        direction = self._direction(event)
        if direction == "DtoH":
            return READ, f"{words}, a copy to the host"
        return (LAUNCH, words) if direction == "DtoD" else (COPY, words)

    def _direction(self, call: Event) -> str:
        found = self.trace.results.get(call.correlation)
        match = re.search(r"[HD]to[HD]", found.name) if found is not None else None
        return match[0] if match else ""


def _operator(event: Event) -> str:
    """The outermost operator around a call, such as ``aten::item``."""
    name, parent = "", event.parent
    while parent is not None:
        if parent.category == "cpu_op":
            name = parent.name
        parent = parent.parent
    return name


def _function(event: Event | None) -> str:
    """The innermost Python function around a span that is not torch's; "" where stacks were not recorded."""
    while event is not None:
        own = event.category == "python_function" and not event.name.startswith(
            ("<", "torch/", "nn.Module", "threading.py")
        )
        if own:
            return event.name
        event = event.parent
    return ""
