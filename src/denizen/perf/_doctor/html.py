"""The verdict as a page that needs nothing else."""

import html
from typing import TYPE_CHECKING

from denizen.perf._doctor.diagnosis import NOTE, Diagnosis

if TYPE_CHECKING:
    from denizen.perf._doctor.report import DoctorReport

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
    from denizen.perf._doctor.report import distance

    rows = [f"<tr><th>{name}</th><td>{value:,}</td></tr>" for name, value in report.counts.items()]
    if report.step_seconds is not None:
        rows.insert(0, f"<tr><th>step</th><td>{1e3 * report.step_seconds:.3g} ms</td></tr>")
    roof = "" if report.roofline is None else f"<p>{_text(distance(report.roofline))}</p>"
    saved = (
        ""
        if report.combined is None
        else (f"<p>All measured changes together save {1e3 * report.combined:.3g} ms a step.</p>")
    )
    faults = "".join(_finding(number, one) for number, one in enumerate(report.faults, 1))
    notes = [one for one in report.findings if one.level == NOTE]
    noted = "".join(
        f"<tr><td>{_text(one.kind)}</td><td><code>{_text(one.where)}</code></td>"
        f"<td>{_text('; '.join(one.evidence))}</td></tr>"
        for one in notes
    )
    said = "".join(f"<p class=dim>{_text(note)}</p>" for note in (*report.notes, report.unseen) if note)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>doctor: {_text(report.verdict)}</title>"
        f"<style>{_STYLE}</style><h1>{_text(report.verdict)}</h1>"
        f"<p>{_text(str(report.device))}, {report.steps} steps counted, {report.seconds:.1f} s.</p>"
        f"<table>{''.join(rows)}</table>{roof}{saved}{faults}"
        f"{f'<h2>notes</h2><table>{noted}</table>' if noted else ''}{said}</html>\n"
    )


def _finding(number: int, one: Diagnosis) -> str:
    cost = ""
    if one.cost is not None:
        width = min(100, round(100 * one.cost.share))
        cost = f"<p><span class=bar><i style='width:{width}%'></i></span> {_text(str(one.cost))}</p>"
    seen = "".join(f"<li>{_text(line)}</li>" for line in one.evidence)
    code = f"<pre>{_text(one.code)}</pre>" if one.code else ""
    return (
        f"<h2>{number}. <span class={one.level}>{_text(one.kind)}</span> <code>{_text(one.where)}</code></h2>"
        f"<p class=dim>{_text(one.function)} · {one.count} a step · {_text(one.period)} · {one.level} · confidence "
        f"{one.confidence}</p>{code}{cost}<ul>{seen}</ul><p><b>Write:</b> {_text(one.fix)}</p>"
    )


def _text(text: str) -> str:
    return html.escape(text).replace("\n", "<br>")
