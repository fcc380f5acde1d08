"""Nine points of training speed, each with what was seen of the user's loop."""

import dataclasses
from collections.abc import Callable
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from denizen._printing import Table
from denizen.errors import InputError
from denizen.perf._doctor.report import DoctorReport, Facts
from denizen.perf._doctor.rules import BOUND
from denizen.perf.watch._operations import SIMULATED

OK, CHANGE, LOOK, UNSEEN = "ok", "change", "look", "not seen"
_STYLES = {OK: "green", CHANGE: "red", LOOK: "yellow", UNSEEN: "dim"}
SMALL = 20_000  # elements of an operation, below which a GPU is not filled
FULL = 0.8  # share of the time that kernels run, from which the GPU is the bottleneck
LARGE = 1e9  # FLOP of a step, from which precision matters


@dataclasses.dataclass(frozen=True)
class Point:
    """One point.

    Attributes:
        title: what it asks for.
        state: ``"ok"``, ``"change"``, ``"look"`` (it may pay) or ``"not seen"``.
        evidence: what was seen.
        advice: what to do; "" where nothing.
    """

    title: str
    state: str
    evidence: str
    advice: str = ""


@dataclasses.dataclass(frozen=True)
class Checklist:
    """Nine points; print it."""

    points: tuple[Point, ...]

    def to_dict(self) -> list[dict[str, Any]]:
        """For JSON."""
        return [dataclasses.asdict(point) for point in self.points]

    def __rich__(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for number, point in enumerate(self.points, 1):
            text = Text(point.evidence)
            text.append(f"\n{point.advice}" if point.advice else "", style="italic")
            table.add_row(f"{number}", Text(point.state, style=_STYLES[point.state]), point.title, text)
        return Group(Text("\nchecklist", style="bold"), table)

    def __str__(self) -> str:
        lines = []
        for number, point in enumerate(self.points, 1):
            lines.append(f"{number}  {point.state:8}  {point.title}: {point.evidence}")
            lines += [f"   {'':8}  -> {point.advice}"] if point.advice else []
        return "\n".join(lines)


def checklist(report: DoctorReport) -> Checklist:
    """Walk through nine points of training speed, with the evidence of a report.

    Args:
        report: of `dz.doctor`.

    Raises:
        InputError: the report has nothing to go by, for its operations could not be examined.
    """
    if report.facts is None:
        raise InputError("checklist(report): the operations of this step could not be looked at; see report.notes")
    points = (_placement, _loaders, _batch, _precision, _reads, _vectorised, _inference, _compiled, _profiled)
    return Checklist(tuple(point(report, report.facts) for point in points))


def _lines(report: DoctorReport, keep: Callable[[str], bool]) -> str:
    found = [one for one in report.faults if keep(one.kind)]
    return ", ".join(f"{one.kind} at line {one.line}" for one in found[:4]) + (" …" if len(found) > 4 else "")


def _placement(report: DoctorReport, facts: Facts) -> Point:
    title = "model and tensors on the device"
    seen = f"{facts.device_ops} operations a step on {report.device}, {facts.host_ops} on tensors of the host"
    if report.device.type == "cpu":
        return Point(title, LOOK, f"{seen}: the step works on the CPU", "build it for a GPU: make(device)")
    copies = _lines(report, lambda kind: kind.startswith(("h2d", "roundtrip", "d2h")))
    if copies or facts.host_ops > facts.device_ops:
        return Point(title, CHANGE, f"{seen}; {copies}" if copies else seen, "make tensors where they are used")
    return Point(title, OK, seen)


def _loaders(report: DoctorReport, facts: Facts) -> Point:
    title = "workers, pinned memory, non_blocking copies"
    if not facts.loaders:
        return Point(title, UNSEEN, "no DataLoader was drawn from")
    seen = "; ".join(
        f"line {one['line']}: num_workers={one['num_workers']}, pin_memory={one['pin_memory']}, "
        f"{1e3 * one['wait_seconds']:.3g} ms of waiting for a batch"
        for one in facts.loaders
    )
    faults = _lines(report, lambda kind: kind.startswith(("loader", "h2d-pageable")))
    waits = report.step_seconds and any(one["wait_seconds"] > BOUND * report.step_seconds for one in facts.loaders)
    if faults or waits:
        return Point(title, CHANGE, f"{seen}; {faults}" if faults else seen, "dz.tools.PrefetchLoader does all of it")
    return Point(title, OK, seen)


def _batch(report: DoctorReport, facts: Facts) -> Point:
    title = "batch as large as pays"
    seen = f"operations make {facts.elements:,} elements in the median"
    search = "dz.tools.find_batch_size tries sizes with the real step"
    roof = report.roofline
    if roof is not None and roof.busy is not None:
        seen += f", kernels run {roof.busy:.0%} of the time"
        return Point(title, LOOK if roof.busy < FULL else OK, seen, search if roof.busy < FULL else "")
    small = facts.elements < SMALL
    return Point(
        title, LOOK if small else OK, seen + (": too few to fill a GPU" if small else ""), search if small else ""
    )


def _precision(report: DoctorReport, facts: Facts) -> Point:
    title = "mixed precision"
    if not facts.products:
        return Point(title, UNSEEN, "no matrix products or convolutions")
    seen = ", ".join(f"{flops / 1e9:.3g} GFLOP in {kind}" for kind, flops in facts.products.items())
    if facts.autocast or not {"float32", "float64"} & set(facts.products):
        return Point(title, OK, seen + (" under autocast" if facts.autocast else ""))
    if sum(facts.products.values()) < LARGE:
        return Point(title, OK, f"{seen}: too small to gain")
    advice = "dz.tools.Amp, or torch.set_float32_matmul_precision('high'); then dz.perf.equivalent"
    return Point(title, CHANGE if report.device.type != "cpu" else LOOK, seen, advice)


def _reads(report: DoctorReport, facts: Facts) -> Point:
    title = "no waiting for values"
    faults = _lines(report, lambda kind: kind.startswith(("host-sync", "roundtrip", "d2h")))
    seen = f"{report.counts.get('host_reads', 0)} host reads a step"
    if report.device.type == "cpu":
        return Point(title, UNSEEN, "on the CPU nothing waits for a device")
    return (
        Point(title, CHANGE, f"{seen}: {faults}", "dz.tools.MetricsWriter for logs")
        if faults
        else Point(title, OK, seen)
    )


def _vectorised(report: DoctorReport, facts: Facts) -> Point:
    title = "tensor operations instead of Python loops"
    faults = _lines(report, lambda kind: kind in ("launch-bound", "optimizer-unfused", "loader-collate"))
    seen = f"{facts.device_ops} operations a step"
    return Point(title, CHANGE, f"{seen}: {faults}", "see the findings") if faults else Point(title, OK, seen)


def _inference(report: DoctorReport, facts: Facts) -> Point:
    title = "no gradients where none are needed"
    faults = _lines(report, lambda kind: kind in ("no-grad-missing", "eval-mode-missing", "graph-retention"))
    if faults:
        return Point(title, CHANGE, faults, "torch.no_grad() and model.eval() around evaluation")
    seen = "parts run with gradients off" if facts.without_gradients else "no part is without gradients"
    used = f"; {facts.backwards} backward passes took what was saved" if facts.backwards else ""
    return Point(title, OK, seen + used)


def _compiled(report: DoctorReport, facts: Facts) -> Point:
    title = "torch.compile"
    faults = _lines(report, lambda kind: kind in ("graph-break", "recompile", "recompile-limit", "compile-overhead"))
    if faults:
        return Point(title, CHANGE, f"{facts.graphs} graphs: {faults}", "see the findings")
    if facts.graphs:
        return Point(title, OK, f"{facts.graphs} graphs, no breaks, no recompilation")
    return Point(title, LOOK, "nothing is compiled", "dz.perf.bench tells what compiling gains")


def _profiled(report: DoctorReport, facts: Facts) -> Point:
    title = "the device is the bottleneck"
    roof = report.roofline
    if report.device.type == SIMULATED:
        return Point(title, UNSEEN, "there is no GPU here", "run the doctor, or `denizen profile`, on the GPU")
    if roof is None or roof.busy is None:
        return Point(title, UNSEEN, "kernels were not profiled")
    seen = f"kernels ran {roof.busy:.0%} of a step, copies alone {roof.exposed_copies or 0:.0%}"
    return Point(
        title, OK if roof.busy >= FULL else LOOK, seen, "" if roof.busy >= FULL else "dz.perf.profile names the gaps"
    )
