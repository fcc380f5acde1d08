"""Reports of comparisons: simulations beside the first of them, with the differences of each."""

from collections.abc import Sequence

import numpy as np

from denizen._results import banded, common, number, series_of, time_label
from denizen.report._charts import Curve, Panel
from denizen.report._page import Page
from denizen.report._simulation import Simulated, places, simulations
from denizen.run import Comparison, Difference


def comparisons(page: Page, runs: Sequence[Simulated], found: Sequence[Comparison]) -> None:
    """Add what each run but the first differs by from the first, and then all of them beside each other.

    Args:
        page: to add to.
        runs: two or more.
        found: of the first with each other, in order.
    """
    for run, comparison in zip(runs[1:], found, strict=True):
        _differences(page, runs[0], run, comparison)
    simulations(page, runs)


def headline(row: Difference, level: float) -> str:
    """A difference as a sentence."""
    what, certain = f"{row.measure} of {row.name.replace('_', ' ')}".capitalize(), f"{level:.0%} for the mean"
    low, high = row.mean_low, row.mean_high
    if not (np.isfinite(low) and np.isfinite(high)):
        return f"{what}: no number in some world, so there is no difference to state"
    if low <= 0 <= high:
        mean = number(row.difference)
        return f"{what}: not told apart from chance (difference {mean}; {certain}: {number(low)} to {number(high)})"
    if row.difference < 0:
        low, high = -high, -low
    word = "less" if row.difference < 0 else "more"
    return f"{what}: {number(abs(row.difference))} {word} ({certain}: {number(low)} to {number(high)})"


def _differences(page: Page, first: Simulated, run: Simulated, comparison: Comparison) -> None:
    names = comparison.names
    page.section(f"{names[1]} minus {names[0]}")
    page.headline(headline(comparison.rows[0], comparison.level), f"{comparison.about.capitalize()}.")
    if comparison.paired:
        page.multiples(
            "Differences in time",
            _panels(first, run, comparison),
            x_label="" if _dated(first, run) else time_label(first.results),
            about="Mean over pairs of replicates; the band holds the middle 90 % of them. Flows are summed up to then.",
        )
    rows = []
    for row in comparison.rows:
        needed = None if row.independent is None else int(np.ceil(row.independent))
        means = (row.difference, row.mean_low, row.mean_high)
        worlds = f"{number(row.low)} to {number(row.high)}"
        cells = [row.a, row.b, means, worlds, f"{row.less:.0%}", *([needed] if comparison.paired else [])]
        rows.append([f"{row.name.replace('_', ' ')}, {row.measure}", *cells])
    header = [
        "measure",
        *names,
        f"mean difference ({comparison.level:.0%})",
        f"{comparison.level:.0%} of worlds",
        f"less in {names[1]}",
        *(["independent replicates for as much"] if comparison.paired else []),
    ]
    page.table("Differences", header, rows)


def _dated(first: Simulated, run: Simulated) -> bool:
    """Whether both begin on one date, so that differences can be drawn over dates."""
    return first.results.start is not None and first.results.start == run.results.start


def _panels(first: Simulated, run: Simulated, comparison: Comparison) -> list[Panel]:
    rows = common(first.results, run.results)
    assert rows is not None
    a, b = (series_of(one.results, comparison.steps, rows[k]) for k, one in enumerate((first, run)))
    panels = []
    for name in dict.fromkeys(row.name for row in comparison.rows):
        kind, away = a[name][0], b[name][1] - a[name][1]
        away = away.cumsum(1) if kind == "flow" else away
        band = banded(away.astype(np.float64))
        edges = (band[0], band[2]) if len(away) > 1 else (None, None)
        x = places(first.results, _dated(first, run))[: comparison.steps]
        curve = Curve("difference", away.mean(0), *edges, x=x)
        told = f"{name.replace('_', ' ')}{' so far' if kind == 'flow' else ''}"
        panels.append(Panel(told, [curve], about=first.results.about(name)))
    return panels
