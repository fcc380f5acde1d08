"""Curves of a run: one small panel for each series, with the median and two bands over replicates."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from denizen._figures import save_figure
from denizen.errors import InputError, need

if TYPE_CHECKING:
    from denizen.run._results import Results

COLOURS = ("#2a6f97", "#c1554a", "#4f8a5b", "#8a5a9e", "#b07d2b", "#4a7c7e", "#9b4f6d", "#5c6b8a")
BANDS = ((0.05, 0.95, 0.18), (0.25, 0.75, 0.28))  # from, to, opacity
INK, FAINT = "#222222", "#777777"
LINES = 8  # curves shown of a series that has several at each step


def plot(results: "Results", path: Path | str | None) -> Any:
    """See `Results.plot`."""
    need("matplotlib", "plot", "draw curves")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure  # no pyplot: no window system, no global state

    if not results.steps:
        raise InputError(f"plot: {results.name} has no steps yet, so there is nothing to draw; run.extend(steps) first")
    names, flat = _panels(results)
    columns = min(3, max(1, len(names)))
    rows = max(1, math.ceil(len(names) / columns))
    figure = Figure(figsize=(4.2 * columns, 2.7 * rows + 0.75), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for place, name in enumerate(names):
        _panel(axes[place], results, name, COLOURS[place % len(COLOURS)])
        if place >= len(names) - columns:
            axes[place].set_xlabel(results.time_unit if results.dt == 1 else f"time ({results.time_unit})")
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    figure.suptitle(_caption(results, flat), x=0.01, ha="left", fontsize=8.5, color=FAINT)
    if path is not None:
        save_figure(figure, path)
    return figure


def _panels(results: "Results") -> tuple[list[str], list[str]]:
    """Series with something to show, and those that are 0 throughout."""
    flat = [name for name in results.series_names if results.steps and not bool((results[name] != 0).any())]
    return [name for name in results.series_names if name not in flat] or flat, flat


def _caption(results: "Results", flat: list[str]) -> str:
    replicates = len(results.worlds)
    shown = f"{replicates} replicates: median, bands for 50 % and 90 % of them" if replicates > 1 else "one replicate"
    text = f"{results.name}, seed {results.seed}    ·    {shown}"
    zero = f"{', '.join(flat)} {'is' if len(flat) == 1 else 'are'} 0 throughout" if flat else ""
    return f"{text}    ·    {zero}" if zero else text


def _panel(axis: Any, results: "Results", name: str, colour: str) -> None:
    values = results[name].detach().double().cpu().numpy()
    time = np.arange(1, values.shape[1] + 1) * results.dt
    curves = values.reshape(*values.shape[:2], -1)
    shades = [colour] if curves.shape[2] == 1 else COLOURS
    for k in range(min(curves.shape[2], LINES)):
        _curve(axis, time, curves[..., k], shades[k % len(shades)], None if curves.shape[2] == 1 else str(k))
    if curves.shape[2] > 1:
        axis.legend(fontsize=7, frameon=False, ncols=2)
    _decorate(axis, results, name, values)


def _curve(axis: Any, time: np.ndarray, values: np.ndarray, colour: str, label: str | None) -> None:
    if len(values) > 1:
        for low, high, opacity in BANDS:
            edges = np.quantile(values, (low, high), axis=0)
            axis.fill_between(time, *edges, color=colour, alpha=opacity, linewidth=0)
    marker = "o" if len(time) == 1 else None
    axis.plot(time, np.median(values, axis=0), color=colour, linewidth=1.8, label=label, marker=marker)


def _decorate(axis: Any, results: "Results", name: str, values: np.ndarray) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_title(name.replace("_", " "), loc="left", fontsize=10, fontweight="bold", color=INK, pad=17)
    about = results.about(name).rstrip(".")
    axis.text(0, 1.035, _wrapped(about), transform=axis.transAxes, fontsize=7.5, color=FAINT, va="bottom")
    what = "number" if np.array_equal(values, np.round(values)) else "value"
    step = results.time_unit if results.dt == 1 else f"{results.dt:g} {results.time_unit}"
    axis.set_ylabel(f"{what} per {step}" if results.kinds[name] == "flow" else what, fontsize=8, color=INK)
    axis.xaxis.label.set(fontsize=8, color=INK)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color("#bbbbbb")
    axis.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8, color="#bbbbbb", labelcolor=INK)
    axis.yaxis.set_major_locator(MaxNLocator(5))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.margins(x=0.01)
    if values.size and np.nanmin(values) >= 0:
        axis.set_ylim(bottom=0)


def _wrapped(text: str, width: int = 62) -> str:
    return text if len(text) <= width else f"{text[: width - 1].rsplit(' ', 1)[0]} …"
