"""Text files of contacts: a fast reader for clean files and a careful one for all others.

The careful reader defines what is accepted: UTF-8 with or without a byte-order mark, any line end, fields separated
by comma, semicolon, tab or blanks, quotes, blanks around a number, lines without content, lines that start with `#`.
It names the line of every fault. The fast reader (polars where installed, else numpy) must agree with it, and
whatever it does not take goes to the careful one.
"""

import csv
import importlib.util
import io
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from denizen.errors import DataError
from denizen.space.files._reading import reading, utf8

NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?\s*", re.ASCII)
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d{1,4})?\s*", re.ASCII)
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(?:,\d{3})+\s*", re.ASCII)
_MISSING = ("", "nan", "na", "n/a", "null", "none", "inf", "-inf", "+inf", "infinity")
_CONTENT = re.compile(rb"\S")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, eq=False)
class Text:
    r"""A text file before its numbers are read.

    Attributes:
        origin: the file's name, for messages.
        first: cells of the first line with content; none in an empty file.
        number: the number (from 1) of that line.
        separator: one character.
        body: the file from that line on; line ends are `\n`, comments are empty lines.
    """

    origin: str
    first: list[str]
    number: int
    separator: str
    body: bytes


def is_number(cell: str) -> bool:
    """Whether a cell is written as a number or as a missing one; used to tell a header from data."""
    return NUMBER.fullmatch(cell) is not None or is_missing(cell)


def is_missing(cell: str) -> bool:
    """Whether a cell is empty or a word for a missing or infinite value."""
    return cell.strip().lower() in _MISSING


def open_text(data: bytes, origin: str) -> Text:
    """Find the first line and the separator of a text file.

    Raises:
        DataError: a first line that is no line of fields.
    """
    data = data.removeprefix(_BOM)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"#" in data:
        data = re.sub(rb"(?m)^#.*", b"", data)
    found = _CONTENT.search(data)
    if found is None:
        return Text(origin, [], 1, ",", b"")
    start = data.rfind(b"\n", 0, found.start()) + 1
    body, line = data[start:], data[start : _line_end(data, start)]
    if re.fullmatch(rb'"?sep=."?', line.strip()):
        raise DataError(f"{origin}, line 1: {line.decode('utf-8', 'replace').strip()!r} is for Excel; remove this line")
    separator = max(",;\t", key=lambda mark: line.count(mark.encode()))
    if separator.encode() not in line:
        separator = " "
        body = _single_blanks(body)
        line = body[: _line_end(body, 0)]
    with reading(origin, "text"):
        first = next(_rows(line.decode("utf-8", "replace"), separator))
    return Text(origin, [cell.strip() for cell in first], data.count(b"\n", 0, start) + 1, separator, body)


def _single_blanks(body: bytes) -> bytes:
    """One blank between fields, none around a line; by replacing, which is much quicker than patterns."""
    body = body.replace(b"\t", b" ")
    while b"  " in body:
        body = body.replace(b"  ", b" ")
    return body.replace(b"\n ", b"\n").replace(b" \n", b"\n").strip(b" ")


def _line_end(data: bytes, start: int) -> int:
    end = data.find(b"\n", start)
    return len(data) if end < 0 else end


def _rows(text: str, separator: str) -> "csv._reader":  # type: ignore[name-defined]
    blanks = separator != " "
    return csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=blanks, strict=True)


def columns(
    text: Text, header: bool, picked: Sequence[int], weight: int | None = None
) -> tuple[list[np.ndarray], Callable[[int], int]]:
    """The numbers of a text file.

    Args:
        text: the file.
        header: whether its first line is one.
        picked: places of the wanted columns; the third, if any, is a weight.
        weight: place of the column of weights, which may have decimal commas where they separate no columns.

    Returns:
        The picked columns, int64 where all their cells are integers, else float64; and row to line of the file.

    Raises:
        DataError: a line that is too short or too long, a cell that is not a finite number; names the line.
    """
    if _CONTENT.search(text.body, _line_end(text.body, 0) if header else 0) is None:
        return [np.empty(0, np.int64) for _ in picked], lambda row: text.number + row
    found = _fast(text.body, text, header, picked)
    if found is None:
        clean = _clean(text.body, text.separator)
        found = None if clean is text.body else _fast(clean, text, header, picked)
    if found is None:
        with reading(text.origin, "text"):
            return _careful(text, header, picked, weight)

    return found, _lines(text, header)


