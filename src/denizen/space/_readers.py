"""Contacts from elsewhere: arrays, scipy, networkx, and files in CSV, Parquet or npz.

Everything ends in `checked`, which refuses what cannot be meant and reports what it changes. The file formats
themselves are in `_formats`. Parquet needs polars (extra "tables"), which also reads text faster.
"""

from collections.abc import Hashable
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

import numpy as np

from denizen._arguments import one_of, whole
from denizen.errors import DataError, InputError
from denizen.space._edges import INT32_MAX, EdgeList, index_dtype
from denizen.space._formats import left_out, load, sparse_columns
from denizen.space.files import MAX_AGENTS, Columns, check_range, read_weights, whole_numbers
from denizen.space.generators._pairs import drop_repeats, pair_code, repeats

Repeats = Literal["keep", "drop", "error"]


def read_edges(
    path: str | Path,
    *,
    source: str = "source",
    target: str = "target",
    weight: str | bool | None = True,
    num_agents: int | None = None,
    directed: bool = True,
    self_loops: Repeats = "drop",
    duplicates: Repeats = "keep",
) -> EdgeList:
    """Read contacts from a file.

    - `.csv`, `.tsv`, `.txt`, `.edges`: one contact a line, separated by comma, semicolon, tab or spaces; lines that
      start with `#` and blank lines are skipped. A first line that is not all numbers is a header, and columns go by
      name; without one the first two (with the name of a weight, three) columns are taken.
    - `.parquet`: columns by name.
    - `.npz`: arrays by name, or a matrix written by `scipy.sparse.save_npz` (square; entry [i, j] is the weight of
      i → j; entries that are all one give no weights).

    Args:
        path: the file.
        source: column of the acting agents.
        target: column of the agents acted upon.
        weight: column of the weights; True takes the column `weight` where there is one, None or
            False none. Other columns are left out, and the report names them. Three columns of numbers without a
            header are refused unless this says what the third is.
        num_agents: number of agents; None takes the highest id + 1 (a sparse matrix knows its size).
        directed: False where each contact is written once and holds in both directions.
        self_loops: what to do with contacts of an agent with itself: "drop", "keep" or "error".
        duplicates: what to do with repeated contacts: "keep", "drop" (the first stays) or "error".

    Returns:
        The contacts in the order of the file; `report` says what was dropped, taken for granted or is notable.

    Raises:
        DataError: no such file, another format, missing columns, or content that `from_arrays` refuses; names the
            file and the line (text files, counted from 1) or row (others, counted from 0).
        StorageError: the file cannot be read.
        MissingExtra: Parquet without polars.
    """
    path = Path(path)
    columns = load(path, source, target, weight)
    if columns.size is not None and num_agents not in (None, columns.size):
        raise DataError(f"{path}: a matrix over {columns.size} agents, but num_agents={num_agents}; leave it out")
    where = columns if num_agents is None else replace(columns, size=num_agents)
    return checked(where, directed, self_loops, duplicates)


def from_arrays(
    source: Any,
    target: Any,
    num_agents: int | None = None,
    *,
    weight: Any = None,
    directed: bool = True,
    self_loops: Repeats = "drop",
    duplicates: Repeats = "keep",
) -> EdgeList:
    """Check foreign edge arrays and bring them into the narrow form of an `EdgeList`.

    Args:
        source: `[edges]` ids, whole numbers in 0 … num_agents - 1 (whole floats are converted and reported): an array,
            a list or a CPU tensor.
        target: `[edges]` ids.
        num_agents: number of agents; None takes the highest id + 1 and reports it.
        weight: `[edges]` finite, non-negative numbers, or None.
        directed: False where each contact is written once and holds in both directions.
        self_loops: "drop", "keep" or "error".
        duplicates: "keep", "drop" (the first of equal contacts stays) or "error". With `directed` False the contact
            a, b and the contact b, a are the same.

    Returns:
        The edges in their order; `report` says what was changed or is worth knowing.

    Raises:
        DataError: ids that are no whole numbers or out of range, weights that are NaN, infinite or negative, unequal
            lengths, nothing to infer the number of agents from, or what `self_loops` or `duplicates` refuse.
        InputError: another choice for these two, or an impossible `num_agents`.
    """
    return checked(Columns(source, target, weight, num_agents), directed, self_loops, duplicates)


