"""Small tables of text, such as rates by age or observed series: each line with its cells, and numbers surely meant."""

import csv
import io
import math
import re
from pathlib import Path

from denizen.errors import DataError
from denizen.space.files._csv import NUMBER
from denizen.space.files._reading import content, utf8

MARKS = {",": "commas", ";": "semicolons", "\t": "tabs"}
Lines = list[tuple[int, list[str]]]
Rows = list[tuple[int, dict[str, str]]]


def finite(cell: str) -> float | None:
    """The finite number that a cell holds; None: none, or one in another writing, such as ``1_000`` or ``5%``."""
    value = float(cell) if NUMBER.fullmatch(cell) else math.inf
    return value if math.isfinite(value) else None


def lines(path: Path, origin: str, marks: str = ",;\t") -> Lines:
    """(number from 1, stripped cells) of each line of a text file down to the last with content; of an empty one none.

    Args:
        path: the file.
        origin: its name, for messages.
        marks: what may separate cells; the first line says which does.

    Raises:
        DataError: there is no such file, or it is no CSV in UTF-8; names the line.
        StorageError: it cannot be read.
    """
    if not path.is_file():
        raise DataError(f"{origin} cannot be read: {'it is a folder' if path.is_dir() else 'there is no such file'}")
    text = utf8(content(path, origin, "CSV"), origin)
    first = re.sub(r'"[^"]*"', "", next((line for line in text.splitlines() if line.strip()), ""))
    if re.fullmatch(r"sep=.?", first.strip()):
        raise DataError(f"{origin}: its line {first.strip()!r} is for Excel; remove this line")
    mark = max(marks, key=first.count)
    if mark not in first and (other := next((one for one in MARKS if one in first), None)):
        count = first.count(other) + 1
        raise DataError(f"{origin}: its header has {count} names with {MARKS[other]} between; expected {MARKS[mark]}")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)
    found, number = [], 1
    try:
        for row in reader:
            found.append((number, [cell.strip() for cell in row]))
            number = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{origin}, line {number}: {error}; close each quote, in one line") from None
    while found and not any(found[-1][1]):
        found.pop()
    return found


def table(path: Path, origin: str, marks: str = ",;\t", gaps: bool = False) -> tuple[list[str], Rows]:
    """(names of the header, cells by name of each line below it); no names where the file is empty.

    Args:
        path: the file.
        origin: its name, for messages.
        marks: what may separate cells.
        gaps: whether lines mean something by their order. An empty one is a row then where there is one column, and
            refused where there are several; else it is left out.

    Raises:
        DataError: what `lines` raises, two columns of a name, or a line of another length; names the line.
        StorageError: the file cannot be read.
    """
    found = lines(path, origin, marks)
    while found and not any(found[0][1]):
        found.pop(0)
    if not found:
        return [], []
    names, rows = found[0][1], []
    for line, row in found[1:]:
        if gaps and not row:
            if len(names) > 1:
                raise DataError(f"{origin}, line {line} is empty; remove it")
            row = [""]
        if len(row) != len(names) and any(row):
            raise DataError(f"{origin}, line {line}: {len(row)} columns, expected {len(names)} as in the header")
        if gaps or any(row):
            rows.append((line, row))
    while names and not names[-1] and not any(row[len(names) - 1] for _, row in rows):  # commas at the ends of lines
        names = names[:-1]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{origin}: two columns are called {twice!r}; name each column once")
    if "" in names:
        raise DataError(f"{origin}: column {names.index('') + 1} has no name in the header; name each column")
    return names, [(line, dict(zip(names, row, strict=False))) for line, row in rows]
