"""Reports of sweeps: small multiples, measures over what was swept, sensitivity indices, the sets as a table."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from denizen._results import QUANTILES
from denizen.errors import DenizenError
from denizen.report._charts import Curve, Interval, Panel, extremes
from denizen.report._page import Page, commands, settings_of_runs, status_note
from denizen.sweeps import Sweep
from denizen.sweeps._plot import height_label, time_label
from denizen.sweeps._results import HIGH, LOW
from denizen.sweeps._subject import told

SERIES, CURVES, ROWS = 6, 6, 200  # at most: of a page, of a panel, of the table
PANELS, FEWER = 24, 9  # small multiples of a grid, and of points that stand in no order


@dataclasses.dataclass(frozen=True)
class Swept:
    """A sweep to report.

    Attributes:
        name: what to call it.
        sweep: its sets.
        manifest: of its folder.
        status: how it stands.
        command: what to type to get it again; "": not known.
    """

    name: str
    sweep: Sweep
    manifest: Mapping[str, Any]
    status: str
    command: str = ""


def about(one: Swept) -> str:
    """A line on what a sweep is."""
    facts, sweep = one.manifest, one.sweep
    agents = f"{facts['agents']:,} agents, " if facts["agents"] else ""
    return (
        f"{agents}{facts['sets']:,} sets of {', '.join(sweep.names)} ({facts['design']['kind']}) × "
        f"{sweep.replicates:,} replicates × {sweep.steps * sweep.dt:,.10g} {sweep.time_unit}s, seed {sweep.seed}"
    )


def sweeps(page: Page, ones: Sequence[Swept]) -> None:
    """Add sweeps to a page, one after the other."""
    for one in ones:
        if len(ones) > 1:
            page.section(one.name)
        done = f"{one.manifest['rows']:,} of {one.manifest['sets'] * one.manifest['replicates']:,} runs"
        status_note(page, one.name, one.status, done, one.manifest.get("error"))
        if one.sweep.sets:
            _shown(page, one.sweep)
    page.section("What was run")
    names = [one.name for one in ones]
    settings_of_runs(page, "Settings", names, [_settings(one.manifest) for one in ones])
    settings_of_runs(page, "Versions", names, [_surroundings(one.manifest) for one in ones])
    commands(page, [one.command for one in ones])


def _shown(page: Page, sweep: Sweep) -> None:
    names = [name for name in sweep.series_names if bool((sweep[name] != 0).any())][:SERIES] or sweep.series_names[:1]
    several = sweep.replicates > 1
    if sweep.design["kind"] == "Saltelli" and len(sweep.sets) == sweep.wanted:
        _indices(page, sweep, names)
    page.section("By what was swept")
    bands = f"Mean over replicates{'; the bar or band holds the middle 90 % of them' if several else ''}."
    for name in names:
        panels = [_response(sweep, name, knob) for knob in sweep.names if _numeric(sweep, knob)]
        if panels:
            page.multiples(_called(sweep, name), panels, y_label=sweep.measures(name)[0], same_y=True, about=bands)
    if sweep.steps > 1:
        page.section("Curves")
        for name in names:
            _multiples(page, sweep, name, several)
    _table(page, sweep, names)


def _multiples(page: Page, sweep: Sweep, name: str, several: bool) -> None:
    """A panel for each set; of a grid whose last name has few values, one for each set of the others."""
    last = sweep.names[-1]
    values = list(dict.fromkeys(one[last] for one in sweep.sets))
    shared = sweep.design["kind"] == "Grid" and len(values) <= CURVES and len(sweep.names) > 1
    groups: dict[Any, list[int]] = {}
    for k, one in enumerate(sweep.sets):
        key = tuple(one[n] for n in sweep.names[:-1]) if shared else k
        groups.setdefault(key, []).append(k)
    places = np.unique(
        np.linspace(0, len(groups) - 1, min(PANELS if sweep.design["kind"] == "Grid" else FEWER, len(groups)))
        .round()
        .astype(int)
    )
    panels = []
    for place, members in enumerate(groups.values()):
        if place in places:
            title = told({n: sweep.sets[members[0]][n] for n in sweep.names[:-1]}) if shared else sweep.told(members[0])
            curves = [_band(sweep, name, k, told({last: sweep.sets[k][last]}) if shared else "") for k in members]
            panels.append(Panel(title, curves))
    some = "" if len(places) == len(groups) else f" {len(places)} of {len(groups):,} panels."
    what = "Median over replicates; the band holds the middle 90 % of them." if several else "One replicate."
    inner = list(dict.fromkeys(one[sweep.names[-2]] for one in sweep.sets)) if shared and len(sweep.names) > 2 else []
    columns = len(inner) if 1 < len(inner) <= CURVES and not some else None
    page.multiples(
        _called(sweep, name),
        panels,
        x_label=time_label(sweep),
        y_label=height_label(sweep, name),
        same_y=True,
        columns=columns,
        about=" ".join(filter(None, [sweep.about(name), f"{what}{some}"])),
    )


def _band(sweep: Sweep, name: str, k: int, label: str) -> Curve:
    values = sweep[name][k].double()
    values = values.reshape(*values.shape[:2], -1).sum(2).numpy()
    steps = extremes(values.shape[1], [values.mean(axis=0)])
    middle, low, high = np.quantile(values[:, steps], QUANTILES, axis=0)
    edges = (low, high) if len(values) > 1 else (None, None)
    return Curve(label or name.replace("_", " "), middle, *edges, x=(steps + 1) * sweep.dt, colour=None if label else 0)


def _numeric(sweep: Sweep, knob: str) -> bool:
    values = {one[knob] for one in sweep.sets}
    return len(values) > 1 and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _response(sweep: Sweep, name: str, knob: str) -> Panel:
    """A measure over the values of one name: a curve for each set of the others, or points where these are many."""
    found = sweep.measure(name, sweep.measures(name)[0]).numpy()
    x = np.asarray([one[knob] for one in sweep.sets], dtype=np.float64)
    groups: dict[Any, list[int]] = {}
    for k, one in enumerate(sweep.sets):
        groups.setdefault(tuple((n, v) for n, v in one.items() if n != knob), []).append(k)
    if len(groups) > CURVES or len(groups) == len(sweep.sets):
        return Panel(knob, [Curve("sets", found.mean(1), x=x, points=True)], about=f"over {knob}, a point for each set")
    curves = []
    for key, members in groups.items():
        order = sorted(members, key=lambda k: x[k])
        low, high = np.quantile(found[order], (LOW, HIGH), axis=1)
        edges = (low, high) if sweep.replicates > 1 else (None, None)
        curves.append(Curve(told(dict(key)) or "all", found[order].mean(1), *edges, x=x[order]))
    return Panel(knob, curves, about=f"over {knob}")


def _indices(page: Page, sweep: Sweep, names: Sequence[str]) -> None:
    page.section("What matters how much")
    for name in names:
        try:
            found = sweep.indices(name, sweep.measures(name)[0])
        except DenizenError as error:  # no variance, or SALib is not there
            page.note(str(error))
            continue
        rows = found.rows()
        totals = [Interval(knob, total, total - wider, total + wider) for knob, _, _, total, wider in rows]
        firsts = [Interval(knob, first, first - wide, first + wide, colour=1) for knob, first, wide, _, _ in rows]
        for words, intervals in (
            ("goes with each, alone or together with others", totals),
            ("is of each alone", firsts),
        ):
            title = f"{_called(sweep, name)}: share of the variance that {words}"
            about = f"Sobol's indices of {found.measure}; lines are 95 % intervals."
            page.intervals(title, intervals, x_label="share", about=about, marks={0: "none"})


def _table(page: Page, sweep: Sweep, names: Sequence[str]) -> None:
    summary, rows = sweep.summary().rows, []
    chosen = [(name, sweep.measures(name)[0]) for name in names]
    for k, one in enumerate(sweep.sets[:ROWS]):
        cells = [tuple(summary[f"{name}.{of}"][m][k] for m in range(3)) for name, of in chosen]
        rows.append(
            [str(sweep.numbers[k]), *(f"{v:.6g}" if isinstance(v, float) else str(v) for v in one.values()), *cells]
        )
    header = ["set", *sweep.names, *(f"{name.replace('_', ' ')}, {of}" for name, of in chosen)]
    some = "" if len(sweep.sets) <= ROWS else f" The first {ROWS} of {len(sweep.sets):,} sets; summary.csv has all."
    what = "Mean over replicates (middle 90 %)." if sweep.replicates > 1 else "One replicate."
    page.section("Sets").table("Every set", header, rows, f"{what}{some}")


def _called(sweep: Sweep, name: str) -> str:
    return name.replace("_", " ").capitalize()


def _settings(facts: Mapping[str, Any]) -> dict[str, Any]:
    kept = dict(facts["settings"] or {})
    config = {name: value for name, value in (kept.get("config") or {}).items() if value not in (None, False)}
    model = facts["model"]
    told = {"model": model.get("class", model.get("function")), "design": facts["design"], "sets": facts["sets"]}
    told |= {name: facts[name] for name in ("replicates", "steps", "seed", "dt", "interventions", "agents")}
    return {**told, **{name: value for name, value in config.items() if name not in told}}


def _surroundings(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {**facts["versions"], "device": facts["device"], "commit": facts["commit"], "written": facts["updated"]}
