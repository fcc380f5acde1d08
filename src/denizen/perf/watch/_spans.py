"""Intervals of device work: how long it was busy, where it was idle, what repeats. Pure functions."""

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence


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
