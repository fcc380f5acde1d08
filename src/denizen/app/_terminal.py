"""Curves in a terminal, in dots of braille letters; in plain letters where the terminal has no others."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from rich.text import Text

from denizen._results import number

COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7")  # Okabe and Ito's that are bright enough on dark and light
SIGNS = "*o+x"  # of curves, where there are no dots
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille letter, [row][column]
HEIGHT, LOWEST = 12, 4  # lines of a chart
NARROWEST = 12  # letters across
BESIDE = 40  # from this width on names stand beside the ends of curves


class Curves:
    """Curves that grow, in a frame that is as wide as they will be at the end."""

    def __init__(self, curves: Mapping[str, Sequence[float]], steps: int, unit: str, mark: tuple[int, str]) -> None:
        """Args:
        curves: heights at steps 1, 2, … by name; all from 0 up.
        steps: how many there will be.
        unit: of time, for the axis.
        mark: a step with an upright line, and its label.
        """
        self._curves = {name: np.asarray(values, dtype=float) for name, values in curves.items()}
        self._steps, self._unit, self._mark = max(steps, 2), unit, mark

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Text]:
        top = max([1.0, *(values.max() for values in self._curves.values() if values.size)])
        edge = max(len(number(top)), 1)
        names = max(map(len, self._curves)) + 1
        beside = options.max_width >= BESIDE
        wide = max(NARROWEST, options.max_width - edge - 3 - (names if beside else 0))
        high = min(HEIGHT, max(LOWEST, console.size.height - 10))
        letters, owners = self._drawn(wide, high, top, options.ascii_only)
        ends = self._ends(high, top) if beside else {}
        for row in range(high):
            label = number(top) if row == 0 else "0" if row == high - 1 else ""
            line = Text(f"{label:>{edge}} {'|' if options.ascii_only else '│'}", no_wrap=True, style="dim")
            for owner, run in groupby(zip(owners[row], letters[row], strict=True), key=lambda cell: cell[0]):
                style = "dim" if owner < 0 else f"not dim {COLOURS[owner]}"
                line.append("".join(letter for _, letter in run), style=style)
            if row in ends:
                line.append(f" {list(self._curves)[ends[row]]}", style=f"not dim {COLOURS[ends[row]]}")
            yield line
        yield self._axis(edge, wide)
        if not beside:
            yield Text("  ").join(
                Text(f"{SIGNS[k] if options.ascii_only else '●'} {name}", style=COLOURS[k])
                for k, name in enumerate(self._curves)
            )

    def _drawn(self, wide: int, high: int, top: float, plain: bool) -> tuple[list[list[str]], np.ndarray]:
        """Letters, and which curve each is of; -1: none."""
        across, down = (1, 1) if plain else (2, 4)
        cells = np.zeros((high, wide), dtype=int)
        owners = np.full((high, wide), -1)
        columns = np.arange(wide * across)
        steps = 1 + columns / (len(columns) - 1) * (self._steps - 1)
        for k, values in enumerate(self._curves.values()):
            there = steps <= len(values)
            if not there.any():
                continue
            heights = np.interp(steps[there], np.arange(1, len(values) + 1), values)
            rows = np.clip(np.round((1 - heights / top) * (high * down - 1)).astype(int), 0, high * down - 1)
            before = rows[0]
            for column, row in zip(columns[there], rows, strict=True):
                for dot in range(min(before, row), max(before, row) + 1):  # steep parts have no holes
                    cell = dot // down, column // across
                    cells[cell] |= 0 if plain else DOTS[dot % down][column % across]
                    owners[cell] = k
                before = row
        mark = round((self._mark[0] - 1) / (self._steps - 1) * (wide - 1))
        letters = [[" "] * wide for _ in range(high)]
        for row in range(high):
            letters[row][min(mark, wide - 1)] = ":" if plain else "┊"
            for column in np.flatnonzero(owners[row] >= 0):
                letters[row][column] = SIGNS[owners[row, column]] if plain else chr(0x2800 + cells[row, column])
        return letters, owners

    def _ends(self, high: int, top: float) -> dict[int, int]:
        """In which row the name of each curve stands: that of its last value, or one nearby that is free."""
        found: dict[int, int] = {}
        for k, values in enumerate(self._curves.values()):
            wanted = high - 1 if not values.size else round((1 - values[-1] / top) * (high - 1))
            free = [row for row in range(high) if row not in found]
            if free:
                found[min(free, key=lambda row: abs(row - wanted))] = k
        return found

    def _axis(self, edge: int, wide: int) -> Text:
        """The line beneath: the first and the last step, and the label of the mark where it has room."""
        first, last = "1", f"{self._unit} {self._steps}"
        place = round((self._mark[0] - 1) / (self._steps - 1) * (wide - 1))
        line = [" "] * wide
        line[:1] = first
        line[max(wide - len(last), 0) :] = last[-wide:]
        label = self._mark[1]
        begin = max(2, place - len(label) // 2)
        if begin + len(label) < wide - len(last):
            line[begin : begin + len(label)] = label
        return Text(" " * (edge + 2) + "".join(line), style="dim", no_wrap=True)
