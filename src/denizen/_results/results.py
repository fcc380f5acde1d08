"""What can be done with series, in memory or from a folder: read, sum up, plot."""

import math
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from denizen._figures import BANDS, COLOURS, FAINT, INK, date_axis, figure, name_ends, plain_axis, save_figure
from denizen._notebook import InNotebook
from denizen.errors import InputError, nearest

if TYPE_CHECKING:
    from denizen._results import Rows
    from denizen._results.compare import Comparison
    from denizen._results.event_table import EventTable

QUANTILES = (0.5, 0.05, 0.95)
BAND = (0.05, 0.5, 0.95)


class Shown(InNotebook):
    """Something of rich's to print: in a terminal with colours, by `print` and in tests as plain text.

    Attributes:
        rows: the numbers behind it, by name.
    """

    def __init__(self, renderable: Any, rows: dict[str, Any] | None = None) -> None:
        self._renderable, self.rows = renderable, rows or {}

    def __rich__(self) -> Any:
        return self._renderable

    def __str__(self) -> str:
        from denizen._printing import plain

        return plain(self._renderable, 110)

    __repr__ = __str__


class Fitting:
    """Of several tables the first that fits the screen: a cut number would read as another one."""

    def __init__(self, *tables: Any) -> None:
        self._tables = tables

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from rich.measure import Measurement

        wide = options.update(width=1000)
        fitting = (t for t in self._tables if Measurement.get(console, wide, t).minimum <= options.max_width)
        yield next(fitting, self._tables[-1])


def summary_table(results: "Results") -> Shown:
    """See `Results.summary`."""
    replicates, unit = len(results.worlds), results.time_unit
    time = f"{results.steps * results.dt:g} {unit}s"
    rows: dict[str, dict[str, list[float]]] = {}
    cells = [["series", "total", "peak", f"{unit} of peak", "final"]]
    for name in results.series_names:
        values = results[name].detach().double().cpu()
        if values.shape[1] == 0:
            cells.append([name, *"––––"])
            continue
        entries = values.reshape(*values.shape[:2], -1)
        rows[name] = row = _row(entries.sum(2) if entries.shape[2] > 1 else entries[..., 0])
        label = name if values.dim() == 2 else f"{name} (sum of {entries.shape[2]})"
        total = _cell(row["total"]) if results.kinds[name] == "flow" else "–"
        when = [
            round(step * results.dt, 1) if results.dt < 1 else round(step * results.dt) for step in row["peak_step"]
        ]
        day = _cell(when) if any(row["peak"]) else "–"  # what is 0 throughout has no peak
        cells.append([label, total, _cell(row["peak"]), day, _cell(row["final"])])
    if replicates == 1:
        return Shown(
            Fitting(_table(f"{time}, one replicate", cells), _table(f"{time}, one replicate", cells, fold=True)), rows
        )
    bare = [[cell if k == 0 else cell.partition(" (")[0] for k, cell in enumerate(line)] for line in cells]
    median = f"{time}, median over {replicates} replicates"
    full = _table(f"{time}, median (5–95 %) over {replicates} replicates", cells)
    return Shown(Fitting(full, _table(median, bare), _table(median, bare, fold=True)), rows)


def _table(title: str, cells: list[list[str]], fold: bool = False) -> Any:
    """A table that breaks at spaces only; with `fold`, names of series give way to the numbers."""
    from rich.box import SIMPLE_HEAD

    from denizen._printing import Table

    style: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "header_style": "bold"}
    table = Table(title=title, box=SIMPLE_HEAD, padding=0, **style)
    for k, column in enumerate(zip(*cells, strict=True)):
        word = max(len(word) for text in column for word in text.split())
        if k == 0:
            table.add_column(column[0], no_wrap=not fold, min_width=4 if fold else word, overflow="fold")
        else:
            table.add_column(column[0], justify="right", min_width=word)
    for line in cells[1:]:
        table.add_row(*line)
    return table


def _row(values: Tensor) -> dict[str, list[float]]:
    peak, place = values.max(dim=1)
    measures = {"total": values.sum(dim=1), "peak": peak, "peak_step": (place + 1).double(), "final": values[:, -1]}
    levels = torch.tensor(QUANTILES, dtype=torch.float64)
    return {name: torch.quantile(measure, levels).tolist() for name, measure in measures.items()}


def _cell(triple: Sequence[float]) -> str:
    middle, low, high = (number(value) for value in triple)
    return middle if low == high else f"{middle} ({low}–{high})"


def number(value: float) -> str:
    """A number for people: three significant digits below 100, whole up to 100,000, then in thousands or millions."""
    size = abs(value)
    if size >= 1e9:
        return f"{value:.4g}"
    if size >= 999_950:
        return f"{value / 1e6:,.2f}M"
    if size >= 99_999.5:
        return f"{value / 1e3:,.1f}k"
    return f"{value:,.0f}" if size >= 99.95 or size == 0 else f"{value:.3g}"