def from_scipy(
    matrix: Any, *, directed: bool = True, self_loops: Repeats = "drop", duplicates: Repeats = "keep"
) -> EdgeList:
    """Contacts from a scipy sparse matrix or array: entry [i, j] is the weight of i → j.

    A symmetric matrix holds both directions: leave `directed` True. False is for contacts stored in one triangle only.
    Stored zeros are no contacts; entries that are all one, or boolean, give no weights.

    Raises:
        InputError: not a scipy sparse matrix.
        DataError: not square, or entries that are not valid weights.
    """
    if not hasattr(matrix, "tocoo"):
        raise InputError(
            f"matrix: expected a scipy sparse matrix, got {type(matrix).__name__}; see from_arrays for arrays"
        )
    coo = matrix.tocoo()
    columns = sparse_columns("matrix", coo.shape, coo.row, coo.col, coo.data)
    return checked(columns, directed, self_loops, duplicates)


def from_networkx(
    graph: Any, *, weight: str | bool | None = True, self_loops: Repeats = "drop", duplicates: Repeats = "keep"
) -> tuple[EdgeList, list[Hashable]]:
    """Contacts from a networkx graph, and the label of each agent: agent k is node `labels[k]`.

    Nodes that are all integers are numbered in ascending order (so 0 … n - 1 keep their numbers), others in the order
    in which the graph holds them. Undirected graphs give an undirected list; parallel edges count as duplicates.

    Args:
        graph: a networkx graph of any of the four kinds.
        weight: edge attribute to take as weight; True takes `weight`, networkx's own name for it, where edges have
            one (weights that are all one give none, as with `from_scipy`); None or False takes none. Other attributes
            of edges are left out, and the report names them.
        self_loops: "drop", "keep" or "error".
        duplicates: "keep", "drop" or "error".

    Raises:
        InputError: not a networkx graph.
        DataError: an edge without the attribute where others have it, or weights that are not valid.
    """
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise InputError(f"graph: expected a networkx graph, got {type(graph).__name__}")
    labels = list(graph.nodes)
    if all(isinstance(label, Integral) for label in labels):  # NumPy's too
        labels.sort()
    ids = {label: number for number, label in enumerate(labels)}
    found = list(graph.edges(data=True))
    ends = np.array([(ids[a], ids[b]) for a, b, _ in found], np.int64).reshape(-1, 2)
    held = {name for _, _, data in found for name in data}
    name = ("weight" if "weight" in held else None) if weight is True else weight or None
    weights = None if name is None else [data.get(name) for _, _, data in found]
    if weights is not None and None in weights:
        a, b, _ = found[weights.index(None)]
        raise DataError(f"graph: edge {a!r}, {b!r} has no attribute {name!r}; set it on every edge or pass weight=None")
    if weight is True and weights is not None and all(isinstance(w, Real) and w == 1 for w in weights):
        weights = None
    report = left_out("graph", "edge attribute", sorted(map(str, held - {name})))
    columns = Columns(ends[:, 0], ends[:, 1], weights, len(labels), "graph", report)
    return checked(columns, graph.is_directed(), self_loops, duplicates), labels


