"""Reports of simulations: every series with its band over replicates, totals and peaks, settings, versions."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from denizen._results import Results, banded, dates, height_label, shown_series, time_label
from denizen.report._charts import Curve, Panel
from denizen.report._page import Page, commands, settings_of_runs, status_note
from denizen.run import Manifest, Run, SavedRun

GROUPS = 8  # curves of a series that has several values at each step
MEASURES = {"total": "total", "peak": "peak", "peak_step": "step of the peak", "final": "at the end"}


@dataclasses.dataclass(frozen=True)
class Simulated:
    """A simulation to report.

    Attributes:
        name: what to call it where there are several.
        results: its series.
        manifest: of its folder.
        status: how it stands.
        command: what to type to get it again; "": not known.
    """

    name: str
    results: Run | SavedRun
    manifest: Manifest
    status: str
    command: str = ""


def simulations(page: Page, runs: Sequence[Simulated]) -> None:
    """Add one simulation, or several beside each other, to a page."""
    for run in runs:
        facts = run.manifest
        done = f"{facts.steps} of {facts.wanted} {run.results.time_unit}s"
        status_note(page, run.name, run.status, done, facts.error)
    begun = [run for run in runs if run.results.steps and run.results.series_names]
    if begun:
        _curves(page, begun)
        _measures(page, begun)
    names = [run.name for run in runs]
    page.section("What was run")
    settings_of_runs(page, "Settings", names, [_settings(run) for run in runs])
    settings_of_runs(page, "Versions", names, [_surroundings(run) for run in runs])
    commands(page, [run.command for run in runs])


def about(run: Simulated) -> str:
    """A line on what a simulation is."""
    facts, results = run.manifest, run.results
    worlds = len(facts.setup.worlds)
    agents = f"{facts.model['agents']:,} agents, " if facts.model["agents"] else ""  # a field of cells has none
    what = f"{agents}{results.steps * results.dt:,.10g} {results.time_unit}s"
    return f"{what}, {worlds:,} replicate{'s' * (worlds > 1)}, seed {facts.setup.seed}"


def _curves(page: Page, runs: Sequence[Simulated]) -> None:
    shown = [shown_series(run.results) for run in runs]
    names = dict.fromkeys(name for found, _ in shown for name in found)
    zero = [name for name in dict.fromkeys(n for _, flat in shown for n in flat) if name not in names]
    panels = [_panel(runs, name) for name in names]
    many = any(len(run.results.worlds) > 1 for run in runs)
    told = ["Median over replicates; the band holds the middle 90 % of them."] if many else []
    steps = dict.fromkeys(f"{run.results.dt:g} {run.results.time_unit}" for run in runs)
    told += [f"Steps differ: {', '.join(steps)}. Flows are per step of each run."] if len(steps) > 1 else []
    told += [f"{', '.join(zero)} {'is' if len(zero) == 1 else 'are'} 0 throughout."] if zero else []
    label = "" if _dated(runs) else time_label(runs[0].results)
    page.section("Series").multiples("All series", panels, x_label=label, about=" ".join(told))


def _dated(runs: Sequence[Simulated]) -> bool:
    """Whether all have a start, so that they can be drawn over dates."""
    return all(run.results.start is not None for run in runs)


def _panel(runs: Sequence[Simulated], name: str) -> Panel:
    having = [(place, run) for place, run in enumerate(runs) if name in run.results.series_names]
    dated = _dated(runs)
    curves = [curve for place, run in having for curve in _bands(run, name, place, single=len(runs) == 1, dated=dated)]
    first = having[0][1].results
    y_label = height_label(first, name, first[name][0].detach().cpu().numpy())
    many, about = first[name][0, 0].numel(), first.about(name)
    about += f" The first {GROUPS} of {many:,} values." if len(runs) == 1 and many > GROUPS else ""
    return Panel(name.replace("_", " "), curves, y_label=y_label, about=about)


def _bands(run: Simulated, name: str, place: int, single: bool, dated: bool) -> list[Curve]:
    """Of one run all entries of a series; of several the sum of them, so that runs can be told apart."""
    values = run.results[name].detach().cpu().numpy()
    values, x = values.reshape(*values.shape[:2], -1), places(run.results, dated)
    if values.shape[2] == 1 or not single:
        total = values.sum(2) if values.shape[2] > 1 else values[..., 0]
        return [_band(total, x, name.replace("_", " ") if single else run.name, place)]
    return [_band(values[..., k], x, str(k), k) for k in range(min(values.shape[2], GROUPS))]


def places(results: Results, dated: bool) -> np.ndarray:
    """Where the steps of a run lie on the axis of time: dates on which they begin, or times at which they end."""
    days = dates(results) if dated else None
    return np.arange(1, results.steps + 1) * results.dt if days is None else days


def _band(values: np.ndarray, x: np.ndarray, name: str, colour: int) -> Curve:
    """The median and the middle 90 % over replicates."""
    found = banded(values.astype(np.float64))
    low, middle, high = found if len(values) > 1 else (None, found[0], None)
    return Curve(name, middle, low, high, x=x, colour=colour)


def _measures(page: Page, runs: Sequence[Simulated]) -> None:
    several, rows = len(runs) > 1, []
    summed = [run.results.summary().rows for run in runs]
    for name in dict.fromkeys(name for found in summed for name in found):
        for run, found in zip(runs, summed, strict=True):
            if name in found:
                cells = [_cell(run, name, found[name], measure) for measure in MEASURES]
                rows.append([name.replace("_", " "), *([run.name] if several else []), *cells])
    replicates = {len(run.results.worlds) for run in runs}
    what = "Median over replicates (middle 90 %)." if replicates != {1} else "One replicate."
    header = ["series", *(["run"] if several else []), *MEASURES.values()]
    page.table("Totals, peaks and ends", header, rows, what)


def _cell(run: Simulated, name: str, row: dict[str, list[float]], measure: str) -> Any:
    if measure == "total" and run.results.kinds[name] != "flow":
        return None
    if measure == "peak_step" and not any(row["peak"]):
        return None  # what is 0 throughout has no peak
    return tuple(row[measure])


def _settings(run: Simulated) -> dict[str, Any]:
    facts, setup = run.manifest, run.manifest.setup
    kept = dict(facts.settings or {})
    config = {name: value for name, value in kept.get("config", {}).items() if value not in (None, False)}
    source = {name: value for name, value in kept.get("source", {}).items() if name in ("name", "network")}
    told = {"class": facts.model["class"], "agents": facts.model["agents"], "seed": setup.seed}
    told |= {"start": run.results.start}
    told |= {"replicates": len(setup.worlds), "steps": facts.steps, "interventions": setup.interventions}
    return {**told, **{name: value for name, value in config.items() if name not in told}, "population": source or None}


def _surroundings(run: Simulated) -> dict[str, Any]:
    facts = run.manifest
    return {**facts.versions, "device": facts.setup.device, "commit": facts.commit, "written": facts.updated}