LINES = 8  # curves shown of a series that has several at each step


def curves(results: "Results", path: Path | str | None) -> Any:
    """See `Results.plot`."""
    if not results.steps:
        raise InputError(f"plot: {results.name} has no steps yet, so there is nothing to draw; run.extend(steps) first")
    names, flat = shown_series(results)
    columns = min(3, max(1, len(names)))
    rows = max(1, math.ceil(len(names) / columns))
    made = figure(4.2 * columns, 2.7 * rows + 0.75)
    axes = made.subplots(rows, columns, squeeze=False).flatten()
    for place, name in enumerate(names):
        _panel(axes[place], results, name, COLOURS[place % len(COLOURS)])
        if place >= len(names) - columns:
            axes[place].set_xlabel("" if results.start else time_label(results))
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    made.suptitle(_caption(results, flat), x=0.01, ha="left", fontsize=8.5, color=FAINT)
    if path is not None:
        save_figure(made, path)
    return made


def shown_series(results: "Results") -> tuple[list[str], list[str]]:
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
    from denizen._results.table import dates

    begun = dates(results)
    time = np.arange(1, values.shape[1] + 1) * results.dt if begun is None else begun
    curves = values.reshape(*values.shape[:2], -1)
    shades = [colour] if curves.shape[2] == 1 else COLOURS
    for k in range(min(curves.shape[2], LINES)):
        _curve(axis, time, curves[..., k], shades[k % len(shades)])
    _decorate(axis, results, name, values)
    if curves.shape[2] > 1:
        last = [float(np.median(curves[:, -1, k])) for k in range(min(curves.shape[2], LINES))]
        name_ends(axis, [(str(k), y, shades[k % len(shades)]) for k, y in enumerate(last)])


def _curve(axis: Any, time: np.ndarray, values: np.ndarray, colour: str) -> None:
    if len(values) > 1:
        for low, high, opacity in BANDS:
            edges = np.quantile(values, (low, high), axis=0)
            axis.fill_between(time, *edges, color=colour, alpha=opacity, linewidth=0)
    marker = "o" if len(time) == 1 else None
    axis.plot(time, np.median(values, axis=0), color=colour, linewidth=1.8, marker=marker)


def _decorate(axis: Any, results: "Results", name: str, values: np.ndarray) -> None:
    axis.set_title(name.replace("_", " "), loc="left", fontsize=10, fontweight="bold", color=INK, pad=17)
    about = results.about(name).rstrip(".")
    axis.text(0, 1.035, _wrapped(about), transform=axis.transAxes, fontsize=7.5, color=FAINT, va="bottom")
    axis.set_ylabel(height_label(results, name, values), fontsize=8, color=INK)
    axis.xaxis.label.set(fontsize=8, color=INK)
    plain_axis(axis)
    if results.start is not None:
        date_axis(axis)
    if values.size and np.nanmin(values) >= 0:
        axis.set_ylim(bottom=0)


def height_label(results: "Results", name: str, values: np.ndarray) -> str:
    """What a series of some values counts, in words."""
    what = "number" if values.dtype.kind in "iu" or np.array_equal(values, np.round(values)) else "value"
    step = results.time_unit if results.dt == 1 else f"{results.dt:g} {results.time_unit}"
    return f"{what} per {step}" if results.kinds[name] == "flow" else what


def time_label(results: "Results") -> str:
    """What is drawn to the right."""
    return results.time_unit if results.dt == 1 else f"time ({results.time_unit}s)"


def _wrapped(text: str, width: int = 62) -> str:
    return text if len(text) <= width else f"{text[: width - 1].rsplit(' ', 1)[0]} …"


def banded(values: np.ndarray, gaps: bool = False) -> np.ndarray:
    """5 %, median and 95 % over the first axis; the values themselves where it has one entry.

    Args:
        values: `[replicates or seeds, …]`.
        gaps: whether NaN says that there is no value yet, and the others tell; else it leaves a gap for all.
    """
    if len(values) == 1:
        return values.copy()
    if np.isnan(values).any():
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # where all are NaN
            return (np.nanquantile if gaps else np.quantile)(values, BAND, axis=0)
    # NumPy's quantiles of a long first axis take ten times as long; these are the same by its default rule.
    ordered = np.sort(np.ascontiguousarray(np.moveaxis(values, 0, -1)), axis=-1)
    found = np.empty((len(BAND), *values.shape[1:]))
    for k, quantile in enumerate(BAND):
        place = quantile * (len(values) - 1)
        low, share = int(place), place - int(place)
        below, above = ordered[..., low], ordered[..., min(low + 1, len(values) - 1)]
        found[k] = below if share == 0 else below + (above - below) * share
    return found


