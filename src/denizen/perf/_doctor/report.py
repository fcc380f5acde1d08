"""What the doctor says: as data, as text, as JSON, as a page."""

import dataclasses
import html
import json
from pathlib import Path
from typing import Any

import torch
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from denizen._notebook import InNotebook
from denizen._printing import Table, plain
from denizen.errors import StorageError
from denizen.perf._doctor.diagnosis import AB, LEVELS, NOTE, Diagnosis
from denizen.perf._doctor.roofline import Roofline
from denizen.perf.watch._findings import Finding
from denizen.perf.watch._operations import SIMULATED

NOTHING = "nothing worth changing"
WIDTH = 120
_SIMULATED = (
    "Simulated device: counts are exact; what they would cost on a GPU depends on it and is not guessed. "
    'torch.autocast did nothing here, and code behind device.type == "cuda" did not run.'
)
_COLOURS = {"severe": "red", "warning": "yellow", "note": "dim"}


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a step was seen to use, right or wrong: the evidence for the checklist.

    Attributes:
        device_ops: operations on the device.
        host_ops: operations on tensors of the host.
        loaders: settings of each loader that it drew from, and seconds of waiting for a batch.
        products: FLOP of matrix products and convolutions, by type.
        autocast: whether an autocast context was open.
        graphs: that torch.compile made in this process.
        backwards: backward passes.
        without_gradients: whether any operation ran with gradients off, outside of backward passes and optimizers.
        elements: of the largest result of an operation, the median of all.
    """

    device_ops: int
    host_ops: int
    loaders: list[dict[str, Any]]
    products: dict[str, int]
    autocast: bool
    graphs: int
    backwards: int
    without_gradients: bool
    elements: int


@dataclasses.dataclass(frozen=True)
class DoctorReport(InNotebook):
    """The verdict on a step; `print` it.

    Attributes:
        device: that the step worked on.
        findings: what to change, the most expensive first; notes last.
        once: what happened in the first steps only, or is allowed: no fault.
        step_seconds: of a plain step, the median; None where the device is simulated.
        host_seconds: of the host, in each plain step.
        counts: of a step: host reads, transfers, bytes across, operations, allocations, peak bytes.
        steps: that were counted.
        roofline: distance to what the device can do.
        notes: what was not seen.
        seconds: that the examination took.
        facts: what it uses, for `dz.perf.checklist`.
        combined: seconds of a step saved by all measured changes together; None where none was measured.
        elsewhere: operations on tensors of the host, where the step had these only, and nothing could be told.
    """

    device: torch.device
    findings: list[Diagnosis]
    once: list[Finding]
    step_seconds: float | None
    host_seconds: list[float]
    counts: dict[str, int]
    steps: int
    roofline: Roofline | None
    notes: list[str]
    seconds: float
    facts: Facts | None = None
    combined: float | None = None
    elsewhere: int = 0

    @property
    def faults(self) -> list[Diagnosis]:
        """Findings above a note."""
        return [one for one in self.findings if one.level != NOTE]

    @property
    def ok(self) -> bool:
        """Whether there is nothing worth changing."""
        return not self.faults

    def above(self, level: str) -> list[Diagnosis]:
        """Findings at a level (``"note"``, ``"warning"``, ``"severe"``) or higher."""
        return [one for one in self.findings if LEVELS.index(one.level) >= LEVELS.index(level)]

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.elsewhere:
            return f"nothing to tell: no operation ran on {self.device}, {self.elsewhere:,} on the CPU"
        if self.ok:
            return NOTHING
        kinds = list(dict.fromkeys(one.kind for one in self.faults))
        lines = len({one.where for one in self.faults})
        return f"{lines} line{'s' if lines > 1 else ''} to change: {', '.join(kinds)}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "device": str(self.device),
            "verdict": self.verdict,
            "ok": self.ok,
            "findings": [one.to_dict() for one in self.findings],
            "once": [
                {"kind": f.kind, "file": f.file, "line": f.line, "period": f.period, "allowed": f.reason}
                for f in self.once
            ],
            "step_seconds": self.step_seconds,
            "host_seconds": self.host_seconds,
            "counts": self.counts,
            "steps": self.steps,
            "roofline": None if self.roofline is None else dataclasses.asdict(self.roofline),
            "combined_saving_seconds": self.combined,
            "notes": self.notes,
            "unseen": self.unseen,
            "seconds": self.seconds,
        }

    def save_json(self, path: Path | str) -> None:
        """Write it as JSON.

        Raises:
            StorageError: the file cannot be written.
        """
        _write(path, json.dumps(self.to_dict(), indent=2) + "\n")

    def save_html(self, path: Path | str) -> None:
        """Write it as a page that needs nothing else.

        Raises:
            StorageError: the file cannot be written.
        """
        _write(path, page(self))

    @property
    def unseen(self) -> str:
        """What cannot be seen on this device."""
        return _SIMULATED if self.device.type == SIMULATED else ""

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [_headline(self)]
        parts += [_finding(number, one, self) for number, one in enumerate(self.faults, 1)]
        notes = [one for one in self.findings if one.level == NOTE]
        parts += [Text("\nnotes", style="bold"), _briefly(notes)] if notes else []
        parts += [_quiet(self)] if self.once else []
        parts += [Text(f"\n{note}", style="italic") for note in (*self.notes, self.unseen) if note]
        return Group(*parts)

    def __str__(self) -> str:
        return plain(self, WIDTH)


def _write(path: Path | str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror or error}; nothing else is lost") from error


def _headline(report: DoctorReport) -> RenderableType:
    style = "bold green" if report.ok and not report.elsewhere else "bold"
    lines = [Text(report.verdict, style=style)]
    counts = report.counts
    summary = f"{report.device}, {report.steps} steps counted in {report.seconds:.1f} s; "
    summary += f"a step: {counts.get('ops', 0):,} operations, {counts.get('new_allocations', 0):,} allocations"
    if "host_reads" in counts:
        summary += f", {counts['host_reads']} host reads, {counts['transfers']} transfers"
    lines.append(Text(summary))
    if report.step_seconds is not None:
        lines.append(Text(f"{1e3 * report.step_seconds:.3g} ms a step (median of {len(report.host_seconds)}, plain)"))
    if report.roofline is not None:
        lines.append(Text(distance(report.roofline)))
    if report.combined is not None:
        lines.append(Text(f"all measured changes together save {1e3 * report.combined:.3g} ms a step"))
    return Group(*lines)


def distance(roof: Roofline) -> str:
    """How far a step is from what the device can do, in words."""
    text = f"{roof.launches} launches, {roof.bytes / 1e6:,.3g} MB moved (at least {roof.least_bytes / 1e6:,.3g} in one "
    text += f"kernel), {roof.flops / 1e9:,.3g} GFLOP in products"
    if roof.by_ops is not None and roof.fused is not None:
        text += f"\nof the step {roof.by_ops:.1%} is needed operation by operation, {roof.fused:.1%} by one kernel"
        text += f" (measured: {(roof.bandwidth or 0) / 1e9:,.0f} GB/s, {(roof.peak or 0) / 1e12:,.3g} TFLOP/s)"
    if roof.busy is not None:
        text += f"\nkernels ran {roof.busy:.0%} of the time, copies alone {roof.exposed_copies or 0:.0%}"
        text += "; bound by launches" if roof.launch_bound else ""
    if roof.idle:
        causes = sorted(roof.idle.items(), key=lambda entry: -entry[1])[:4]
        text += "\nidle: " + ", ".join(f"{cause} {1e3 * seconds:.2g} ms" for cause, seconds in causes)
    return "\n".join([text, *roof.errors])


def _finding(number: int, one: Diagnosis, report: DoctorReport) -> RenderableType:
    head = Text.assemble(
        f"\n{number}. ",
        (one.kind, f"bold {_COLOURS[one.level]}"),
        f"  {one.where}",
        f" in {one.function}" if one.function else "",
        f"  {one.count} a step, {one.period}, {one.level}, confidence {one.confidence}",
    )
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    rows = [("", Text(one.code, style="cyan"))] if one.code else []
    measured = one.cost is not None and (one.cost.how != AB or one.cost.low > 0)  # else evidence tells
    rows += [("cost", Text(str(one.cost)))] if measured else []
    rows += [("cost", Text("would cost on a GPU; exact count, no time"))] if _would(one, report) else []
    rows += [("seen" if not index else "", Text(text)) for index, text in enumerate(one.evidence)]
    for name, value in [*rows, ("write", Text(one.fix))]:
        table.add_row(name, value)
    return Group(head, Padding(table, (0, 0, 0, 3)))


def _would(one: Diagnosis, report: DoctorReport) -> bool:
    return one.cost is None and report.device.type == SIMULATED


def _briefly(notes: list[Diagnosis]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for one in notes:
        table.add_row(f"   {one.kind}", one.where, Text(f"{one.period}: {'; '.join(one.evidence)}"))
    return table


def _quiet(report: DoctorReport) -> Text:
    kinds = ", ".join(
        f"{f.kind} at line {f.line} ({'allowed: ' + f.reason if f.reason else f.period})" for f in report.once[:6]
    )
    more = f" and {len(report.once) - 6} more" if len(report.once) > 6 else ""
    return Text(f"\nno fault: {kinds}{more}", style="dim")


_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1c2024}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .3rem}
code,pre{font:13px/1.5 ui-monospace,monospace;background:#f3f4f6;border-radius:4px}
code{padding:.1em .3em}pre{padding:.6rem .8rem;overflow-x:auto}
table{border-collapse:collapse}td,th{padding:.2rem .9rem .2rem 0;text-align:left;vertical-align:top}
.warning{color:#8a5a00}.severe{color:#b42318}.note,.dim{color:#667085}
.bar{height:.6rem;background:#eef0f3;border-radius:3px;width:16rem;display:inline-block}
.bar i{display:block;height:100%;background:#b42318;border-radius:3px}
@media(prefers-color-scheme:dark){body{background:#14171a;color:#e6e8ea}code,pre{background:#22262b}.bar{background:#22262b}}
"""


