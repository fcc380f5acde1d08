"""Reading networks: edge lists in CSV, Parquet or npz, ids checked against the population's size."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from denizen.errors import DataError
from denizen.population._checks import edge_facts
from denizen.population._csv import numbers
from denizen.population._tables import read_parquet
from denizen.space._files import content
from denizen.space._formats import Columns
from denizen.space._npz import read_npz
from denizen.space._readers import check_range, read_weights, whole_numbers

SIDES = ("source", "target")
SUFFIXES = (".csv", ".parquet", ".npz")
_SOURCES = ("source", "src", "from", "i")
_TARGETS = ("target", "dst", "to", "j")
_WEIGHTS = ("weight", "weights", "w")


@dataclass(frozen=True, eq=False)
class Network:
    """One edge list: int32 source and target `[edges]`, float32 weight `[edges]` or None, sentences for the report."""

    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray | None
    report: list[str]


def read_network(path: Path, origin: str, agents: int) -> Network:
    """Read one edge list: two columns `source,target`, or a third one with weights; named or in this order.

    Args:
        path: `.csv` (with or without header), `.parquet` or `.npz` (arrays `source`, `target`, `weight`).
        origin: the file's name for messages.
        agents: number of agents; ids must be in 0..agents-1.

    Raises:
        DataError: unreadable content, ids that are not whole or out of range, weights that are negative or not finite.
    """
    report: list[str] = []
    line = None
    if path.suffix == ".csv":
        table = numbers(content(path, origin, "CSV"), origin, (2, 3))
        names, columns, line = table.header, table.columns, table.line
        if names is not None:
            report.append(f"{origin}: header line {','.join(names)!r} skipped.")
    elif path.suffix == ".npz":
        arrays = read_npz(path, origin)
        names, columns = list(arrays), list(arrays.values())
    else:
        raw = read_parquet(path, origin)
        names, columns = list(raw), [column.values if column.labels is None else None for column in raw.values()]
    ends = _by_name(names, columns, origin, report)
    if any(column is None or column.ndim != 1 for column in ends):
        raise DataError(f"{origin}: source, target and weight must be columns of numbers")
    if len({len(column) for column in ends}) != 1:
        raise DataError(f"{origin}: source, target and weight have the lengths {[len(column) for column in ends]}")
    where = Columns(*ends, origin=origin, line=line)
    source, target = (_ids(where, side, column, agents, report) for side, column in zip(SIDES, ends, strict=False))
    weight = read_weights(where, ends[2]) if len(ends) == 3 else None
    report += edge_facts(source, target, agents).sentences(path.stem)
    return Network(source, target, weight, report)


def _by_name(names: list[str] | None, columns: list, origin: str, report: list[str]) -> list:
    """The columns in the order source, target, weight: by their names where these are known, else as they stand."""
    if names is None:
        return columns
    lowered = [name.strip().lower() for name in names]
    found = [
        next((k for k, name in enumerate(lowered) if name in known), None) for known in (_SOURCES, _TARGETS, _WEIGHTS)
    ]
    if found[0] is not None and found[1] is not None:
        return [columns[k] for k in found if k is not None]
    if len(columns) not in (2, 3) or found[0] is not None or found[1] is not None:
        raise DataError(f"{origin} has columns {', '.join(names)[:200]}; expected source, target and perhaps weight")
    report.append(
        f"{origin}: columns {', '.join(names)} taken as source, target{', weight' if len(columns) == 3 else ''}."
    )
    return columns


def _ids(where: Columns, side: str, values: np.ndarray, agents: int, report: list[str]) -> np.ndarray:
    """Ids as int32, checked."""
    ids = whole_numbers(where, side, values, report)
    check_range(where, side, ids, agents)
    return ids.astype(np.int32)