class Results(InNotebook):
    """Series of several replicates, and the tables and pictures made of them.

    Attributes:
        worlds: world number of each replicate.
        seed: the seed.
    """

    worlds: list[int]
    seed: int

    @property
    def name(self) -> str:
        """Name of the model's class."""
        raise NotImplementedError

    @property
    def series_names(self) -> list[str]:
        """Names of the series."""
        raise NotImplementedError

    @property
    def kinds(self) -> dict[str, str]:
        """``"flow"`` or ``"level"`` for each series."""
        raise NotImplementedError

    @property
    def steps(self) -> int:
        """Steps done."""
        raise NotImplementedError

    @property
    def dt(self) -> float:
        """Length of a step in `time_unit`."""
        raise NotImplementedError

    @property
    def time_unit(self) -> str:
        """Unit of time, for example ``"day"``."""
        raise NotImplementedError

    @property
    def start(self) -> str | None:
        """The day of the first step, an ISO date; None where the run has none."""
        raise NotImplementedError

    def about(self, name: str) -> str:
        """The sentence with which the model documents a series."""
        raise NotImplementedError

    def __getitem__(self, name: str) -> Tensor:
        """A series by name: `[replicates, steps, …]`."""
        raise NotImplementedError

    def events(self, name: str) -> "EventTable":
        """The rows of a logged event."""
        raise NotImplementedError

    def _is_logged(self, name: str, logged: Iterable[str]) -> None:
        """Raise `InputError` where an event is not logged."""
        logged = list(logged)
        if name not in logged:
            told = nearest(name, logged) if logged else "it logs none; pass log=dz.run.EventLog(…) to simulate"
            raise InputError(f"run.events({name!r}): the run does not log this event; {told}")

    def _event_table(self, name: str, rows: "Rows") -> "EventTable":
        """Rows as a table of this run."""
        from denizen._results.event_table import EventTable

        return EventTable(name, self, rows)

    def _printed(self) -> Any:
        return f"{self!r}\n{self.summary()}" if self.steps else repr(self)

    def to_polars(self) -> Any:
        """The series as a polars data frame, one row for each step and replicate.

        Returns:
            Columns ``replicate``, ``world``, ``step`` (1 for the first), ``time`` (at the end of the step), ``date``
            (when the step begins; in runs with a start date), and one for each series; one for each
            entry, such as ``"deaths[2]"``, of a series that has several at each step.

        Raises:
            MissingExtra: polars is not installed.
        """
        from denizen._results.table import to_polars

        return to_polars(self)

    def to_pandas(self) -> Any:
        """The same table as a data frame of pandas.

        Raises:
            MissingExtra: pandas is not installed.
        """
        from denizen._results.table import to_pandas

        return to_pandas(self)

    def to_xarray(self) -> Any:
        """The series as a dataset of xarray: variables over ``replicate`` and ``step``, and their further axes.

        Returns:
            Coordinates ``world`` of replicates, and ``time`` and, with a start date, ``date`` of steps; attributes
            ``model``, ``seed`` and ``dt``.

        Raises:
            MissingExtra: xarray is not installed.
        """
        from denizen._results.table import to_xarray

        return to_xarray(self)

    def summary(self) -> "Shown":
        """Total (of flows), peak, step of the peak and final value of each series: median and 5–95 % over replicates.

        Returns:
            A table to print; `rows` holds its numbers.
        """
        return summary_table(self)

    def plot(self, path: Path | str | None = None) -> Any:
        """Curves: median over replicates and the bands that hold 50 % and 90 % of them, one panel for each series.

        Args:
            path: file to write, for example ``"plot.png"`` or ``"plot.pdf"``; None writes none.

        Returns:
            The matplotlib figure.

        Raises:
            MissingExtra: matplotlib is not installed.
            StorageError: the file cannot be written.
        """
        return curves(self, path)

    def compare(self, other: "Results", *, level: float = 0.9, names: Sequence[str] | None = None) -> "Comparison":
        """These results beside others: paired differences, replicate by replicate.

        Replicates of one world and one seed have the same random numbers on both sides, so that what differs is due to
        what was changed, and not to luck. Without a world in common, results are compared as independent ones, which
        tells less.

        Args:
            other: of the same length of steps; compared over the steps that both have.
            level: of the intervals.
            names: of the two, for tables.

        Returns:
            Totals of flows, peaks and ends of levels, their differences with intervals, and how many independent
            replicates would have told as much; print it.

        Raises:
            InputError: other steps, no series or fewer than two worlds in common, or a world that stands several times
                on one side and not so on the other.
        """
        from denizen._results.compare import compare

        if not isinstance(other, Results):
            raise InputError(f"compare: other={other!r}, expected a Run, or what denizen.run.load gives")
        return compare(self, other, level, names)
