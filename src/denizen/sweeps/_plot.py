"""Pictures of sweeps: small multiples, and bars of sensitivity indices."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from denizen._figures import BANDS, COLOURS, FAINT, INK, date_axis, plain_axis, save_figure
from denizen._figures import figure as blank
from denizen._results import dates
from denizen._results import height_label as of_results
from denizen._results import time_label as time_of_results
from denizen.errors import InputError

if TYPE_CHECKING:
    from denizen.sweeps._indices import Indices
    from denizen.sweeps._results import Sweep

PANELS, MOST = 24, 6  # panels, and those in a row, at most


def _figure(width: float, height: float) -> Any:
    return blank(width, height, "draw a sweep")


def multiples(sweep: "Sweep", name: str | None, file: Path | str | None) -> Any:
    """See `Sweep.plot`."""
    if not sweep.sets:
        raise InputError("plot: no set is whole yet, so there is nothing to draw; resume the sweep first")
    name = sweep.series_names[0] if name is None else name
    values = sweep[name].double()
    curves = values.reshape(*values.shape[:3], -1).sum(3).numpy()
    shown = np.unique(np.linspace(0, len(curves) - 1, min(PANELS, len(curves))).round().astype(int))
    # Panels of a grid stand in rows of the name that changes fastest.
    last = len({values[sweep.names[-1]] for values in sweep.sets}) if sweep.design["kind"] == "Grid" else 4
    columns = min(last * (MOST // last) if 1 < last <= MOST else 4, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = _figure(2.3 * columns, (1.6 + 0.15 * len(sweep.names)) * rows + 0.7)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flatten()
    begun = dates(sweep)
    time = np.arange(1, sweep.steps + 1) * sweep.dt if begun is None else begun
    for axis, k in zip(panels, shown, strict=False):
        low, high, opacity = BANDS[0]
        axis.fill_between(time, *np.quantile(curves[k], (low, high), axis=0), color=COLOURS[0], alpha=opacity, lw=0)
        marker = "o" if len(time) == 1 else None
        axis.plot(time, np.median(curves[k], axis=0), color=COLOURS[0], linewidth=1.6, marker=marker)
        axis.set_title(sweep.told(k).replace(", ", "\n"), loc="left", fontsize=7.5, color=INK)
        plain_axis(axis)
        if begun is not None:
            date_axis(axis)
    for axis in panels[len(shown) :]:
        axis.set_visible(False)
    what = f"{name.replace('_', ' ')}: {height_label(sweep, name)}"
    some = "" if len(shown) == sweep.wanted else f"    ·    {len(shown)} of {sweep.wanted} sets"
    told = f"{sweep.replicates} replicates: median, band for 90 % of them" if sweep.replicates > 1 else "one replicate"
    figure.suptitle(f"{what}    ·    {told}{some}", x=0.01, ha="left", fontsize=8.5, color=FAINT)
    figure.supxlabel(time_label(sweep) if begun is None else "", fontsize=8, color=INK)
    if file is not None:
        save_figure(figure, file)
    return figure


def height_label(sweep: "Sweep", name: str) -> str:
    """What a series counts, in words."""
    return of_results(sweep, name, sweep[name].numpy())  # type: ignore[arg-type]  # has what is looked at of results


def time_label(sweep: "Sweep") -> str:
    """What is drawn to the right."""
    return time_of_results(sweep)  # type: ignore[arg-type]  # as above


def bars(indices: "Indices", file: Path | str | None) -> Any:
    """See `Indices.plot`."""
    rows = indices.rows()[::-1]
    figure = _figure(6.0, 0.9 + 0.5 * len(rows))
    axis = figure.subplots()
    place = np.arange(len(rows))
    for shift, colour, word, k in ((0.2, COLOURS[0], "alone", 1), (-0.2, COLOURS[1], "alone and with others", 3)):
        values, wide = [row[k] for row in rows], [row[k + 1] for row in rows]
        axis.barh(place + shift, values, height=0.36, xerr=wide, color=colour, label=word, ecolor=INK)
    axis.set_yticks(place, [row[0] for row in rows])
    axis.set_xlabel(f"share of the variance of {indices.measure} (bars' lines: 95 % intervals)", fontsize=8, color=INK)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.tick_params(labelsize=8, labelcolor=INK)
    figure.legend(fontsize=7.5, frameon=False, ncols=2, loc="outside upper left")
    if file is not None:
        save_figure(figure, file)
    return figure
