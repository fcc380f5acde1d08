"""Reading networks: edge lists in CSV, Parquet or npz, ids checked against the population's size."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from denizen.errors import DataError
from denizen.population._checks import edge_facts
from denizen.population._columns import INDEX, Raw, categorical, strings
from denizen.population._ids import Ids
from denizen.population._tables import read_parquet
from denizen.space.files import (
    Columns,
    Text,
    check_range,
    columns,
    content,
    decimal_commas,
    is_missing,
    is_number,
    open_text,
    read_npz,
    read_weights,
    texts,
    whole_numbers,
)

SIDES = ("source", "target")
TEXT = (".csv", ".tsv", ".edges")
SUFFIXES = (*TEXT, ".parquet", ".npz")
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


def read_network(path: Path, origin: str, agents: int, ids: Ids | None = None) -> Network:
    """Read one edge list: two columns `source,target`, or a third one with weights; named or in this order.

    Args:
        path: text (with or without header), `.parquet` or `.npz` (arrays `source`, `target`, `weight`).
        origin: the file's name for messages.
        agents: number of agents.
        ids: the agents' ids; None where the file holds the numbers of rows, 0..agents-1.

    Raises:
        DataError: unreadable content, ids that are missing, unknown, not whole or out of range, weights that are
            negative or not finite.
    """
    report: list[str] = []
    line = None
    suffix = path.suffix.lower()
    if suffix in TEXT:
        sides, weight, line = _text(path, origin, ids, report)
    else:
        held = read_parquet(path, origin).columns if suffix == ".parquet" else _npz(path, origin)
        sides, weight = _of_columns(held, origin, ids, report)
    return _network(sides, weight, line, origin, path.stem, agents, ids, report)


def network_of(held: dict[str, Raw], origin: str, stem: str, agents: int, ids: Ids | None = None) -> Network:
    """The same of columns in memory; `stem` is the network's name."""
    report: list[str] = []
    return _network(*_of_columns(held, origin, ids, report), None, origin, stem, agents, ids, report)


def _of_columns(
    held: dict[str, Raw], origin: str, ids: Ids | None, report: list[str]
) -> tuple[list[Raw], np.ndarray | None]:
    names = list(held)
    ends = [held[names[k]] for k in _by_name(names, origin, report)]
    sides, weight = ends[:2], ends[2].values if len(ends) == 3 and ends[2].labels is None else None
    if any(end.values.ndim != 1 or (end.labels is not None and (ids is None or k == 2)) for k, end in enumerate(ends)):
        raise DataError(f"{origin}: source, target and weight must be columns of numbers{_names_need_ids(ids)}")
    return sides, weight


def _network(
    sides: list[Raw],
    weight: np.ndarray | None,
    line: Callable[[int], int] | None,
    origin: str,
    stem: str,
    agents: int,
    ids: Ids | None,
    report: list[str],
) -> Network:
    lengths = [len(side.values) for side in sides] + ([] if weight is None else [len(weight)])
    if len(set(lengths)) != 1:
        raise DataError(f"{origin}: source, target and weight have the lengths {lengths}")
    where = Columns(None, None, origin=origin, line=line)
    source, target = (_rows(where, side, raw, agents, ids, report) for side, raw in zip(SIDES, sides, strict=True))
    weights = None if weight is None else read_weights(where, weight)
    report += edge_facts(source, target, agents).sentences(stem)
    return Network(source, target, weights, list(dict.fromkeys(report)))


def _names_need_ids(ids: Ids | None) -> str:
    if ids:
        return ""
    return "; ids that are names need a column 'id' beside the agents' attributes: rename the column that holds them"


def _npz(path: Path, origin: str) -> dict[str, Raw]:
    arrays = read_npz(path, origin)
    return {
        name: strings([str(item) for item in values.astype(str)])
        if values.dtype.kind in "SU" and values.ndim == 1
        else Raw(values)
        for name, values in arrays.items()
    }


