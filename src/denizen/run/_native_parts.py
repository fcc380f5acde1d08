"""Which lines of a native step are run by several threads, each over its part of the agents or of the worlds.

A line that goes over all agents, or over all worlds, is a `Line`. Consecutive ones go together, as long as none of them
reads what another has written for other agents. Threads meet between such groups; what is no `Line`, or too little
work, is the first thread's.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence

from denizen.run._machine import threads

MOST = 8  # threads; each more takes a row of scratch for sums over a graph
LEAST = 10_000.0  # nanoseconds of a group that several threads share; they take one or two to meet
PART = 30_000.0  # nanoseconds of a step that are worth another thread
AGAIN = 32  # calls after which the other number of threads is tried again
ALIGN = 64  # agents by which parts are cut: four share a random block, and none a line of the cache


class Line(str):
    """A call of a loop whose last two arguments are the entries of each row that it goes over: `…, 0, entries)`.

    It may name `part`, the number of its thread, and `parts`, their number.

    Attributes:
        rows: how many rows there are; 0: the entries are themselves rows.
        entries: of each.
        cost: nanoseconds that the loop takes, about.
        writes: names of buffers that it writes.
        across: names of buffers that it reads at entries of others; None: all.
        clears: a call that comes before it, in any thread.
        after: calls that put together what parts have found.
        joint: whether it goes by what the parts of another line have left, so that all threads run both.
    """

    rows: int
    entries: int
    cost: float
    writes: frozenset[str]
    across: frozenset[str] | None
    clears: str | None
    after: tuple[str, ...]
    joint: bool

    @classmethod
    def of(
        cls,
        call: str,
        rows: int,
        entries: int,
        each: float,
        across: Iterable[str] | None = (),
        clears: str | None = None,
        after: Sequence[str] = (),
        joint: bool = False,
    ) -> "Line":
        """Of a call without its end; its loop takes `each` nanoseconds for an entry."""
        line = cls(f"{call}, 0, {entries})")
        line.rows, line.entries, line.cost = rows, entries, each * max(rows, 1) * entries
        line.writes, line.across = frozenset(), None if across is None else frozenset(across)
        line.clears, line.after, line.joint = clears, tuple(after), joint
        return line

    @property
    def cut(self) -> str:
        """The same over a part."""
        return f"{self.removesuffix(f', 0, {self.entries})')}, {', '.join(self.ends)})"

    @property
    def ends(self) -> tuple[str, str]:
        """Names of where a part begins and ends."""
        kind = "world" if self.rows == 0 else "entry"
        return f"first_{kind}_{self.entries}", f"last_{kind}_{self.entries}"

    @property
    def align(self) -> int:
        """At multiples of what parts are cut."""
        return ALIGN if self.rows else 1


def most_parts() -> int:
    """How many threads a step that is written now may have."""
    return min(MOST, max(threads(), os.cpu_count() or 1))


def grouped(lines: Sequence[str], buffers: Callable[[str], dict[str, int]]) -> list[tuple[bool, list[str]]]:
    """(whether all threads go over it, lines) in order; `buffers` gives names and sizes of what a line names."""
    groups: list[list[Line] | str] = []
    for line in lines:
        last = groups[-1] if groups else None
        if isinstance(line, Line) and isinstance(last, list) and _joins(line, last, buffers(line)):
            last.append(line)
        else:
            groups.append([line] if isinstance(line, Line) else line)
    made: list[tuple[bool, list[str]]] = []

    def first_thread(some: Sequence[str]) -> None:
        if made and not made[-1][0]:
            made[-1][1].extend(some)
        elif some:
            made.append((False, list(some)))

    for group in groups:
        if isinstance(group, str):
            first_thread([group])
        elif sum(line.cost for line in group) < LEAST and not any(line.joint for line in group):
            first_thread([alone(text) for line in group for text in (line.clears, line, *line.after) if text])
        else:
            made.append((True, list(group)))
            first_thread([text for line in group for text in line.after])
    return made


def alone(text: str) -> str:
    """A call as the only thread makes it."""
    return re.sub(r"\bparts\b", "1", re.sub(r"\bpart\b", "0", text))


def cost(groups: Iterable[tuple[bool, list[str]]]) -> float:
    """Nanoseconds of what several threads share."""
    return sum(line.cost for shared, lines in groups if shared for line in lines if isinstance(line, Line))


def _joins(line: Line, group: list[Line], named: dict[str, int]) -> bool:
    first = group[0]
    if (line.rows, line.entries) != (first.rows, first.entries) or line.rows == 0:
        return False
    both = named.keys() & {name for one in group for name in one.writes}
    apart = (named[name] % (line.rows * line.entries) != 0 for name in both)  # one number of each row
    return not both or not (line.across is None or both & line.across or any(apart))


class Choice:
    """How many threads a segment takes: as many as its work is worth, or one where that was quicker of late.

    Threads that meet wait for the slowest, which on a busy machine may not be running at all.
    """

    def __init__(self) -> None:
        self._took: dict[int, float] = {}  # seconds a step, by threads
        self._calls = 0

    def threads(self, cost: float, most: int = MOST) -> int:
        """For so many nanoseconds of work that threads share; at most so many."""
        most = min(parts(cost), most)
        self._calls += 1
        if most == 1 or self._calls == 1:
            return 1
        quicker = min((most, 1), key=lambda number: self._took.get(number, 0.0))
        return most + 1 - quicker if self._calls % AGAIN == 0 else quicker

    def took(self, number: int, seconds: float) -> None:
        """Note what a step took; not of the first call, which compiles."""
        if self._calls > 1:
            self._took[number] = seconds


def parts(cost: float) -> int:
    """How many threads so many nanoseconds are worth."""
    return max(1, min(threads(), most_parts(), int(cost / PART)))
