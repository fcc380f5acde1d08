"""Reading networks: edge lists in CSV, Parquet or npz, ids checked against the population's size."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from denizen.errors import DataError
from denizen.population._checks import edge_facts
from denizen.population._tables import read_parquet
from denizen.space._csv import columns, is_number, open_text
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
        ends, line = _text(path, origin, report)
    else:
        if path.suffix == ".npz":
            held: dict[str, Any] = read_npz(path, origin)
        else:
            raw = read_parquet(path, origin)
            held = {name: column.values if column.labels is None else None for name, column in raw.items()}
        ends = [held[list(held)[k]] for k in _by_name(list(held), origin, report)]
    if any(column is None or column.ndim != 1 for column in ends):
        raise DataError(f"{origin}: source, target and weight must be columns of numbers")
    if len({len(column) for column in ends}) != 1:
        raise DataError(f"{origin}: source, target and weight have the lengths {[len(column) for column in ends]}")
    where = Columns(ends[0], ends[1], origin=origin, line=line)
    source, target = (_ids(where, side, column, agents, report) for side, column in zip(SIDES, ends, strict=False))
    weight = read_weights(where, ends[2]) if len(ends) == 3 else None
    report += edge_facts(source, target, agents).sentences(path.stem)
    return Network(source, target, weight, report)


def _text(path: Path, origin: str, report: list[str]) -> tuple[list[np.ndarray], Callable[[int], int]]:
    text = open_text(content(path, origin, "CSV"), origin)
    header = not all(is_number(cell) for cell in text.first)
    if header:
        report.append(f"{origin}: header line {','.join(text.first)!r} skipped.")
        picked = _by_name(text.first, origin, report)
    else:
        picked = list(range(len(text.first)))
        if text.first and len(picked) not in (2, 3):
            raise DataError(
                f"{origin}, line {text.number}: {len(picked)} columns; expected 2 or 3 (source, target and perhaps "
                f"weight), separated by commas, semicolons, tabs or blanks"
            )
    ends, line = columns(text, header, picked) if picked else ([], None)
    if line is None or not ends[0].size:
        raise DataError(f"{origin} is empty; expected source,target a line")
    return ends, line


def _by_name(names: list[str], origin: str, report: list[str]) -> list[int]:
    """Places of source, target and weight: by their names where these are known, else as they stand."""
    lowered = [name.strip().lower() for name in names]
    found = [
        next((k for k, name in enumerate(lowered) if name in known), None) for known in (_SOURCES, _TARGETS, _WEIGHTS)
    ]
    if found[0] is not None and found[1] is not None:
        return [k for k in found if k is not None]
    if len(names) not in (2, 3) or found[0] is not None or found[1] is not None:
        raise DataError(f"{origin} has columns {', '.join(names)[:200]}; expected source, target and perhaps weight")
    report.append(
        f"{origin}: columns {', '.join(names)} taken as source, target{', weight' if len(names) == 3 else ''}."
    )
    return list(range(len(names)))


def _ids(where: Columns, side: str, values: np.ndarray, agents: int, report: list[str]) -> np.ndarray:
    """Ids as int32, checked."""
    ids = whole_numbers(where, side, values, report)
    check_range(where, side, ids, agents)
    return ids.astype(np.int32)
