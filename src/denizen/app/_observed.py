"""Observed series from a table: the columns that the command line names, and their dates."""

from pathlib import Path
from typing import Any

import numpy as np

from denizen.errors import ConfigError, DataError, nearest, need
from denizen.space.files import finite, reading, table

GAPS = ("", "na", "n/a", "nan", "null", "none", ".", "-")  # cells in which nothing was observed, in any case


def read(
    path: Path, columns: list[str], date: str | None
) -> tuple[dict[str, np.ndarray], np.ndarray | None, list[str]]:
    """Numbers of each column, days and places of the rows, in their order.

    Args:
        path: a CSV file with a header, or a Parquet file.
        columns: names.
        date: the column of dates; None: none.

    Returns:
        Float64 with NaN for gaps; datetime64[D] or None; what messages call a row, such as ``line 3``.

    Raises:
        ConfigError: the file or a column is not there.
        DataError: what is no table, no number or no date; names the line.
        StorageError: the file cannot be read.
        MissingExtra: a Parquet file, and polars is not installed.
    """
    where = f"--targets {path}"
    if not path.is_file():
        raise ConfigError(f"{where}: there is no such file")
    wanted = [*columns, *([date] if date else [])]
    if path.suffix.lower() == ".parquet":
        names, cells, places = _parquet(path, where, wanted)
    else:
        names, lines = table(path, where, "\t" if path.suffix.lower() == ".tsv" else ",", gaps=True)
        cells = {name: [row[name] for _, row in lines] for name in wanted if name in names}
        places = [f"line {line}" for line, _ in lines]
    for flag, name in [*(("--column", name) for name in columns), *([("--date", date)] if date else [])]:
        if names and name not in names:
            raise ConfigError(f"{flag} {name}: {path} has no such column; {nearest(name, names)}")
    if not places:
        raise DataError(f"{where} has no rows; expected a header with names, and a line for each time")
    found = {
        name: np.array(
            [
                _number(cell, f"{where}: column {name!r}, {place}")
                for cell, place in zip(cells[name], places, strict=True)
            ]
        )
        for name in columns
    }
    if date is None:
        return found, None, places
    days = [day(cell, f"{where}: column {date!r}, {place}") for cell, place in zip(cells[date], places, strict=True)]
    return found, np.array(days), places


def _parquet(path: Path, where: str, wanted: list[str]) -> tuple[list[str], dict[str, list[str]], list[str]]:
    """(names of all columns, cells of the wanted ones, places of the rows)."""
    polars = need("polars", "tables", "read Parquet files")
    with reading(where, "Parquet"):
        frame = polars.read_parquet(path, glob=False)
        kept = [name for name in wanted if name in frame.columns]
        texts = {name: frame[name].cast(polars.String).fill_null("").str.strip_chars().to_list() for name in kept}
        return frame.columns, texts, [f"row {row}" for row in range(frame.height)]


def _number(text: str, where: str) -> float:
    if text.lower() in GAPS:
        return np.nan
    value = finite(text)
    if value is None:
        raise DataError(f"{where}: {text[:40]!r} is not a number; write it such as 1000.5, and leave a gap empty")
    return value


def day(text: str, where: str, timed: bool = True) -> Any:
    """The day that a text means; `timed`: a time of the day may stand behind it.

    Raises:
        DataError: none.
    """
    first = text.split("T")[0].split(" ")[0] if timed else text
    try:
        if len(first) == 10:
            return np.datetime64(first, "D")
    except ValueError:
        pass
    raise DataError(f"{where}: {text[:40]!r} is not a date; expected YYYY-MM-DD")
