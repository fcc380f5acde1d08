"""The summary of a run: what each series came to, over the replicates."""

import io
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
        from rich.console import Console

        console = Console(file=io.StringIO(), width=110, color_system=None, legacy_windows=False)
        console.print(self._renderable)
        return console.file.getvalue().rstrip("\n")  # type: ignore[attr-defined]  # the StringIO of two lines above

    __repr__ = __str__


def summary(results: "Results") -> Shown:
    """See `Results.summary`."""
    from rich.table import Table

    replicates = len(results.worlds)
    band = f"median and 5–95 % over {replicates} replicates" if replicates > 1 else "one replicate"
    table = Table(title=f"{results.steps} steps, {band}", title_justify="left", title_style="", header_style="bold")
    for head, side in (
        ("series", "left"),
        ("total", "right"),
        ("peak", "right"),
        ("peak at", "right"),
        ("final", "right"),
    ):
        table.add_column(head, justify=side, no_wrap=head == "series")  # type: ignore[arg-type]  # a literal of rich's
    rows = {}
    for name in results.series_names:
        values = results[name].detach().double().cpu()
        if values.shape[1] == 0:
            table.add_row(name, "–", "–", "–", "–")
            continue
        rows[name] = row = _row(values.flatten(2).sum(2) if values.dim() > 2 else values, results)
        total = row["total"] if results.kinds[name] == "flow" else None
        peak_time = [value * results.dt for value in row["peak_step"]]
        unit = f"{results.time_unit} "
        cells = (_cell(total), _cell(row["peak"]), f"{unit}{_cell(peak_time)}", _cell(row["final"]))
        table.add_row(f"{name} (sum of {values.flatten(2).shape[2]})" if values.dim() > 2 else name, *cells)
    return Shown(table, rows)


def _row(values: Tensor, results: "Results") -> dict[str, list[float]]:
    peak, place = values.max(dim=1)
    measures = {"total": values.sum(dim=1), "peak": peak, "peak_step": (place + 1).double(), "final": values[:, -1]}
    levels = torch.tensor(QUANTILES, dtype=torch.float64)
    return {name: torch.quantile(measure, levels).tolist() for name, measure in measures.items()}


def _cell(triple: list[float] | None) -> str:
    if triple is None:
        return "–"
    middle, low, high = (number(value) for value in triple)
    return middle if low == high else f"{middle}  ({low}–{high})"


def number(value: float) -> str:
    """A number for people: whole from 100 on, else three significant digits."""
    if value == 0 or abs(value) >= 99.95:
        return f"{value:,.0f}" if abs(value) < 1e12 else f"{value:.3g}"
    return f"{value:.3g}"