def _clean(body: bytes, separator: str) -> bytes:
    """Without empty lines and without most blanks around separators."""
    mark = separator.encode()
    if separator != " " and b" " in body:
        for blank, clean in ((mark + b" ", mark), (b" " + mark, mark), (b"\n ", b"\n"), (b" \n", b"\n")):
            body = body.replace(blank, clean)
        body = body.strip(b" ")
    return re.sub(rb"\n\n+", b"\n", body.strip(b"\n")) if b"\n\n" in body else body


def _fast(body: bytes, text: Text, header: bool, picked: Sequence[int]) -> list[np.ndarray] | None:
    """The picked columns of a clean file, or None if the file is not clean."""
    if body.count(b'"') % 2:
        return None
    rows = body.count(b"\n") + (not body.endswith(b"\n")) - header
    read = _with_polars if importlib.util.find_spec("polars") else _with_numpy
    for ids in (np.int64, np.float64):
        kinds = dict(zip(picked, (ids, ids, np.float64), strict=False))
        found = read(body, text.separator, len(text.first), int(header), kinds)
        if found is not None and all(len(found[k]) == rows and np.isfinite(found[k]).all() for k in picked):
            return [found[k] for k in picked]
    return None


def _with_polars(
    body: bytes, separator: str, width: int, skip: int, kinds: dict[int, type]
) -> dict[int, np.ndarray] | None:
    import polars

    schema: dict[str, type[polars.DataType]] = {f"c{k}": polars.String for k in range(width)}
    schema |= {f"c{k}": polars.Int64 if kind is np.int64 else polars.Float64 for k, kind in kinds.items()}
    try:
        with reading("", "text"):
            table = polars.read_csv(body, has_header=False, skip_lines=skip, separator=separator, schema=schema)
            table = table.select(f"c{k}" for k in kinds)
    except DataError:
        return None
    if any(column.null_count() for column in table):
        return None
    return {k: table[f"c{k}"].to_numpy() for k in kinds}