def _text(
    path: Path, origin: str, ids: Ids | None, report: list[str]
) -> tuple[list[Raw], np.ndarray | None, Callable[[int], int] | None]:
    text = open_text(content(path, origin, "CSV"), origin)
    ends = text.first[:2]
    cells_of_first = [*ends, *decimal_commas(text.first[2:], text.separator)]
    names = ids is not None and ids.texts
    if ids is not None and ids.texts:
        data = any(ids.holds(cell) for cell in ends) or any(_number(cell) for cell in cells_of_first[2:])
        header = bool(ends) and not data
    else:
        header = not all(is_number(cell) for cell in cells_of_first)
        if header and any(map(_number, ends)):
            wrong = next(cell for cell in text.first if not is_number(cell))
            raise DataError(
                f"{origin}, line {text.number}: {wrong[:40]!r} is not a number, and numbers beside it cannot be names "
                f"of columns{_names_need_ids(ids)}"
            )
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
        if len(picked) == 3:
            report.append(f"{origin}: no header line; the third column is taken as weight.")
    if not picked:
        raise DataError(f"{origin} is empty; expected source,target a line")
    third = picked[2] if len(picked) == 3 else None
    if names:
        cells, line = texts(text, header, picked[:2])
        sides = [categorical(*column) for column in cells]
        weight = None
        if third is not None and sides[0].values.size:
            weight = _numbers(text, header, [third], third, ids)[0][0]
    else:
        found, line = _numbers(text, header, picked, third, ids)
        sides, weight = [Raw(side) for side in found[:2]], found[2] if len(found) == 3 else None
    if not sides[0].values.size:
        raise DataError(f"{origin} is empty; expected source,target a line")
    return sides, weight, line


def _numbers(
    text: Text, header: bool, picked: list[int], weight: int | None, ids: Ids | None
) -> tuple[list[np.ndarray], Callable[[int], int]]:
    """The picked columns; where one holds words, the message says which columns are meant."""
    try:
        return columns(text, header, picked, weight)
    except DataError as error:
        if "not a number" not in str(error):
            raise
        hint = _names_need_ids(ids)
        if header and weight is not None and str(error).endswith(f"of column {text.first[weight][:40]!r}"):
            hint = ", the column of weights; if it holds none, remove it, or name the others source and target"
        raise DataError(f"{error}{hint}") from None


def _number(cell: str) -> bool:
    return is_number(cell) and not is_missing(cell)


def _by_name(names: list[str], origin: str, report: list[str]) -> list[int]:
    """Places of source, target and weight: by their names where these are known, else as they stand."""
    lowered = [re.sub(r"[\s_.\-]|id$", "", name.strip().lower()) for name in names]
    found = [
        next((k for k, name in enumerate(lowered) if name in known), None) for known in (_SOURCES, _TARGETS, _WEIGHTS)
    ]
    if found[0] is not None and found[1] is not None:
        picked = [k for k in found if k is not None]
        rest = [name for k, name in enumerate(names) if k not in picked and name.strip().lower() not in INDEX]
        if rest:
            hint = "" if len(picked) == 3 else "; a column of weights is called 'weight'"
            report.append(f"{origin}: columns left out: {', '.join(map(repr, rest))}{hint}.")
        return picked
    picked = [k for k, name in enumerate(names) if name.strip().lower() not in INDEX]
    if len(picked) not in (2, 3) or found[0] is not None or found[1] is not None:
        raise DataError(f"{origin} has columns {', '.join(names)[:200]}; expected source, target and perhaps weight")
    chosen = ", ".join(names[k] for k in picked)
    report.append(f"{origin}: columns {chosen} taken as source, target{', weight' if len(picked) == 3 else ''}.")
    return picked


def _rows(where: Columns, side: str, raw: Raw, agents: int, ids: Ids | None, report: list[str]) -> np.ndarray:
    """The row of the agent at one end of each edge, int32."""
    if ids is not None:
        return ids.rows(where, side, raw, report).astype(np.int32)
    rows = whole_numbers(where, side, raw.values, report)
    check_range(where, side, rows, agents)
    return rows.astype(np.int32)
