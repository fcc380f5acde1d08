"""What charts show, as JSON for the page's script: thinned to what the eye sees, with the same in words and numbers."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from denizen._results import number
from denizen.errors import InputError

BUCKETS = 300  # of a curve; each keeps its first point and its extremes, and few screens show more
ROWS = 11  # of the numbers beneath a chart
DIGITS = 6


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """A line, with a band around it where there are edges.

    Attributes:
        name: what it is called beside the line.
        middle: heights, `[points]`; NaN leaves a gap.
        low, high: edges of the band, `[points]`; None: no band.
        x: places, `[points]`, numbers or dates; None: those of the chart.
        points: draw points instead of a line, as of data.
        colour: number of its colour; None: its place among the curves. Curves of one number share a colour.
    """

    name: str
    middle: Any
    low: Any = None
    high: Any = None
    x: Any = None
    points: bool = False
    colour: int | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """One of several small charts.

    Attributes:
        title: above it.
        curves: what it shows.
        x: places of curves that have none, `[points]`; None: 1, 2, ….
        y_label: what is drawn upwards, with its unit; "": that of the chart.
        about: a sentence beneath the title.
        marks: labels of upright lines, by place.
    """

    title: str
    curves: Sequence[Curve]
    x: Any = None
    y_label: str = ""
    about: str = ""
    marks: Mapping[float, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Interval:
    """A value with what it may be, as a dot on a line.

    Attributes:
        name: of its row.
        middle: the dot.
        low, high: ends of the line.
        outer_low, outer_high: ends of a thin line behind it, as of a prior; None: none.
        colour: number of its colour.
    """

    name: str
    middle: float
    low: float
    high: float
    outer_low: float | None = None
    outer_high: float | None = None
    colour: int = 0


Columns = dict[str, np.ndarray]  # of a curve: x, y, and low and high where it has a band


def columns_of(panel: Panel, caller: str) -> list[Columns]:
    """The numbers of each curve of a panel.

    Raises:
        InputError: a curve whose places, heights and edges are not as many, or are no numbers.
    """
    return [_columns(curve, panel.x, f"{caller}: curve {curve.name!r}") for curve in panel.curves]


def curves_chart(panel: Panel, columns: Sequence[Columns]) -> dict[str, Any]:
    """A panel for the script."""
    drawn: list[dict[str, Any]] = []
    for place, (curve, own) in enumerate(zip(panel.curves, columns, strict=True)):
        keep = _kept(len(own["y"]), [values for name, values in own.items() if name != "x"])
        kept = {name: [_rounded(value) for value in values[keep].tolist()] for name, values in own.items()}
        colour = place if curve.colour is None else curve.colour
        drawn.append({"name": str(curve.name), "colour": colour, "points": curve.points, **kept})
    values = [value for curve in drawn for name in ("y", "low") for value in curve.get(name, ()) if value is not None]
    marks = [{"x": _rounded(place), "label": str(label)} for place, label in panel.marks.items()]
    dates = {"dates": True} if dated(panel) else {}
    return {"kind": "curves", "curves": drawn, "marks": marks, "zero": bool(values) and min(values) >= 0, **dates}


def dated(panel: Panel) -> bool:
    """Whether a panel is drawn over dates; their places are then days since 1970."""
    places = [panel.x if curve.x is None else curve.x for curve in panel.curves]
    return bool(places) and all(isinstance(x, np.ndarray) and x.dtype.kind == "M" for x in places)


def intervals_chart(intervals: Sequence[Interval], marks: Mapping[float, str]) -> dict[str, Any]:
    """Rows of intervals for the script."""
    names = ("middle", "low", "high", "outer_low", "outer_high")
    rows = [
        {"name": one.name, "colour": one.colour, **{name: _rounded(getattr(one, name)) for name in names}}
        for one in intervals
    ]
    return {"kind": "intervals", "rows": rows, "marks": [{"x": _rounded(x), "label": t} for x, t in marks.items()]}


def in_words(title: str, panel: Panel, columns: Sequence[Columns], x_label: str, y_label: str) -> str:
    """What a chart of curves shows, for who does not see it."""
    dates = dated(panel)
    told = [f"{title}: {panel.y_label or y_label or 'values'} by {x_label or ('date' if dates else 'place')}"]
    for curve, own in zip(panel.curves, columns, strict=True):
        seen = np.flatnonzero(np.isfinite(own["y"]))
        if not len(seen):
            told.append(f"{curve.name} has no values")
            continue
        x, y = own["x"][seen], own["y"][seen]
        top = int(y.argmax())
        told.append(
            f"{curve.name} goes from {number(y[0])} at {_place(x[0], dates)} to {number(y[-1])} at "
            f"{_place(x[-1], dates)}, highest {number(y[top])} at {_place(x[top], dates)}"
        )
    return ". ".join(told) + "."


def numbers(panel: Panel, columns: Sequence[Columns], x_label: str) -> tuple[list[str], list[list[Any]]]:
    """Header and rows of the table beneath a chart of curves: some of its points, spread over the whole width."""
    shortest = min((own["x"] for own in columns), key=len, default=np.zeros(0))
    places = np.unique(shortest[np.isfinite(shortest)])
    shown = places[np.unique(np.linspace(0, len(places) - 1, ROWS).round().astype(int))] if len(places) else places
    rows: list[list[Any]] = []
    dates = dated(panel)
    for x in shown.tolist():
        row: list[Any] = [_place(x, dates)]
        for own in columns:
            found = np.flatnonzero(own["x"] == x)
            at = {name: float(values[found[0]]) for name, values in own.items()} if len(found) else {"y": math.nan}
            row.append((at["y"], at["low"], at["high"]) if "low" in at else at["y"])
        rows.append(row)
    return [x_label or ("date" if dates else "place"), *(str(curve.name) for curve in panel.curves)], rows


def _place(x: float, dates: bool = False) -> str:
    return str(np.datetime64(round(x), "D")) if dates else f"{x:,.10g}"


def _columns(curve: Curve, shared: Any, what: str) -> Columns:
    middle = _numbers(curve.middle, f"{what}: middle")
    x = curve.x if curve.x is not None else shared
    columns = {"x": np.arange(1, len(middle) + 1.0) if x is None else _numbers(x, f"{what}: x"), "y": middle}
    if (curve.low is None) != (curve.high is None):
        raise InputError(f"{what} has one edge of a band, expected low and high, or neither")
    if curve.low is not None:
        columns |= {"low": _numbers(curve.low, f"{what}: low"), "high": _numbers(curve.high, f"{what}: high")}
    for name, values in columns.items():
        if len(values) != len(middle):
            raise InputError(f"{what}: {name} has {len(values)} points, expected {len(middle)}, as middle has")
    return columns


def _numbers(values: Any, what: str) -> np.ndarray:
    if hasattr(values, "detach"):  # a tensor, perhaps on a device
        values = values.detach().cpu()
    try:
        found = np.asarray(values)
        if found.dtype.kind == "M":
            found = found.astype("datetime64[D]")
        found = found.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} holds {values!r:.60}, expected numbers") from error
    if found.ndim != 1:
        raise InputError(f"{what} has shape {list(found.shape)}, expected [points]")
    return found


def extremes(count: int, columns: Sequence[np.ndarray], buckets: int = BUCKETS) -> np.ndarray:
    """Places of what is to be seen of long columns: in each bucket its first entry and the extremes of each column.

    Args:
        count: length of the columns.
        columns: `[count]` each.
        buckets: into how many the length is cut.
    """
    size = math.ceil(count / buckets)
    starts = np.arange(0, count, size)
    found = [starts, np.array([count - 1])]
    for values in columns:
        for fill, pick in ((-math.inf, np.argmax), (math.inf, np.argmin)):
            padded = np.full(len(starts) * size, fill)
            padded[:count] = np.where(np.isnan(values), fill, values)
            found.append(starts + pick(padded.reshape(-1, size), axis=1))
    kept = np.unique(np.concatenate(found))
    return kept[kept < count]


def _kept(count: int, columns: Sequence[np.ndarray]) -> np.ndarray:
    most = BUCKETS * (2 + 2 * len(columns))
    return np.arange(count) if count <= most else extremes(count, columns)


def _rounded(value: float | None) -> float | int | None:
    """A number of few digits; None, a gap, for what is none."""
    if value is None or not math.isfinite(value):
        return None
    if float(value).is_integer() and abs(value) < 1e15:
        return int(value)
    return float(f"{value:.{DIGITS}g}")