def _with_numpy(
    body: bytes, separator: str, width: int, skip: int, kinds: dict[int, type]
) -> dict[int, np.ndarray] | None:
    if len(kinds) != width or b'"' in body:  # numpy does not mind lines of unequal length where some columns are left
        return None
    fields = [(f"c{k}", kinds[k]) for k in range(width)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as integers cut from real numbers
            table = np.loadtxt(
                io.BytesIO(body), fields, comments=None, delimiter=separator, skiprows=skip, encoding="utf-8"
            )
    except (ValueError, OverflowError, Warning):
        return None
    return {k: np.ascontiguousarray(np.atleast_1d(table)[f"c{k}"]) for k in range(width)}


def texts(
    text: Text, header: bool, picked: Sequence[int]
) -> tuple[list[tuple[np.ndarray, list[str]]], Callable[[int], int]]:
    """The cells of a text file as they are spelled, without blanks around them, and row to line of the file.

    Args:
        text: the file.
        header: whether its first line is one.
        picked: places of the wanted columns.

    Returns:
        Codes int64 and labels of each column, and row to line of the file.

    Raises:
        DataError: a line that is too short or too long, an empty cell; names the line.
    """
    found = _fast_texts(text, header, picked)
    if found is not None:
        return found, _lines(text, header)
    codes: list[list[int]] = [[] for _ in picked]
    labels: list[dict[str, int]] = [{} for _ in picked]
    lines: list[int] = []
    with reading(text.origin, "text"):
        for line, row in _full_rows(text, header, picked):
            for column, known, k in zip(codes, labels, picked, strict=True):
                cell = row[k].strip()
                if not cell:
                    raise DataError(f"{text.origin}, line {line}: {row[k][:40]!r} is a missing value")
                column.append(known.setdefault(cell, len(known)))
            lines.append(line)
    made = [(np.array(column, np.int64), list(known)) for column, known in zip(codes, labels, strict=True)]
    return made, lines.__getitem__


def _fast_texts(text: Text, header: bool, picked: Sequence[int]) -> list[tuple[np.ndarray, list[str]]] | None:
    """The same of a clean file by polars, or None."""
    body = text.body
    if not importlib.util.find_spec("polars") or body.count(b'"') % 2 or b"\n\n" in body or body.startswith(b"\n"):
        return None
    import polars

    rows = body.count(b"\n") + (not body.endswith(b"\n")) - header
    schema = {f"c{k}": polars.String for k in range(len(text.first))}
    found = []
    try:
        with reading("", "text"):
            table = polars.read_csv(
                body, has_header=False, skip_lines=int(header), separator=text.separator, schema=schema
            )
            if table.height != rows or any(column.null_count() for column in table):
                return None
            for column in (table[f"c{k}"].str.strip_chars() for k in picked):
                labels = column.unique()
                if (labels == "").any():
                    return None
                codes = column.cast(polars.Enum(labels)).to_physical().cast(polars.Int64).to_numpy()
                found.append((codes, labels.to_list()))
    except DataError:
        return None
    return found


def _lines(text: Text, header: bool) -> Callable[[int], int]:
    """Row to line of a file whose lines with content are its rows."""

    def line(row: int) -> int:
        full = (k for k, content in enumerate(text.body.split(b"\n"), text.number) if content.strip())
        return next(itertools.islice(full, row + header, None))

    return line


def _full_rows(text: Text, header: bool, picked: Sequence[int]) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each line with content, below the header."""
    reader, width = _rows(utf8(text.body, text.origin, text.number), text.separator), len(text.first)
    if header:
        next(reader)
    for row in reader:
        line = text.number + reader.line_num - 1
        if len(row) <= 1 and not "".join(row).strip():
            continue
        if not max(picked) < len(row) <= width:
            raise DataError(f"{text.origin}, line {line}: {len(row)} columns; the first line has {width}")
        yield line, row


def decimal_commas(cells: Sequence[str], separator: str) -> list[str]:
    """The cells with decimal points for commas, as they are where commas separate columns or may mark thousands."""
    commas = [cell for cell in cells if _DECIMAL_COMMA.fullmatch(cell)]
    if separator not in ";\t" or all(map(_THOUSANDS.fullmatch, commas)):
        return list(cells)
    return [cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell for cell in cells]


def _careful(
    text: Text, header: bool, picked: Sequence[int], weight: int | None
) -> tuple[list[np.ndarray], Callable[[int], int]]:
    cells: list[list[str]] = [[] for _ in picked]
    lines: list[int] = []
    for line, row in _full_rows(text, header, picked):
        for column, k in zip(cells, picked, strict=True):
            column.append(row[k])
        lines.append(line)
    if weight is not None:
        place = list(picked).index(weight)
        cells[place] = decimal_commas(cells[place], text.separator)
    for line, row in zip(lines, zip(*cells, strict=True), strict=True):
        for cell, k in zip(row, picked, strict=True):
            if NUMBER.fullmatch(cell) is None:
                what = "a missing or infinite value" if is_missing(cell) else "not a number"
                of = f" of column {text.first[k][:40]!r}" if header else ""
                raise DataError(
                    f"{text.origin}, line {line}: {cell[:40]!r} is {what}; expected a finite number in each row{of}"
                )
    return [_array(column) for column in cells], lines.__getitem__


def _array(cells: list[str]) -> np.ndarray:
    try:
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    except (ValueError, OverflowError):  # what is beyond a double becomes infinite, which the checks of ids refuse
        return np.array([float(cell) for cell in cells])
