"""Agents through time: a field of one snapshot, thinned to what a screen shows, with exact counts of all agents.

A field of agents becomes points where the run has places for them, a network where it has a small one, and else a
square of cells in the order of the agents' numbers. A field of a grid becomes cells.
"""

import dataclasses
import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from denizen._run_folder import content, decode, while_it_goes_on
from denizen.errors import DataError, InputError, nearest
from denizen.run import Manifest, read_manifest
from denizen.run._drawing import MOST_AGENTS, MOST_EDGES
from denizen.run._narrow import Form, widen
from denizen.run._zarr import StoredSnapshots
from denizen.ui._curves import packed
from denizen.ui._runs import Entry

SIDE = 256  # cells of a side, at most
POINTS = 20_000  # agents of a map, at most
LEVELS = 16  # numbers that count as levels
PLACES = ("x", "y")  # fields that say where an agent is
KEPT = 4  # runs whose snapshots are held open
LARGEST = 1 << 32  # bytes of a field in the snapshots of a chunk


@dataclasses.dataclass(frozen=True)
class Field:
    """A field that can be drawn.

    Attributes:
        name: of the field.
        kind: ``"share"`` (0 or 1), ``"levels"`` or ``"number"``.
        form: ``"agents"`` or ``"grid"``.
        shape: without replicates and snapshots.
    """

    name: str
    kind: str
    form: str
    shape: tuple[int, ...]


class Snapshots:
    """Reads snapshots of runs."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[Any, ...], tuple[Manifest, StoredSnapshots]] = OrderedDict()

    def about(self, entry: Entry) -> dict[str, Any] | None:
        """Which snapshots there are, and which of their fields can be drawn; None: none.

        Raises:
            DataError: the manifest or the snapshots are damaged.
        """
        if entry.kind != "simulation" or not entry.manifest.get("snapshots"):
            return None
        manifest, stored = self._opened(entry)
        assert manifest.snapshots is not None
        fields = self._fields(manifest, stored)
        return {
            "steps": list(manifest.snapshots.steps),
            "dt": manifest.setup.dt,
            "unit": manifest.setup.time_unit,
            "replicates": len(manifest.setup.worlds),
            "fields": [
                dataclasses.asdict(field) for field in fields if field.name not in PLACES or not _mapped(fields)
            ],
            "left_out": [name for name in manifest.snapshots.fields if name not in {field.name for field in fields}],
        }

    def frame(self, entry: Entry, name: str, place: int, replicate: int) -> dict[str, Any]:
        """A field of a snapshot for the page.

        Args:
            entry: the run.
            name: of the field.
            place: number of the snapshot.
            replicate: number of the replicate.

        Raises:
            InputError: there is no such field, snapshot or replicate.
            DataError: the snapshots are damaged.
        """

        def use(pair: tuple[Manifest, StoredSnapshots]) -> dict[str, Any]:
            manifest, stored = pair
            fields = {field.name: field for field in self._fields(manifest, stored)}
            if name not in fields:
                raise InputError(f"field {name!r} is none that can be drawn; {nearest(name, fields)}")
            taken, worlds = manifest.snapshots, len(manifest.setup.worlds)
            if taken is None or not 0 <= place < len(taken.steps) or not 0 <= replicate < worlds:
                raise InputError(f"snapshot {place} of replicate {replicate}: there is none of these numbers")
            values = self._read(manifest, stored, name, place, replicate)
            drawn = None
            if fields[name].form == "agents":
                arrays = _arrays(entry.path, manifest)
                if _mapped(fields.values()):
                    arrays |= {axis: self._read(manifest, stored, axis, place, replicate) for axis in PLACES}
                drawn = _points(values, arrays)
            drawn = drawn or _drawn(fields[name], values)
            names = manifest.drawing.levels.get(name, ()) if manifest.drawing else ()
            counts = _counts(fields[name], values)
            return {"step": taken.steps[place], "field": name, "names": names, **counts, **drawn}

        return while_it_goes_on(self._opened(entry), lambda: self._opened(entry, again=True), use)

    def _opened(self, entry: Entry, again: bool = False) -> tuple[Manifest, StoredSnapshots]:
        key = entry.id, entry.stamp
        if again:
            self._open.pop(key, None)
        if key not in self._open:
            manifest = read_manifest(entry.path)
            if manifest.snapshots is None:
                raise DataError(f"{entry.path} has no snapshots any more")
            stored = StoredSnapshots(entry.path, manifest.snapshots, len(manifest.setup.worlds))
            if max(block.nbytes * block.each for block in stored._blocks) > LARGEST:
                raise DataError(
                    f"{entry.path}: a snapshot is larger than {LARGEST >> 20} MiB, which the page does not read"
                )
            self._open[key] = manifest, stored
            while len(self._open) > KEPT:
                self._open.popitem(last=False)
        return self._open[key]

    def _fields(self, manifest: Manifest, stored: StoredSnapshots) -> list[Field]:
        agents = manifest.model["agents"]
        found = []
        for number, (name, form) in enumerate(stored.forms.items()):
            shape = stored._blocks[number].shape[1:]
            shape = (*shape[:-1], form.size) if form.bits else shape
            if len(shape) == 1 and shape[0] > 1:
                found.append(Field(name, _kind(form), "agents", shape))
            elif len(shape) == 2 and min(shape) > 1 and shape[0] != agents:
                found.append(Field(name, _kind(form), "grid", shape))
        return found

    def _read(self, manifest: Manifest, stored: StoredSnapshots, name: str, place: int, replicate: int) -> np.ndarray:
        number = list(stored.forms).index(name)
        values: Tensor = widen(stored.forms[name], stored.read(place, number)[replicate : replicate + 1])
        return values[0].float().numpy()


def _kind(form: Form) -> str:
    if form.bits == 1 or form.dtype == "bool":
        return "share"
    return "levels" if form.bits or form.dtype in ("int8", "uint8") else "number"


def _mapped(fields: Any) -> bool:
    return {field.name for field in fields if field.form == "agents"} >= set(PLACES)


def _counts(field: Field, values: np.ndarray) -> dict[str, Any]:
    """Of all agents or cells, also of those that are not sent."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return {"kind": field.kind, "total": int(values.size), "counts": {}, "low": 0.0, "high": 1.0}
    whole = field.kind != "number" and finite.min() >= 0 and finite.max() < LEVELS
    levels, counts = np.unique(finite, return_counts=True) if whole else (np.zeros(0), np.zeros(0))
    return {
        "kind": field.kind if whole else "number",
        "total": int(values.size),
        "counts": {str(int(level)): int(count) for level, count in zip(levels, counts, strict=True)},
        "low": float(finite.min()),
        "high": float(finite.max()),
        "mean": float(finite.mean(dtype=np.float64)),
    }


