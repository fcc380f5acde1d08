"""Curves of runs: bands over replicates or seeds, read once, and thinned to the pixels that they are drawn on."""

import base64
import csv
import io
import math
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from denizen._atomic import open_plain
from denizen._results import banded
from denizen._run_folder import content, while_it_goes_on
from denizen.errors import DataError
from denizen.rl._training_folder import METRICS, _row
from denizen.run import Manifest, _series, read_manifest
from denizen.ui._runs import Entry

LINES = 8  # of a series that has several numbers at each step
HELD = 1 << 28  # bytes of bands that are kept
LARGEST = 1 << 31  # bytes of a file
AXES = ("steps", "step", "epoch")  # what rows of metrics are drawn over, the first that they have
FIRST = ("return_mean", "validation_return", "best_score", "length_mean", "entropy", "value_loss", "explained_variance")
BESIDE = {"step", "steps", "epoch", "seconds"}


@dataclass(frozen=True)
class Curve:
    """A curve over all steps.

    Attributes:
        name: of the series.
        kind: ``"flow"``, ``"level"`` or ``"metric"``.
        about: a sentence.
        x: places, `[points]`.
        values: `[3, points]`: low, middle, high; or `[1, points]` where there is no band.
    """

    name: str
    kind: str
    about: str
    x: np.ndarray
    values: np.ndarray


class Reader:
    """Reads curves; what was read of a part that is never written again is kept."""

    def __init__(self) -> None:
        self._bands: OrderedDict[Any, dict[str, np.ndarray]] = OrderedDict()
        self._size = 0
        self._rows: dict[Path, tuple[int, int, list[dict[str, Any]]]] = {}
        self.bytes_read = 0  # of files, for tests

    def curves(self, entry: Entry) -> tuple[list[Curve], str]:
        """The curves of a run, and what they are drawn over.

        Raises:
            DataError: a file was damaged or is missing.
        """
        if entry.seeds:
            return self._seeds(entry.seeds), "steps of worlds"
        if entry.kind == "simulation":
            return self._simulation(entry.path)
        if entry.kind == "training":
            return _metrics([self._metrics(entry.path)]), "steps of worlds"
        rows = entry.manifest.get("metrics")
        rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        return _metrics([rows]), "epoch" if rows and "epoch" in rows[0] else ""

    # --- simulations --------------------------------------------------------------------------------------------------

    def _simulation(self, path: Path) -> tuple[list[Curve], str]:
        def read() -> Manifest:
            return read_manifest(path)

        def use(manifest: Manifest) -> list[Curve]:
            parts = [self._part(path, manifest, part) for part in manifest.metrics]
            x = np.arange(1, manifest.steps + 1) * manifest.setup.dt
            found = []
            for series in manifest.series:
                many = math.prod(series.shape)
                for k in range(min(many, LINES)):
                    name = series.name if many == 1 else f"{series.name} {k}"
                    about = series.about if many <= LINES else f"{series.about} The first {LINES} of {many:,} values."
                    values = np.concatenate([part[series.name][:, :, k] for part in parts], axis=1)
                    found.append(Curve(name, series.kind, about, x, values))
            return found

        manifest = read()
        return while_it_goes_on(manifest, read, use), manifest.setup.time_unit

    def _part(self, path: Path, manifest: Manifest, part: Any) -> dict[str, np.ndarray]:
        """Bands `[3 or 1, steps, numbers]` of each series in one file."""
        key = str(path), part.digest, manifest.series
        if key in self._bands:
            self._bands.move_to_end(key)
            return self._bands[key]
        if part.size > LARGEST:
            raise DataError(f"{path / part.file} is larger than {LARGEST >> 20} MiB, which is more than the page reads")
        data = content(path, part)
        self.bytes_read += len(data)
        worlds, steps = len(manifest.setup.worlds), part.last - part.first + 1
        series = _series.decode(data, manifest.series, worlds, steps, str(path / part.file))
        bands = {
            name: banded(values.detach().double().numpy().reshape(worlds, steps, -1)[:, :, :LINES])
            for name, values in series.items()
        }
        self._keep(key, bands)
        return bands

    def _keep(self, key: Any, bands: dict[str, np.ndarray]) -> None:
        self._bands[key] = bands
        self._size += sum(values.nbytes for values in bands.values())
        while self._size > HELD and len(self._bands) > 1:
            _, old = self._bands.popitem(last=False)
            self._size -= sum(values.nbytes for values in old.values())

    # --- trainings ----------------------------------------------------------------------------------------------------

    def _metrics(self, path: Path) -> list[dict[str, Any]]:
        """Rows of a training; of a file that has grown only what is new is read, and only whole lines."""
        file = path / METRICS
        try:
            with open_plain(file, path) as opened:
                inode = os.fstat(opened.fileno()).st_ino
                held = self._rows.get(file, (0, 0, []))
                number, place, rows = held if held[0] == inode else (inode, 0, [])
                size = opened.seek(0, io.SEEK_END)
                if size > LARGEST:
                    raise DataError(f"{file} is larger than {LARGEST >> 20} MiB, which is more than the page reads")
                if size < place:
                    place, rows = 0, []
                opened.seek(place)
                data = opened.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}") from error
        self.bytes_read += len(data)
        whole = data[: data.rfind(b"\n") + 1]
        rows = [*rows, *filter(None, map(_row, whole.decode("utf-8", "replace").splitlines()))]
        self._rows[file] = number, place + len(whole), rows
        return rows

    def _seeds(self, seeds: Sequence[Path]) -> list[Curve]:
        return _metrics([rows for rows in map(self._metrics, seeds) if rows])


