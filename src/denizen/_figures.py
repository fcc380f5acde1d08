"""The looks of all figures of matplotlib, and writing one to a file."""

import functools
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from denizen.errors import InputError, StorageError, need

# Okabe and Ito's colours, which people who do not tell red from green tell apart; pages have the same (page.css).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#1c1f23", "#b3a800")
BANDS = ((0.05, 0.95, 0.18), (0.25, 0.75, 0.28))  # from, to, opacity
INK, FAINT, LINE = "#222222", "#666666", "#bbbbbb"
OF_SAVING = ("bbox", "edgecolor", "facecolor", "transparent")  # settings of matplotlib, all but that of dpi
GAP = 0.075  # between labels, as a share of an axis that is about three inches high


def colour(number: int) -> str:
    """The colour of a curve by its number."""
    return COLOURS[number % len(COLOURS)]


def figure(width: float, height: float, purpose: str = "draw curves") -> Any:
    """A figure of matplotlib in inches, without a window and without global state.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    need("matplotlib", "plot", purpose)
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    made = _shown()(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(made)
    return made


@functools.cache
def _shown() -> type[Any]:
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that a notebook shows, without pyplot and its magics."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=100)
            return buffer.getvalue()

    return Picture


def plain_axis(axis: Any) -> None:
    """The looks of all panels."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(LINE)
    axis.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8, color=LINE, labelcolor=INK)
    axis.yaxis.set_major_locator(MaxNLocator(5))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.margins(x=0.01)


def date_axis(axis: Any) -> None:
    """Dates to the right."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    places = AutoDateLocator(minticks=3)
    axis.xaxis.set_major_locator(places)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(places))
    axis.xaxis.get_offset_text().set_fontsize(8)


def titled(axis: Any, title: str, x_label: str = "", y_label: str = "") -> None:
    """What a panel shows, with units."""
    axis.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
    axis.set_xlabel(x_label, fontsize=8, color=INK)
    axis.set_ylabel(y_label, fontsize=8, color=INK)


def thousands(axis: Any) -> None:
    """Write long numbers on the axis to the right as 10k or 2.5M."""

    def short(value: float, _: Any) -> str:
        for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= 10 * size or (abs(value) >= size and size > 1e3):
                return f"{value / size:.10g}{unit}"
        return f"{value:.10g}"

    axis.xaxis.set_major_formatter(short)


def name_ends(axis: Any, ends: Sequence[tuple[str, float, str]]) -> None:
    """Write names of curves beside their ends, moved apart where they would lie on one another.

    Args:
        axis: with its final limits and scale.
        ends: (name, height of the end, colour) of each.
    """
    low, high = axis.transScale.transform([(1, end) for end in axis.get_ylim()])[:, 1]  # of a log scale, logarithms
    heights = [float(axis.transScale.transform((1, y))[1]) for _, y, _ in ends]
    places = sorted(((h - low) / (high - low), name, c) for h, (name, _, c) in zip(heights, ends, strict=True))
    place = -1.0
    room = [max(0.0, min(1.0, at)) for at, _, _ in places]
    for k, at in enumerate(room):
        place = room[k] = max(at, place + GAP)
    over = max(0.0, room[-1] - 1.0) if room else 0.0
    for (_, name, shade), at in zip(places, room, strict=True):
        axis.text(1.01, at - over, name, transform=axis.transAxes, fontsize=7.5, color=shade, va="center")


def _saved_as_drawn() -> bool:
    """Whether matplotlib's settings, which people may change, save a figure as it is on the screen."""
    from matplotlib import rcParams, rcParamsDefault

    return all(rcParams[f"savefig.{name}"] == rcParamsDefault[f"savefig.{name}"] for name in OF_SAVING)


def save_figure(figure: Any, path: Any, dpi: float | str = "figure") -> None:
    """Write a figure of matplotlib to a file."""
    is_path = isinstance(path, str | os.PathLike)
    if "\0" in str(path) if is_path else not hasattr(path, "write"):
        raise InputError(f"plot: path={path!r}, expected the path of a file, such as 'plot.png'")
    if is_path and Path(path).is_dir():  # matplotlib would write beside it
        wanted = f"name a file in it, such as {Path(path) / 'plot.png'}"
        raise StorageError(f"plot {path} could not be written: it is a folder; {wanted}")
    try:
        if is_path and dpi == "figure" and Path(path).suffix.lower() == ".png" and _saved_as_drawn():
            figure.canvas.print_png(path)  # the same bytes: `savefig` draws all of it once before, for its size
        else:
            figure.savefig(path, dpi=dpi)
    except (OSError, ValueError) as error:  # ValueError: a suffix that matplotlib does not know
        raise StorageError(f"plot {path} could not be written: {error}") from error