def _drawn(field: Field, values: np.ndarray) -> dict[str, Any]:
    if field.form == "grid":
        cells, each = _blocks(values, field.kind)
    else:
        each = -(-len(values) // SIDE**2)
        line = _gathered(values, each, field.kind)
        side = math.ceil(math.sqrt(len(line)))
        cells = np.full(-(-len(line) // side) * side, np.nan, np.float32)
        cells[: len(line)] = line
        cells = cells.reshape(-1, side)
    height, width = cells.shape
    return {"form": "cells", "width": width, "height": height, "each": each, "values": packed(cells, "<f4")}


def _gathered(values: np.ndarray, each: int, kind: str) -> np.ndarray:
    """So many neighbours together: the mean, or the first of them where a mean means nothing."""
    if each == 1:
        return values
    if kind == "levels":
        return values[::each]
    padded = np.full(-(-len(values) // each) * each, np.nan, np.float32)
    padded[: len(values)] = values
    rows = padded.reshape(-1, each)
    seen = np.isfinite(rows)
    return np.where(seen, rows, 0).sum(1) / np.maximum(seen.sum(1), 1)


def _blocks(values: np.ndarray, kind: str) -> tuple[np.ndarray, int]:
    each = -(-max(values.shape) // SIDE)
    if each == 1:
        return values, 1
    if kind == "levels":
        return values[::each, ::each], each * each
    rows = np.stack([_gathered(row, each, kind) for row in values])
    return np.stack([_gathered(column, each, kind) for column in rows.T]).T, each * each


def _points(values: np.ndarray, arrays: dict[str, np.ndarray]) -> dict[str, Any] | None:
    """Some of the agents where they are, the same ones at each step, or all of a network; None where there is neither.

    A network without places has none of its own: the page lays it out.
    """
    told: dict[str, Any] = {"form": "points"}
    placed = [arrays.get(axis, values[:0]) for axis in PLACES]
    if all(len(axis) == len(values) and np.isfinite(axis).any() for axis in placed):
        kept = np.unique(np.linspace(0, len(values) - 1, min(len(values), POINTS)).astype(np.int64))
        told["box"] = [float(end(axis[np.isfinite(axis)])) for axis in placed for end in (np.min, np.max)]
        told |= {name: packed(axis[kept], "<f4") for name, axis in zip(PLACES, placed, strict=True)}
        told |= {"each": round(len(values) / len(kept), 1), "values": packed(values[kept], "<f4")}
    elif "edges" in arrays:
        told |= {"form": "network", "each": 1, "values": packed(values, "<f4")}
    else:
        return None
    if "edges" in arrays:
        told["edges"] = packed(arrays["edges"], "<i4")  # sources, then targets
    return told


def _arrays(path: Path, manifest: Manifest) -> dict[str, np.ndarray]:
    """What the run's folder says of places and neighbours."""
    part = manifest.drawing.file if manifest.drawing else None
    if part is None:
        return {}
    found = {name: values.numpy() for name, values in decode(content(path, part), str(path / part.file)).items()}
    edges = found.get("edges")
    if edges is not None and not _is_network(edges, manifest.model["agents"]):
        del found["edges"]
    return {name: values for name, values in found.items() if name in (*PLACES, "edges")}


def _is_network(edges: np.ndarray, agents: int) -> bool:
    """Whether these are neighbours `[2, edges]` that a screen can show."""
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind != "i" or agents > MOST_AGENTS:
        return False
    return 0 < edges.shape[1] <= MOST_EDGES and edges.min() >= 0 and edges.max() < agents
