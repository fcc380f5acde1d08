"""CSV files of numbers: a fast reader for clean files and a careful one for all others.

The careful reader defines what is accepted: UTF-8 with or without a byte-order mark, any line end, quotes, blanks
around a number, one header line (the first line is one if any of its cells is not a number), blank lines at the
end. It names the line of every fault. The fast reader (polars where installed, else numpy) must agree with it, and
whatever it does not take goes to the careful one.
"""

import csv
import importlib.util
import io
import re
from dataclasses import dataclass

import numpy as np

from denizen.errors import DataError
from denizen.space._files import reading

_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?\s*", re.ASCII)
_MISSING = ("", "nan", "na", "n/a", "null", "none", "inf", "-inf", "+inf", "infinity")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, eq=False)
class Numbers:
    """The content of a CSV file of numbers: `columns` of equal length, int64 where all cells are integers."""

    columns: list[np.ndarray]
    header: list[str] | None

    def line(self, row: int) -> int:
        """The line of the file (from 1) that row `row` (from 0) stands in."""
        return row + 1 + (self.header is not None)


def is_number(cell: str) -> bool:
    """Whether a cell is written as a number or as a missing one; used to tell a header from data."""
    return _NUMBER.fullmatch(cell) is not None or cell.strip().lower() in _MISSING


def first_cells(data: bytes, origin: str) -> list[str]:
    """The cells of the first line."""
    with reading(origin, "CSV"):
        head = data[:65536].removeprefix(_BOM).decode("utf-8", "replace")
        return next(csv.reader(io.StringIO(head, newline="")), [])


def numbers(data: bytes, origin: str, widths: tuple[int, ...]) -> Numbers:
    """Read a CSV file of numbers.

    Args:
        data: the file's bytes.
        origin: the file's name, for messages.
        widths: allowed numbers of columns, for example `(2, 3)` for edges with or without a weight.

    Raises:
        DataError: anything but a table of finite numbers; the message names the line.
    """
    data = data.removeprefix(_BOM)
    first = first_cells(data, origin)
    header = first if first and not all(is_number(cell) for cell in first) else None
    if first and len(first) not in widths:
        expected = " or ".join(str(width) for width in widths)
        raise DataError(f"{origin}: line 1 has {len(first)} columns; expected {expected}")
    if first and b'"' not in data and not _odd_line_ends(data):
        columns = _fast(data, len(first), header is not None)
        if columns is not None:
            return Numbers(columns, header)
    with reading(origin, "CSV"):
        return _careful(data, origin, header, len(first))


def _odd_line_ends(data: bytes) -> bool:
    return b"\r" in data and data.count(b"\r") != data.count(b"\r\n")


def _fast(data: bytes, width: int, header: bool) -> list[np.ndarray] | None:
    """The columns of a clean file, or None if the file is not clean."""
    rows = data.count(b"\n") + (not data.endswith(b"\n")) - header
    if rows <= 0:
        return None
    read = _with_polars if importlib.util.find_spec("polars") else _with_numpy
    for kind in (np.int64, np.float64):
        columns = read(data, width, header, kind)
        if columns is not None and all(len(column) == rows and np.isfinite(column).all() for column in columns):
            return columns
    return None


def _with_polars(data: bytes, width: int, header: bool, kind: type) -> list[np.ndarray] | None:
    import polars

    schema = {f"c{k}": polars.Int64 if kind is np.int64 else polars.Float64 for k in range(width)}
    try:
        with reading("", "CSV"):
            table = polars.read_csv(io.BytesIO(data), has_header=False, skip_lines=int(header), schema=schema)
    except DataError:
        return None
    if table.width != width or any(column.null_count() for column in table):
        return None
    return [column.to_numpy() for column in table]


def _with_numpy(data: bytes, width: int, header: bool, kind: type) -> list[np.ndarray] | None:
    if (data[data.find(b"\n") + 1 :] if header else data).isspace():
        return None
    try:
        table = np.loadtxt(
            io.BytesIO(data), dtype=kind, delimiter=",", comments=None, skiprows=int(header), ndmin=2, encoding="utf-8"
        )
    except (ValueError, OverflowError, UserWarning):  # the warning says that there are no data
        return None
    return [np.ascontiguousarray(column) for column in table.T] if table.shape[1] == width else None


def _careful(data: bytes, origin: str, header: list[str] | None, width: int) -> Numbers:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{origin} is not UTF-8 text: byte {data[error.start]:#04x} at position {error.start}"
        ) from None
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    while rows and not any(cell.strip() for cell in rows[-1]):
        rows.pop()
    if not rows or (header is not None and len(rows) == 1):
        raise DataError(f"{origin} is empty; expected one row a line")
    start = int(header is not None)
    cells: list[list[str]] = [[] for _ in range(width)]
    for line, row in enumerate(rows[start:], start=start + 1):
        if len(row) != width:
            what = "is empty" if not row else f"has {len(row)} columns"
            raise DataError(f"{origin}: line {line} {what}; the first line has {width} columns")
        for column, cell in zip(cells, row, strict=True):
            if _NUMBER.fullmatch(cell) is None:
                what = "a missing or infinite value" if cell.strip().lower() in _MISSING else "not a number"
                raise DataError(f"{origin}: line {line} holds {cell[:40]!r}, {what}; expected a finite number")
            column.append(cell)
    return Numbers([_array(column, origin) for column in cells], header)


def _array(cells: list[str], origin: str) -> np.ndarray:
    try:
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    except OverflowError:
        raise DataError(f"{origin} holds an integer beyond 64 bits") from None
    except ValueError:
        values = np.array([float(cell) for cell in cells])
    if not np.isfinite(values).all():
        raise DataError(f"{origin} holds a number beyond the range of a double")
    return values