def checked(where: Columns, directed: bool, self_loops: Repeats, duplicates: Repeats, told: bool = True) -> EdgeList:
    """The edge list of raw columns; see `from_arrays`.

    Args:
        where: the columns.
        directed: see there, as the next two.
        self_loops: what to do about them.
        duplicates: what to do about them; where they are kept, they are looked for only to be reported.
        told: whether anybody reads the report.
    """
    for name, choice in (("self_loops", self_loops), ("duplicates", duplicates)):
        one_of(where.origin, name, choice, ("keep", "drop", "error"))
    report: list[str] = list(where.report)
    start, end = (
        whole_numbers(where, name, array, report)
        for name, array in (("source", where.source), ("target", where.target))
    )
    weights = None if where.weight is None else read_weights(where, where.weight)
    lengths = [array.size for array in (start, end, weights) if array is not None]
    if len(set(lengths)) > 1:
        raise DataError(f"{where.origin}: source, target and weight must have one length, got {lengths}")
    num_agents = _size(where, start, end, report)
    check_range(where, "source", start, num_agents)
    check_range(where, "target", end, num_agents)
    start, end = (array.astype(index_dtype(num_agents), copy=False) for array in (start, end))
    loops = np.flatnonzero(start == end)
    dropped = _decide(where, "self-loop", self_loops, loops, start, end, report)
    again = np.empty(0, np.int64)
    if told or duplicates != "keep":
        again = _repeated(start, end, num_agents, directed, report, where)
    again = np.setdiff1d(again, dropped, assume_unique=True) if dropped.size else again
    dropped = np.concatenate([dropped, _decide(where, "repeated contact", duplicates, again, start, end, report)])
    if dropped.size:
        start, end = np.delete(start, dropped), np.delete(end, dropped)
        weights = None if weights is None else np.delete(weights, dropped)
    return EdgeList(num_agents, start, end, weights, directed, tuple(report))


def _size(where: Columns, start: np.ndarray, end: np.ndarray, report: list[str]) -> int:
    """The number of agents, given or inferred."""
    if where.size is not None:
        return whole(where.origin, "num_agents", where.size, low=0, high=MAX_AGENTS)
    if start.size == 0:
        raise DataError(f"{where.origin}: no contacts, so the number of agents is unknown; pass num_agents")
    size = max(int(start.max()), int(end.max())) + 1
    if size > INT32_MAX:
        raise DataError(
            f"{where.origin}: the highest id is {size - 1}; number the agents from 0, or pass num_agents if there are "
            f"that many"
        )
    report.append(f"{where.origin}: num_agents taken as the highest id + 1, {size}.")
    return max(size, 1)


def _decide(
    where: Columns, kind: str, choice: Repeats, rows: np.ndarray, start: np.ndarray, end: np.ndarray, report: list[str]
) -> np.ndarray:
    """Refuse or report the given rows; hands back those to drop."""
    if rows.size == 0:
        return rows
    if choice == "error":
        option, row = "self_loops" if kind == "self-loop" else "duplicates", int(rows[0])
        raise DataError(
            f"{where.origin}, {where.place(row)}: {kind} {start[row]} → {end[row]} ({rows.size} in all); remove them "
            f"or pass {option}='drop' or 'keep'"
        )
    verb = "dropped" if choice == "drop" else "kept"
    report.append(f"{where.origin}: {rows.size} {kind}{'s' * (rows.size != 1)} {verb}.")
    return rows if choice == "drop" else rows[:0]


def _repeated(
    start: np.ndarray, end: np.ndarray, num_agents: int, directed: bool, report: list[str], where: Columns
) -> np.ndarray:
    """Rows that repeat an earlier contact; for directed edges also reports how many pairs occur both ways."""
    if not directed:
        return repeats(pair_code(start, end, num_agents))
    code = start.astype(np.int64)
    code *= num_agents
    code += end
    again = repeats(code)
    if start.size:
        pairs = drop_repeats(np.sort(pair_code(start, end, num_agents))).size
        both = start.size - again.size - pairs
        pairs -= np.unique(start[start == end]).size  # a self-loop is no pair
        hint = "" if both else "; if each contact is written once, pass directed=False"
        report.append(f"{where.origin}: {both} of {pairs} pairs of agents occur in both directions{hint}.")
    return again
