"""The summary of a run: what each series came to, over the replicates."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from denizen.run._results import Results

QUANTILES = (0.5, 0.05, 0.95)


class Shown:
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


class _Fitting:
    """Of several tables the first that fits the screen: a cut number would read as another one."""

    def __init__(self, *tables: Any) -> None:
        self._tables = tables

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from rich.measure import Measurement

        wide = options.update(width=1000)
        fitting = (t for t in self._tables if Measurement.get(console, wide, t).minimum <= options.max_width)
        yield next(fitting, self._tables[-1])


def summary(results: "Results") -> Shown:
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
        rows[name] = row = _row(entries.sum(2))
        label = name if values.dim() == 2 else f"{name} (sum of {entries.shape[2]})"
        total = _cell(row["total"]) if results.kinds[name] == "flow" else "–"
        when = [
            round(step * results.dt, 1) if results.dt < 1 else round(step * results.dt) for step in row["peak_step"]
        ]
        day = _cell(when) if any(row["peak"]) else "–"  # what is 0 throughout has no peak
        cells.append([label, total, _cell(row["peak"]), day, _cell(row["final"])])
    if replicates == 1:
        return Shown(
            _Fitting(_table(f"{time}, one replicate", cells), _table(f"{time}, one replicate", cells, fold=True)), rows
        )
    bare = [[cell if k == 0 else cell.partition(" (")[0] for k, cell in enumerate(line)] for line in cells]
    median = f"{time}, median over {replicates} replicates"
    full = _table(f"{time}, median (5–95 %) over {replicates} replicates", cells)
    return Shown(_Fitting(full, _table(median, bare), _table(median, bare, fold=True)), rows)


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
