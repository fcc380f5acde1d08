"""File formats of contacts: text, Parquet, npz. Hands over raw columns; `_readers` checks what they mean.

Nothing is unpickled, and whatever a parser raises on foreign bytes ends as a DataError that names the file.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from denizen.errors import DataError, nearest, need
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
    """Columns of a text file; numbers are parsed by polars."""
    polars = need("polars", "tables", "read contacts from text files")
    raw = content(path, str(path), "text").removeprefix(b"\xef\xbb\xbf")
    first, start, stop = _first_content(raw)
    separator, fields = _fields(raw[start:stop])
    labels = [field.decode("utf-8", "replace") for field in fields]
    report: tuple[str, ...] = ()
    if set(names) <= set(labels) or not all(_is_number(field) for field in fields[: len(names)]):
        _pick(path, names, labels)
        picked = [labels.index(name) for name in names]
        first, start = first + 1, min(stop + 1, len(raw))
    else:
        picked = list(range(len(names)))
        if len(fields) < len(names) and raw[start:stop]:
            raise DataError(f"{path}, line {first}: {len(fields)} field(s), expected at least {len(names)} numbers")
        report = (f"{path}: no header line; columns 1 to {len(names)} read as {', '.join(names)}.",) * bool(
            stop - start
        )
    body = raw[start:]
    if separator == b" ":
        body = re.sub(rb"(?m)^ | (?=\r?$)", b"", re.sub(rb"[ \t]+", b" ", body))

    def line(row: int) -> int:
        lines = (number for number, text in enumerate(body.split(b"\n"), first) if not text.startswith(b"#"))
        return next((number for k, number in enumerate(lines) if k == row), first + row)

    if not body.strip():
        empty = np.empty(0, np.int64)
        return Columns(empty, empty, empty if len(names) == 3 else None, None, str(path), report, line)
    frame, rows = _frame(polars, path, body, separator.decode(), len(fields), picked, line)
    columns = [frame[f"c{index}"].to_numpy() for index in picked]
    weight = columns[2] if len(names) == 3 else None
    return Columns(columns[0], columns[1], weight, None, str(path), report, lambda row: line(int(rows[row])))


def _first_content(raw: bytes) -> tuple[int, int, int]:
    """Number (from 1), start and end of the first line that is neither blank nor a comment."""
    number, start = 1, 0
    while start < len(raw):
        stop = raw.find(b"\n", start)
        stop = len(raw) if stop < 0 else stop
        text = raw[start:stop].strip()
        if text and not text.startswith(b"#"):
            return number, start, stop
        number, start = number + 1, stop + 1
    return number, len(raw), len(raw)


def _fields(text: bytes) -> tuple[bytes, list[bytes]]:
    """The separator of a line and its fields without quotes."""
    separator = next((mark for mark in (b",", b";", b"\t") if mark in text), b" ")
    parts = text.split() if separator == b" " else text.strip(b"\r\n").split(separator)
    return separator, [part.strip().strip(b'"') for part in parts]


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return field == b""  # a missing value, not a name
    return True


def _frame(
    polars: Any, path: Path, body: bytes, separator: str, width: int, picked: list[int], line: Callable[[int], int]
) -> tuple[Any, np.ndarray]:
    """The picked columns as numbers and the row of each; blank rows are left out."""
    kinds = [polars.Float64 if k == 2 else polars.Int64 for k in range(len(picked))]

    def parse(types: list[Any]) -> Any:
        schema: dict[str, Any] = {f"c{index}": polars.String for index in range(width)}
        schema.update((f"c{index}", kind) for index, kind in zip(picked, types, strict=True))
        with reading(str(path), "text"):
            frame = polars.read_csv(body, has_header=False, separator=separator, schema=schema, comment_prefix="#")
            return frame.select(f"c{index}" for index in dict.fromkeys(picked))

    try:
        frame = parse(kinds)
    except DataError:
        # Again, slowly, to name the line; whole numbers may also be written as floats.
        words = parse([polars.String] * len(picked))
        frame = words.select(polars.all().str.strip_chars().cast(polars.Float64, strict=False))
        for name in frame.columns:
            wrong = (frame[name].is_null() & words[name].is_not_null()).arg_true()
            if len(wrong):
                raise DataError(f"{path}, line {line(wrong[0])}: {words[name][wrong[0]]!r} is not a number") from None
    rows = np.flatnonzero(~frame.select(polars.all_horizontal(polars.all().is_null())).to_series().to_numpy())
    if rows.size < frame.height:
        frame = frame[rows]
    for name in frame.columns:
        missing = frame[name].is_null().arg_true()
        if len(missing):
            place = line(int(rows[missing[0]]))
            raise DataError(
                f"{path}, line {place}: a value is missing ({len(missing)} such rows); complete or remove them"
            )
    return frame, rows


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
        columns = [frame[name].to_numpy() for name in names]
    return Columns(*columns, origin=str(path))


def _npz(path: Path, names: list[str]) -> Columns:
    """Columns of an npz file, by name or as scipy's sparse format."""
    origin, keys = str(path), npz_names(path, str(path))
    if "format" in keys and "shape" in keys:
        with reading(origin, "sparse npz"):
            return _sparse_npz(origin, read_npz(path, origin))
    _pick(path, names, keys)
    arrays = read_npz(path, origin, lambda name: name in names)
    columns: list[Any] = [arrays[name] for name in names]
    return Columns(*columns, origin=origin)


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
