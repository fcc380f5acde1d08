"""Who held Python's interpreter lock while a thread stood still, from samples of all threads or recorded stacks."""

import bisect
import re
from collections import Counter
from collections.abc import Sequence

from denizen.perf._profile.trace import Piece, Sample, Trace

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
    """How often a thread was ready to run when it was looked at, on the line where it is now.

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
