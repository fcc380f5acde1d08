"""What the doctor says of one line: its kind, how sure it is, what it costs, what to write instead."""

import dataclasses
import itertools
import re
from collections.abc import Iterable
from typing import Any

from denizen.perf.watch._faults import FAULTS
from denizen.perf.watch._findings import EVERY, Finding
from denizen.perf.watch._places import Place, shown

NOTE, WARNING, SEVERE = "note", "warning", "severe"
LEVELS = (NOTE, WARNING, SEVERE)
SEVERE_SHARE = 0.1  # of the step, measured
RARE = 5  # a fault that comes once in so many steps costs so little that it is only told

AB, ESTIMATE, COUNT = "measured A/B", "estimate", "count"


@dataclasses.dataclass(frozen=True)
class Cost:
    """Time that a step loses to one finding.

    Attributes:
        seconds: of each step.
        low: lower end of the interval, 95 %; as `seconds` for estimates.
        high: upper end.
        share: of the time of a step.
        how: ``"measured A/B"`` (the step timed with and without it, in pairs) or ``"estimate"``.
        basis: what it was computed from.
    """

    seconds: float
    low: float
    high: float
    share: float
    how: str
    basis: str = ""

    def __str__(self) -> str:
        spread = f" ({1e3 * self.low:.3g} to {1e3 * self.high:.3g})" if self.how == AB else ""
        if self.how == AB and self.low <= 0:
            return f"none that can be measured{spread}, {self.how}"
        return f"{1e3 * self.seconds:.3g} ms a step{spread}, {self.share:.0%} of it, {self.how}"


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """A line and what is wrong with it.

    Attributes:
        kind: of fault, such as ``"host-sync-item"``.
        file: of the line.
        line: in the file.
        function: that the line is in.
        code: the line's text; "" where it cannot be read.
        count: times in a step.
        period: ``"every step"``, ``"every k steps"``, ``"irregular"``, ``"once"``, ``"first call"``, ``"set-up"``.
        level: ``"severe"``, ``"warning"`` or ``"note"``; never above a note without a measured cost or an exact count.
        evidence: what was seen.
        fix: what to write instead.
        confidence: ``"high"``, ``"medium"`` or ``"low"``.
        op: operation or function that did it.
        bytes: that it moved or took in a step.
        needless: bytes of these that the mended step would not move.
        flops: of its matrix products in a wider type than is needed.
        cost: time of a step; None where it is not known, as without a GPU.
        via: library line that did it on behalf of the user's line.
    """

    kind: str
    file: str
    line: int
    function: str
    code: str
    count: int
    period: str
    level: str
    evidence: tuple[str, ...]
    fix: str
    confidence: str = "high"
    op: str = ""
    bytes: int = 0
    needless: int = 0
    flops: int = 0
    cost: Cost | None = None
    via: str = ""

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{shown(self.file)}:{self.line}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def at(
    kind: str,
    place: Place,
    count: int,
    period: str,
    evidence: Iterable[str],
    *,
    level: str = WARNING,
    confidence: str = "high",
    op: str = "",
    bytes: int = 0,
    needless: int = 0,
    fix: str = "",
) -> Diagnosis:
    """A diagnosis at a place; its level is lowered where it comes seldom."""
    return Diagnosis(
        kind,
        place.file,
        place.line,
        place.function,
        place.code,
        count,
        period,
        lowered(level, period),
        tuple(evidence),
        fix or FAULTS[kind].fix,
        confidence,
        op,
        bytes,
        needless,
        via=place.via,
    )


def of_finding(found: Finding) -> Diagnosis:
    """A diagnosis of what the counting heard: an exact count at a line."""
    each = found.bytes // max(1, found.total)
    size = f", {each:,} bytes each" if each else ""
    times = f"{found.count} a step" if found.steps else f"{found.total} times"
    evidence = [f"{found.op}: {times}{size}"]
    evidence += [f"via {found.via}"] if found.via else []
    evidence += [found.note] if found.note else []
    return Diagnosis(
        found.kind,
        found.file,
        found.line,
        found.function,
        found.code,
        found.count,
        found.period,
        lowered(WARNING, found.period),
        tuple(evidence),
        found.fix,
        "high",
        found.op,
        each * found.count,
        via=found.via,
    )


def lowered(level: str, period: str) -> str:
    """The level of what comes as often as `period` says: every step or nearly, else a note."""
    every = re.fullmatch(r"every (\d+) steps", period)
    often = period == EVERY or (every is not None and int(every[1]) < RARE)
    return level if often else NOTE


def period_of(came: Iterable[int], counted: Iterable[int]) -> str:
    """How often something came.

    Args:
        came: numbers of the steps that it came in.
        counted: numbers of all steps that were examined.
    """
    seen, steps = sorted(set(came)), sorted(set(counted))
    if seen == steps:
        return EVERY if len(steps) > 1 else "unknown period"
    apart = {later - earlier for earlier, later in itertools.pairwise(seen)}
    if len(apart) == 1:
        return f"every {apart.pop()} steps"
    return "once" if len(seen) == 1 else "irregular"


def order(one: Diagnosis) -> tuple[Any, ...]:
    """A key that puts what costs most first: measured costs, then by what each kind takes, roughly; notes last."""
    cost = max(0.0, one.cost.seconds) if one.cost is not None else 0.0
    rough = FAULTS[one.kind].micros if one.kind in FAULTS else 1
    return one.level == NOTE, -cost, -one.count * rough, -one.bytes, one.file, one.line
