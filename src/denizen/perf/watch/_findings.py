"""From events to findings: one for each line and kind, with how often it comes and what to write instead."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from denizen.perf.watch._event_log import TRANSFERS, Event
from denizen.perf.watch._faults import fix_of
from denizen.perf.watch._places import Place

NEAR = 12  # lines between a value's way to the host and its way back, at most
MANY = 3  # copies to the host by one line in one step that look like a list being filled

SET_UP, FIRST, EVERY, UNKNOWN = "set-up", "first call", "every step", "unknown period"


@dataclasses.dataclass(frozen=True)
class Finding:
    """A line that keeps the device waiting, or does other work that it need not.

    Attributes:
        kind: of fault, such as ``"host-sync-item"``.
        file: of the line.
        line: in the file.
        function: that the line is in.
        code: the line's text; "" where it cannot be read.
        op: operation or function that did it.
        count: times in a step, at most; in the region where steps are not known.
        total: times altogether.
        bytes: that crossed between host and device, or were allocated, in all.
        period: ``"set-up"`` (outside of steps), ``"first call"`` (in warm-up only), ``"every step"``, ``"every k
            steps"`` with a number for k, ``"irregular"``, ``"once"``, or ``"unknown period"`` (steps not known).
        steps: numbers of the steps that it came in.
        limits: the limits that it counts against; none for what is told and not counted.
        reason: why it is allowed; None where it is not.
        via: library line that did it on behalf of the user's line; "" where the line itself did.
        fix: what to write instead.
        note: what else there is to say.
    """

    kind: str
    file: str
    line: int
    function: str
    code: str
    op: str
    count: int
    total: int
    bytes: int
    period: str
    steps: tuple[int, ...]
    limits: tuple[str, ...]
    reason: str | None
    via: str
    fix: str
    note: str

    @property
    def counted(self) -> bool:
        """Whether it counts against a limit."""
        return bool(self.limits) and self.reason is None and self.period not in (SET_UP, FIRST)


def findings(events: Sequence[Event], steps: Sequence[int] | None) -> list[Finding]:
    """Findings of a region, those that count first, then by how much they move.

    Args:
        events: what happened, in order.
        steps: numbers of the counted steps; None where steps are not known.
    """
    events = [dataclasses.replace(event) for event in events]
    _roundtrips(events)
    _weights(events, steps is not None)
    _accumulating(events, steps is not None)
    groups: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        key = (event.kind, event.place.file, event.place.line, event.reason, bool(event.limits))
        groups.setdefault(key, []).append(event)
    found = [_finding(group, steps) for group in groups.values()]
    return sorted(found, key=lambda finding: (not finding.counted, -finding.total, -finding.bytes))


def _finding(group: list[Event], steps: Sequence[int] | None) -> Finding:
    counted, first = [event for event in group if event.counted], group[0]
    per_step: dict[int | None, int] = {}
    for event in counted or group:
        per_step[event.step] = per_step.get(event.step, 0) + 1
    place, seen = first.place, {event.step for event in group if event.step is not None}
    limits = tuple(dict.fromkeys(limit for event in counted or group for limit in event.limits))
    return Finding(
        kind=first.kind,
        file=place.file,
        line=place.line,
        function=place.function,
        code=place.code,
        op=first.op,
        count=max(per_step.values()),
        total=len(group),
        bytes=sum(event.bytes for event in group),
        period=_period(group, steps),
        steps=tuple(sorted(seen)),
        limits=limits,
        reason=first.reason,
        via=place.via,
        fix=fix_of(first.kind, first.op, place.code),
        note=next((event.note for event in group if event.note), ""),
    )


def _period(group: Iterable[Event], steps: Sequence[int] | None) -> str:
    if steps is None:
        return UNKNOWN if any(event.counted for event in group) else SET_UP
    came = sorted({event.step for event in group if event.counted and event.step is not None})
    if not came:
        return FIRST if any(event.step is not None for event in group) else SET_UP
    if came == sorted(steps):
        return EVERY if len(came) > 1 else UNKNOWN
    warm = {event.step for event in group if event.step is not None and not event.counted}
    apart = {later - earlier for earlier, later in itertools.pairwise(sorted({*came, *warm}))}
    if len(apart) == 1:
        return f"every {apart.pop()} steps"
    return "once" if len(came) == 1 and not warm else "irregular"


def _weights(events: list[Event], stepped: bool) -> None:
    """Copies of parameters are one thing, whatever made them; moving a module to the device for the first time none."""
    last: dict[tuple[str, int], int] = {}  # operations counted at a line's latest copy
    for event in events:
        if not event.weights or not event.to or event.kind == "async-copy":
            continue
        if event.kind in ("host-sync-copy", "h2d-fresh", "h2d-pageable"):
            event.kind = "state-copy"
        if event.to == "device" and not stepped and _moves_module(event.place):
            line = (event.place.file, event.place.line)
            if event.order - last.get(line, event.order) <= 2:  # copy after copy, no work between
                event.counted = False
                last[line] = event.order
            event.limits = (TRANSFERS,)


def _moves_module(place: Place) -> bool:
    return place.passes("torch/nn/modules/module.py", "_apply")


def _roundtrips(events: list[Event]) -> None:
    """A value that went to the host and, soon after, back: both ways are one fault. Not weights: they are moved."""
    gone: list[Event] = []
    for event in events:
        if event.to == "host" and event.kind in ("host-sync-copy", "host-sync-item") and event.numel > 1:
            gone.append(event)
        if event.to != "device" or event.weights or event.kind not in ("h2d-fresh", "h2d-pageable"):
            continue
        for earlier in reversed(gone):
            near = 0 <= event.place.line - earlier.place.line <= NEAR
            same = (earlier.step, earlier.bytes, earlier.place.file, earlier.place.function)
            if near and same == (event.step, event.bytes, event.place.file, event.place.function):
                lines = f"there at line {earlier.place.line}, back at line {event.place.line}"
                for way in (earlier, event):
                    way.kind, way.note = "roundtrip", lines
                gone.remove(earlier)
                break


def _accumulating(events: list[Event], stepped: bool) -> None:
    """Copies to the host that fill a list: one after another of a size, unlike the parts of one result."""
    copies = [event for event in events if event.kind == "host-sync-copy"]
    times: dict[tuple[object, ...], int] = {}
    for event in copies:
        key = (event.place.file, event.place.line, event.step, event.bytes)
        times[key] = times.get(key, 0) + 1
    for event in copies:
        appended = any(word in event.place.code for word in (".append(", ".extend("))
        often = stepped and times[event.place.file, event.place.line, event.step, event.bytes] >= MANY
        if appended or often:
            event.kind = "d2h-accumulate"