def page(report: "DoctorReport") -> str:
    """A whole HTML document."""
    rows = [f"<tr><th>{name}</th><td>{value:,}</td></tr>" for name, value in report.counts.items()]
    if report.step_seconds is not None:
        rows.insert(0, f"<tr><th>step</th><td>{1e3 * report.step_seconds:.3g} ms</td></tr>")
    roof = "" if report.roofline is None else f"<p>{_html(distance(report.roofline))}</p>"
    saved = (
        ""
        if report.combined is None
        else (f"<p>All measured changes together save {1e3 * report.combined:.3g} ms a step.</p>")
    )
    faults = "".join(_finding_in_html(number, one) for number, one in enumerate(report.faults, 1))
    notes = [one for one in report.findings if one.level == NOTE]
    noted = "".join(
        f"<tr><td>{_html(one.kind)}</td><td><code>{_html(one.where)}</code></td>"
        f"<td>{_html('; '.join(one.evidence))}</td></tr>"
        for one in notes
    )
    said = "".join(f"<p class=dim>{_html(note)}</p>" for note in (*report.notes, report.unseen) if note)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>doctor: {_html(report.verdict)}</title>"
        f"<style>{_STYLE}</style><h1>{_html(report.verdict)}</h1>"
        f"<p>{_html(str(report.device))}, {report.steps} steps counted, {report.seconds:.1f} s.</p>"
        f"<table>{''.join(rows)}</table>{roof}{saved}{faults}"
        f"{f'<h2>notes</h2><table>{noted}</table>' if noted else ''}{said}</html>\n"
    )


def _finding_in_html(number: int, one: Diagnosis) -> str:
    cost = ""
    if one.cost is not None:
        width = min(100, round(100 * one.cost.share))
        cost = f"<p><span class=bar><i style='width:{width}%'></i></span> {_html(str(one.cost))}</p>"
    seen = "".join(f"<li>{_html(line)}</li>" for line in one.evidence)
    code = f"<pre>{_html(one.code)}</pre>" if one.code else ""
    return (
        f"<h2>{number}. <span class={one.level}>{_html(one.kind)}</span> <code>{_html(one.where)}</code></h2>"
        f"<p class=dim>{_html(one.function)} · {one.count} a step · {_html(one.period)} · {one.level} · confidence "
        f"{one.confidence}</p>{code}{cost}<ul>{seen}</ul><p><b>Write:</b> {_html(one.fix)}</p>"
    )


def _html(text: str) -> str:
    return html.escape(text).replace("\n", "<br>")
