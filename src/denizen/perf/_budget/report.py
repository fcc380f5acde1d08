"""What a budget counted, as data and as text."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from denizen._notebook import InNotebook
from denizen.perf.watch._event_log import GRAPHS, HOST_READS, RECOMPILES, TRANSFERS, EventLog, Totals
from denizen.perf.watch._findings import FIRST, SET_UP, UNKNOWN, Finding
from denizen.perf.watch._operations import SIMULATED
from denizen.perf.watch._places import shown

LIMITS = (HOST_READS, TRANSFERS, "bytes", GRAPHS, RECOMPILES, "new_allocations", "kernels", "ops", "peak_bytes")
MOST = 12  # findings written out

_UNSEEN_SIMULATED = (
    "Simulated device: torch.autocast did nothing (this ran in full precision), and code behind "
    'device.type == "cuda" did not run; neither was checked.'
)
_UNSEEN_CUDA = (
    "CUDA device: torch does not warn of every wait; those inside torch.distributed, torch.sparse and libraries of "
    "their own are not seen."
)


@dataclasses.dataclass(frozen=True)
class BudgetReport(InNotebook):
    """What a region did; `str` gives a text for people.

    Attributes:
        device: that it worked on.
        limits: by name; None where there was no bound.
        measured: by the same names; the most of any counted step, or of the region where steps are not known.
        findings: lines that did it, those that count against a limit first.
        steps: numbers of the counted steps; None where steps are not known.
        ops: operations that ran on the device, warm-up included.
        heard: whether anything of the device was seen, in this region or in an earlier one of the same budget.
    """

    device: torch.device
    limits: dict[str, int | None]
    measured: dict[str, int]
    findings: list[Finding]
    steps: list[int] | None
    ops: int
    heard: bool

    @property
    def exceeded(self) -> list[str]:
        """Names of the limits that the region went over."""
        return [name for name, most in self.limits.items() if most is not None and self.measured[name] > most]

    @property
    def saw_nothing(self) -> bool:
        """Whether staying within the limits says nothing, for nothing was seen; not where it is what they ask for."""
        counted = {name: value for name, value in self.measured.items() if name != "peak_bytes"}
        wanted = 0 in (self.limits["ops"], self.limits["kernels"])
        return not (self.heard or wanted or self.findings or any(counted.values()))

    @property
    def ok(self) -> bool:
        """Whether it stayed within every limit. A region that saw nothing did not, on the simulated device."""
        return not self.exceeded and not (self.saw_nothing and self.device.type == SIMULATED)

    @property
    def unseen(self) -> str:
        """What counting on this device cannot see."""
        return _UNSEEN_SIMULATED if self.device.type == SIMULATED else _UNSEEN_CUDA

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        plain = dataclasses.asdict(self)
        return plain | {"device": str(self.device), "exceeded": self.exceeded, "unseen": self.unseen}

    def __str__(self) -> str:
        over = self.exceeded
        per = f"most of a step, {len(self.steps)} counted" if self.steps is not None else "in the region"
        verdict = "saw nothing: no verdict of the" if self.saw_nothing else "over" if over else "within"
        lines = [f"{verdict} budget on {self.device} ({per})"]
        bound = [name for name in LIMITS if self.limits[name] is not None]
        lines += [f"  {name}: {self.measured[name]:,}, allowed {self.limits[name]:,}" for name in over]
        kept = [f"{name} {self.measured[name]:,} of {self.limits[name]:,}" for name in bound if name not in over]
        lines += [f"  kept: {', '.join(kept)}"] if kept else []
        guilty = [finding for finding in self.findings if finding.counted and set(finding.limits) & set(over)]
        rest = [finding for finding in self.findings if finding not in guilty]
        for finding in guilty[:MOST]:
            lines += ["", *_lines_of(finding)]
        if len(guilty) > MOST:
            lines += ["", f"  and {len(guilty) - MOST} more lines (report.findings)"]
        lines += [""] + [f"  not counted: {_brief(finding)}" for finding in rest[:MOST]] if rest else []
        if self.saw_nothing:
            unseen = "" if self.device.type == SIMULATED else ", unless all of it is compiled or a graph's replay"
            lines += ["", f"  No operation ran on {self.device}: move the step there, with .to(budget.device){unseen}."]
            lines += ["  Where none is meant to, as with a result that is kept, say so: ops=0."]
        return "\n".join([*lines, "", f"  {self.unseen}"])


def _lines_of(finding: Finding) -> list[str]:
    known = finding.period not in (UNKNOWN, SET_UP)
    times = f"{finding.count} a step, {finding.period}" if known else f"{finding.count} times"
    size = f", {finding.bytes:,} bytes in all" if finding.bytes else ""
    lines = [f"  {shown(finding.file)}:{finding.line} in {finding.function}: {finding.kind}, {times}{size}"]
    lines += [f"      {finding.code}"] if finding.code else []
    lines += [f"      by {finding.op}" + (f", via {finding.via}" if finding.via else "")]
    lines += [f"      {finding.note}"] if finding.note else []
    return [*lines, f"      instead: {finding.fix}"]


def _brief(finding: Finding) -> str:
    why = f"allowed: {finding.reason}" if finding.reason is not None else "only told"
    why = finding.period if finding.reason is None and finding.period in (SET_UP, FIRST) else why
    return f"{shown(finding.file)}:{finding.line}: {finding.kind}, {finding.total} times ({why})"


def measure(event_log: EventLog, steps: Sequence[int] | None, kernels: int | None) -> dict[str, int]:
    """What each limit is held against: the most of any counted step, or the region's.

    Args:
        event_log: of the region.
        steps: numbers of the counted steps; None: the region is one.
        kernels: that the device ran in all, where it was profiled; None: operations stand for them.
    """
    totals = [event_log.totals[step] for step in steps] if steps is not None else list(event_log.totals.values())
    totals = totals or [Totals()]
    measured = {
        "bytes": max(total.bytes for total in totals),
        GRAPHS: max(total.graphs for total in totals),
        "new_allocations": max(total.allocations for total in totals),
        "ops": max(total.ops for total in totals),
        "peak_bytes": max(total.peak for total in totals),
    }
    each = max(1, len(event_log.totals) - 1) if steps is not None else 1  # one of the totals is what lies outside
    measured["kernels"] = measured["ops"] if kernels is None else -(-kernels // each)
    for limit in (HOST_READS, TRANSFERS, RECOMPILES):
        times: dict[int | None, int] = {}
        for event in event_log.events:
            if event.counted and event.reason is None and limit in event.limits:
                times[event.step] = times.get(event.step, 0) + 1
        measured[limit] = max(times.values(), default=0)
    return {name: measured[name] for name in LIMITS}
