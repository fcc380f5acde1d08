"""What the doctor says of one line: its kind, how sure it is, what it costs, what to write instead."""

import dataclasses
import itertools
import re
from collections.abc import Iterable
from typing import Any

from denizen.perf.watch import _faults
from denizen.perf.watch._findings import EVERY, Finding
from denizen.perf.watch._places import Place

FIXES = {
    **_faults.FIXES,
    "loader-workers": "DataLoader(..., num_workers=4, persistent_workers=True), or dz.tools.PrefetchLoader; data that "
    "fits into the device's memory: put it there once and index it",
    "loader-persistent": "DataLoader(..., persistent_workers=True): the workers are kept from one pass to the next",
    "loader-pin": "DataLoader(..., pin_memory=True) and .to(device, non_blocking=True), or dz.tools.PrefetchLoader",
    "loader-collate": "give the dataset __getitems__(indices), which makes a whole batch by indexing, and collate_fn "
    "= a function that returns it as it is",
    "compile-overhead": "call torch.compile once, outside of the step, and keep what it returns",
    "optimizer-unfused": "fused=True (or foreach=True) when the optimizer is made; for one of your own the "
    "torch._foreach_* functions over all parameters at once",
    "grad-memset": "optimizer.zero_grad(set_to_none=True): no fill, and the first gradient is written, not added",
    "dtype-fp32": "torch.set_float32_matmul_precision('high'), or torch.autocast(device, torch.bfloat16); check with "
    "dz.perf.equivalent that results stay within tolerance",
    "dtype-fp64": "cast to float32 where it comes in (NumPy's default is float64)",
    "dtype-wide-int": "store it in the narrow type, cast within the step where it is used",
    "launch-bound": "do it for all at once with tensor operations (a batched dimension, torch.stack before the loop, "
    "foreach), or torch.compile the loop, or capture it in a CUDA graph",
    "alloc-churn": "preallocate and write slices or out=; drop the clone; no empty_cache in the loop",
    "graph-retention": "detach() what is kept over steps (or .item() it every N steps); backward() once, without "
    "retain_graph",
    "no-grad-missing": "with torch.no_grad(): (or inference_mode) around it: nothing differentiates this",
    "dense-quadratic": "keep the pairs that touch: CSR or an edge list, a cell list, or chunks of rows",
    "timing-async": "record torch.cuda.Event(enable_timing=True) on both sides and read elapsed_time later, or "
    "synchronise before both clock readings when measuring only",
    "debug-left-on": "switch it off outside of debugging",
    "eval-mode-missing": "model.eval() before, model.train() after: dropout is on and batch norm learns from this data",
    "inplace-possible": "the in-place form (name with _, or out=) saves an allocation; only where no gradient needs "
    "the old value",
}

# What one of a kind takes from a GPU, in rough microseconds: for the order of findings whose cost is not measured, and
# shown nowhere. A wait drains the queue, a launch is about five, a leak or a compilation ends a run.
ROUGHLY = {
    "host-sync": 30,
    "roundtrip": 40,
    "d2h-accumulate": 40,
    "state-copy": 20,
    "h2d": 15,
    "loader": 500,
    "graph-break": 50,
    "recompile": 1000,
    "compile-overhead": 4000,
    "launch-bound": 5,
    "optimizer-unfused": 5,
    "grad-memset": 3,
    "alloc-churn": 10,
    "graph-retention": 1000,
    "no-grad-missing": 50,
    "eval-mode-missing": 1000,
    "dense-quadratic": 100,
    "debug-left-on": 500,
    "dtype": 50,
    "timing-async": 1,
}


def roughly(kind: str) -> float:
    """See `ROUGHLY`."""
    return next((micros for name, micros in ROUGHLY.items() if kind.startswith(name)), 1)


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
        return f"{self.file}:{self.line}"

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
        fix or FIXES[kind],
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
        found.fix or FIXES.get(found.kind, ""),
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
        counted: numbers of all steps that were looked at.
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
    return one.level == NOTE, -cost, -one.count * roughly(one.kind), -one.bytes, one.file, one.line
