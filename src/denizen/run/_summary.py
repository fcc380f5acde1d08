"""The summary of a run: what each series came to, over the replicates."""

import io
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
        from rich.console import Console

        console = Console(file=io.StringIO(), width=110, color_system=None, legacy_windows=False)
        console.print(self._renderable)
        return console.file.getvalue().rstrip("\n")  # type: ignore[attr-defined]  # the StringIO of two lines above

    __repr__ = __str__


def summary(results: "Results") -> Shown:
    """See `Results.summary`."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    replicates, unit = len(results.worlds), results.time_unit
    band = f"median (5–95 %) over {replicates} replicates" if replicates > 1 else "one replicate"
    title = f"{results.steps * results.dt:g} {unit}s, {band}"
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        header_style="bold",
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("series", no_wrap=True)
    for head in ("total", "peak", f"{unit} of peak", "final"):
        table.add_column(head, justify="right", overflow="fold")
    rows = {}
    for name in results.series_names:
        values = results[name].detach().double().cpu()
        if values.shape[1] == 0:
            table.add_row(name, "–", "–", "–", "–")
            continue
        label = name if values.dim() == 2 else f"{name} (sum of {values.flatten(2).shape[2]})"
        rows[name] = row = _row(values.flatten(2).sum(2) if values.dim() > 2 else values)
        total = _cell(row["total"]) if results.kinds[name] == "flow" else "–"
        peak_time = [
            round(step * results.dt, 1) if results.dt < 1 else round(step * results.dt) for step in row["peak_step"]
        ]
        table.add_row(label, total, _cell(row["peak"]), _cell(peak_time), _cell(row["final"]))
    return Shown(table, rows)


def _row(values: Tensor) -> dict[str, list[float]]:
    peak, place = values.max(dim=1)
    measures = {"total": values.sum(dim=1), "peak": peak, "peak_step": (place + 1).double(), "final": values[:, -1]}
    levels = torch.tensor(QUANTILES, dtype=torch.float64)
    return {name: torch.quantile(measure, levels).tolist() for name, measure in measures.items()}


def _cell(triple: Sequence[float]) -> str:
    middle, low, high = (number(value) for value in triple)
    return middle if low == high else f"{middle} ({low}–{high})"


def number(value: float) -> str:
    """A number for people: whole from 100 on, else three significant digits."""
    if value == 0 or abs(value) >= 99.95:
        return f"{value:,.0f}" if abs(value) < 1e12 else f"{value:.3g}"
    return f"{value:.3g}"