def _metrics(runs: Sequence[list[dict[str, Any]]]) -> list[Curve]:
    """Curves of rows of numbers: of one run, or bands over several as far as all of them are."""
    if not runs or not all(runs):
        return []
    count = min(map(len, runs))
    axis = next((name for name in AXES if name in runs[0][0]), "")
    x = np.array([_number(row.get(axis)) for row in runs[0][:count]]) if axis else np.arange(1.0, count + 1)
    names = list(dict.fromkeys((*FIRST, *(name for row in runs[0][:count] for name in row if name not in BESIDE))))
    found = []
    for name in names:
        values = np.array([[_number(row.get(name)) for row in rows[:count]] for rows in runs])
        if np.isfinite(values).any():
            found.append(Curve(name, "metric", "", x, banded(values, gaps=True)))
    return found


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 300 digits
        return math.nan


# --- sent -------------------------------------------------------------------------------------------------------------


def thinned(curve: Curve, pixels: int) -> dict[str, np.ndarray]:
    """What is to be seen of a curve on so many pixels: of each bucket its lowest and highest middle, in order.

    The band at both is as wide as it is anywhere in the bucket. What has few points stays whole.
    """
    low, middle, high = curve.values if len(curve.values) == 3 else (curve.values[0],) * 3
    size = -(-len(middle) // max(1, pixels))
    if size <= 2:
        kept = {"x": curve.x, "y": middle}
        return kept | ({"low": low, "high": high} if len(curve.values) == 3 else {})
    starts = np.arange(0, len(middle), size)
    lowest = _placed(middle, starts, size, math.inf, np.argmin)
    highest = _placed(middle, starts, size, -math.inf, np.argmax)
    places = np.stack([np.minimum(lowest, highest), np.maximum(lowest, highest)], axis=1).reshape(-1)
    places[0], places[-1] = 0, len(middle) - 1  # where a curve begins and ends is told in words, too
    kept = {"x": curve.x[places], "y": middle[places]}
    if len(curve.values) == 3:
        kept["low"] = np.repeat(np.fmin.reduceat(low, starts), 2)
        kept["high"] = np.repeat(np.fmax.reduceat(high, starts), 2)
    return kept


def _placed(values: np.ndarray, starts: np.ndarray, size: int, fill: float, pick: Any) -> np.ndarray:
    padded = np.full(len(starts) * size, fill)
    padded[: len(values)] = np.where(np.isnan(values), fill, values)
    return np.minimum(starts + pick(padded.reshape(-1, size), axis=1), len(values) - 1)


def sent(curve: Curve, pixels: int) -> dict[str, Any]:
    """A curve for the page: its numbers as float64, little endian, in base64."""
    columns = {name: packed(values, "<f8") for name, values in thinned(curve, pixels).items()}
    return {"name": curve.name, "kind": curve.kind, "about": curve.about, "points": len(curve.x), **columns}


def packed(values: np.ndarray, dtype: str) -> str:
    """An array in base64."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=dtype).tobytes()).decode()


def table(runs: Sequence[tuple[str, list[Curve], str]], wanted: Sequence[str]) -> Iterator[str]:
    """The curves as CSV, every point of them, in pieces.

    Args:
        runs: name, curves, and what they are drawn over.
        wanted: names of series; none: all.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(["run", "series", "at", "unit", "low_5", "middle", "high_95"])
    for name, curves, unit in runs:
        for curve in curves:
            if wanted and curve.name not in wanted:
                continue
            low, middle, high = curve.values if len(curve.values) == 3 else (curve.values[0],) * 3
            band = len(curve.values) == 3
            rows = zip(curve.x.tolist(), low.tolist(), middle.tolist(), high.tolist(), strict=True)
            for number, (x, below, at, above) in enumerate(rows):
                ends = (below, at, above) if band else ("", at, "")
                writer.writerow([_safe(name), _safe(curve.name), x, _safe(unit), *ends])
                if number % 4096 == 4095:
                    yield _taken(buffer)
    yield _taken(buffer)


def _taken(buffer: io.StringIO) -> str:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text


def _safe(text: str) -> str:
    """A text that spreadsheets take for no formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
