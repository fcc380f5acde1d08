"""File formats of contacts: text, Parquet, npz. Hands over raw columns; `_readers` checks what they mean.

Nothing is unpickled, and whatever a parser raises on foreign bytes ends as a DataError that names the file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from denizen.errors import DataError, nearest, need
from denizen.space._csv import columns, is_number, open_text
from denizen.space._files import check_size, content, reading
from denizen.space._npz import npz_names, read_npz

TEXT = (".csv", ".tsv", ".txt", ".edges")


@dataclass(frozen=True, eq=False)
class Columns:
    """Raw columns of contacts and where they came from.

    Attributes:
        source: `[edges]`, anything array-like.
        target: `[edges]`, anything array-like.
        weight: `[edges]` or None.
        size: number of agents where the format knows it.
        origin: name of the file or argument, for messages.
        report: what the format had to take for granted.
        line: row to line of a text file; None where rows are counted from 0.
    """

    source: Any
    target: Any
    weight: Any = None
    size: int | None = None
    origin: str = "edges"
    report: tuple[str, ...] = ()
    line: Callable[[int], int] | None = None

    def place(self, row: int) -> str:
        """Where a row stands."""
        return f"row {row}" if self.line is None else f"line {self.line(row)}"

    def error(self, name: str, wrong: np.ndarray, values: np.ndarray, expected: str) -> DataError:
        """The error for the first of the rows `wrong`."""
        row = int(wrong[0])
        count = "" if wrong.size == 1 else f" ({wrong.size} such rows)"
        return DataError(f"{self.origin}, {self.place(row)}: {name}={values[row]!s}: {expected}{count}")


def load(path: Path, source: str, target: str, weight: str | None) -> Columns:
    """Read the columns of a file by its suffix; see `denizen.space.read_edges`."""
    suffix = path.suffix.lower()
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"{path}: {what}; expected a file of contacts ({', '.join(TEXT)}, .parquet or .npz)")
    names = [name for name in (source, target, weight) if name is not None]
    if suffix in TEXT:
        return _text(path, names)
    if suffix == ".parquet":
        return _parquet(path, names)
    if suffix == ".npz":
        return _npz(path, names)
    raise DataError(f"{path}: unknown suffix {path.suffix!r}; expected {', '.join(TEXT)}, .parquet or .npz")


def _pick(path: Path, names: list[str], present: list[str]) -> None:
    """Refuse names that are not there."""
    for name in names:
        if name not in present:
            raise DataError(f"{path}: no column {name!r}; {nearest(name, present)}; pass source=, target=, weight=")


def _text(path: Path, names: list[str]) -> Columns:
    """Columns of a text file."""
    text = open_text(content(path, str(path), "text"), str(path))
    report: tuple[str, ...] = ()
    numbers = all(is_number(cell) for cell in text.first[: len(names)])
    header = bool(text.first) and (set(names) <= set(text.first) or not numbers)
    if header:
        _pick(path, names, text.first)
        picked = [text.first.index(name) for name in names]
    else:
        picked = list(range(len(names)))
        if 0 < len(text.first) < len(names):
            raise DataError(
                f"{path}, line {text.number}: {len(text.first)} field(s), expected at least {len(names)} numbers, "
                f"separated by commas, semicolons, tabs or blanks"
            )
        if text.first:
            report = (f"{path}: no header line; columns 1 to {len(names)} read as {', '.join(names)}.",)
    found, line = columns(text, header, picked)
    return Columns(found[0], found[1], found[2] if len(names) == 3 else None, None, str(path), report, line)


def _parquet(path: Path, names: list[str]) -> Columns:
    """Columns of a Parquet file.

    A deliberately damaged file can make polars ask for more memory than there is, which ends the process: nothing in
    Python can catch that. Ordinary damage (truncation, another format) ends in a DataError.
    """
    polars = need("polars", "tables", "read contacts from Parquet")
    chosen = list(dict.fromkeys(names))
    with reading(str(path), "Parquet"):
        _pick(path, names, list(polars.read_parquet_schema(path)))
        rows = polars.scan_parquet(path, glob=False).select(polars.len()).collect().item()
        check_size(rows, len(chosen), path.stat().st_size, str(path))
        frame = polars.read_parquet(path, columns=chosen, glob=False)
    for name in frame.columns:
        missing = frame[name].is_null().arg_true()
        if len(missing):
            raise DataError(
                f"{path}, row {missing[0]}: {name} is missing ({len(missing)} such rows); complete or remove them"
            )
    with reading(str(path), "Parquet"):
        found = [frame[name].to_numpy() for name in names]
    return Columns(*found, origin=str(path))


def _npz(path: Path, names: list[str]) -> Columns:
    """Columns of an npz file, by name or as scipy's sparse format."""
    origin, keys = str(path), npz_names(path, str(path))
    if "format" in keys and "shape" in keys:
        with reading(origin, "sparse npz"):
            return _sparse_npz(origin, read_npz(path, origin))
    _pick(path, names, keys)
    arrays = read_npz(path, origin, lambda name: name in names)
    found: list[Any] = [arrays[name] for name in names]
    return Columns(*found, origin=origin)


def _sparse_npz(origin: str, arrays: dict[str, np.ndarray]) -> Columns:
    """The contacts of a matrix as `scipy.sparse.save_npz` writes it, read without scipy."""
    kind = arrays["format"].item()
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    if kind == "coo":
        row, column = (arrays["row"], arrays["col"]) if "row" in arrays else arrays["coords"]
    elif kind in ("csr", "csc"):
        pointer, row = arrays["indptr"], arrays["indices"]
        steps = np.diff(pointer)
        if pointer[0] != 0 or (steps < 0).any() or pointer[-1] != row.size:
            raise DataError(f"{origin}: indptr does not fit the {row.size} indices; write the matrix again")
        major = np.repeat(np.arange(steps.size), steps)
        row, column = (major, row) if kind == "csr" else (row, major)
    else:
        raise DataError(
            f"{origin}: a sparse matrix in format {kind[:20]!r}; expected csr, csc or coo: save matrix.tocsr()"
        )
    return sparse_columns(origin, tuple(arrays["shape"].tolist()), row, column, arrays["data"])


def sparse_columns(
    origin: str, shape: tuple[int, ...], row: np.ndarray, column: np.ndarray, data: np.ndarray
) -> Columns:
    """The entries of a square matrix as contacts row → column; weights unless all entries are one."""
    if len(shape) != 2 or shape[0] != shape[1]:
        raise DataError(f"{origin}: a matrix of shape {shape}; contacts need a square one, agents by agents")
    if data.dtype.kind not in "biuf" or not row.shape == column.shape == data.shape:
        raise DataError(
            f"{origin}: entries of type {data.dtype} and shape {data.shape}; expected one number for each index"
        )
    report = []
    zeros = data == 0
    if zeros.any():
        report.append(f"{origin}: {int(zeros.sum())} stored zeros are no contacts and were left out.")
        row, column, data = row[~zeros], column[~zeros], data[~zeros]
    weight = None if (data == 1).all() else data
    return Columns(row, column, weight, shape[0], origin, tuple(report))
