"""File formats of contacts: text, Parquet, npz. Hands over raw columns; `_readers` checks what they mean.

Nothing is unpickled, and whatever a parser raises on foreign bytes ends as a DataError that names the file.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from denizen.errors import DataError, InputError, nearest, need
from denizen.space.files import (
    Columns,
    check_size,
    columns,
    content,
    is_number,
    npz_names,
    open_text,
    read_npz,
    reading,
)

TEXT = (".csv", ".tsv", ".txt", ".edges")


def load(path: Path, source: str, target: str, weight: str | bool | None) -> Columns:
    """Read the columns of a file by its suffix; see `denizen.space.read_edges`."""
    suffix = path.suffix.lower()
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"{path}: {what}; expected a file of contacts ({', '.join(TEXT)}, .parquet or .npz)")
    for argument, name in (("source", source), ("target", target), ("weight", weight)):
        if not isinstance(name, str) and (argument != "weight" or not (name is None or isinstance(name, bool))):
            raise InputError(f"read_edges: {argument}={name!r}, expected the name of a column")
    read = _text if suffix in TEXT else {".parquet": _parquet, ".npz": _npz}.get(suffix)
    if read is None:
        raise DataError(f"{path}: unknown suffix {path.suffix!r}; expected {', '.join(TEXT)}, .parquet or .npz")
    return read(path, [source, target], weight)


def left_out(origin: str, what: str, names: Sequence[str]) -> tuple[str, ...]:
    """A sentence on columns that are not read, if there are any."""
    if not names:
        return ()
    listed = ", ".join(map(repr, names))
    return (f"{origin}: {what}{'s' * (len(names) > 1)} {listed} left out; weight='NAME' takes one as weights.",)


def _pick(path: Path, ends: list[str], weight: str | bool | None, present: list[str]) -> tuple[list[str], Columns]:
    """The names to read, and columns without content that report the rest; refuses names that are not there."""
    if weight is True:
        weight = next((name for name in present if name.lower() == "weight" and name not in ends), None)
    names = [*ends, weight] if isinstance(weight, str) else ends
    for name in names:
        if name not in present:
            raise DataError(f"{path}: no column {name!r}; {nearest(name, present)}; pass source=, target=, weight=")
        if present.count(name) > 1:
            raise DataError(f"{path}: two columns are called {name!r}; name each column once")
    report = left_out(str(path), "column", [name for name in present if name not in names and name])
    return names, Columns(None, None, origin=str(path), report=report)


def _filled(empty: Columns, found: Sequence[Any], line: Callable[[int], int] | None = None) -> Columns:
    return replace(empty, source=found[0], target=found[1], weight=found[2] if len(found) == 3 else None, line=line)


def _text(path: Path, ends: list[str], weight: str | bool | None) -> Columns:
    """Columns of a text file."""
    text = open_text(content(path, str(path), "text"), str(path))
    third = [weight] if isinstance(weight, str) else []
    width = len(ends) + len(third)
    numbers = all(is_number(cell) for cell in text.first[:width])
    header = bool(text.first) and ({*ends, *third} <= set(text.first) or not numbers)
    if header:
        names, empty = _pick(path, ends, weight, text.first)
        found, line = columns(text, True, [text.first.index(name) for name in names])
        return _filled(empty, found, line)
    if 0 < len(text.first) < width:
        raise DataError(
            f"{path}, line {text.number}: {len(text.first)} field(s), expected at least {width} numbers, "
            f"separated by commas, semicolons, tabs or blanks"
        )
    if weight is True and len(text.first) == 3 and is_number(text.first[2]) and text.first[2].strip():
        raise DataError(
            f"{path}: three columns of numbers and no header line; pass weight='weight' to take the third as weights, "
            f"or weight=None to leave it out"
        )
    report: tuple[str, ...] = ()
    if text.first:
        report = (f"{path}: no header line; columns 1 to {width} read as {', '.join([*ends, *third])}.",)
        report += left_out(str(path), "column", [str(k + 1) for k in range(width, len(text.first))])
    found, line = columns(text, False, list(range(width)))
    return _filled(Columns(None, None, origin=str(path), report=report), found, line)


def _parquet(path: Path, ends: list[str], weight: str | bool | None) -> Columns:
    """Columns of a Parquet file.

    A deliberately damaged file can make polars ask for more memory than there is, which ends the process: nothing in
    Python can catch that. Ordinary damage (truncation, another format) ends in a DataError.
    """
    polars = need("polars", "tables", "read contacts from Parquet")
    with reading(str(path), "Parquet"):
        names, empty = _pick(path, ends, weight, list(polars.read_parquet_schema(path)))
        chosen = list(dict.fromkeys(names))
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
    return _filled(empty, found)


def _npz(path: Path, ends: list[str], weight: str | bool | None) -> Columns:
    """Columns of an npz file, by name or as scipy's sparse format."""
    origin, keys = str(path), npz_names(path, str(path))
    if "format" in keys and "shape" in keys:
        with reading(origin, "sparse npz"):
            return _sparse_npz(origin, read_npz(path, origin))
    names, empty = _pick(path, ends, weight, keys)
    arrays = read_npz(path, origin, lambda name: name in names)
    found: list[Any] = [arrays[name] for name in names]
    return _filled(empty, found)


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
