"""Observed series from a table: the columns that the command line names, and their dates."""

from pathlib import Path
from typing import Any

import numpy as np

from denizen.errors import ConfigError, DataError, nearest, need

GAPS = ("", "na", "n/a", "nan", "null", "none", ".", "-")  # cells in which nothing was observed, in any case


def read(path: Path, columns: list[str], date: str | None) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """(numbers of each column, float64 with NaN for gaps; days, datetime64[D], or None), in the order of the rows.

    Args:
        path: a CSV file with a header, or a Parquet file.
        columns: names.
        date: the column of dates; None: none.

    Raises:
        ConfigError: the file or a column is not there.
        DataError: what is no table, no number or no date; names the line.
        MissingExtra: polars is not installed.
    """
    where = f"--targets {path}"
    polars = need("polars", "tables", "read observed series")
    if not path.is_file():
        raise ConfigError(f"{where}: there is no such file")
    try:
        if path.suffix.lower() == ".parquet":
            table = polars.read_parquet(path, glob=False)
        else:
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            table = polars.read_csv(path, infer_schema=False, separator=separator, glob=False)
    except Exception as error:  # of polars, of many kinds
        raise DataError(f"{where} is not a table that can be read: {str(error).partition(chr(10))[0]}") from error
    if not all(name.isprintable() for name in table.columns):
        raise DataError(f"{where} is not a table that can be read: its first line is no text")
    if len(table.columns) == 1 and len(others := table.columns[0].split(";")) > 1:
        raise DataError(f"{where}: its header has {len(others)} names with semicolons between; expected commas")
    for flag, name in [*(("--column", name) for name in columns), *([("--date", date)] if date else [])]:
        if name not in table.columns:
            raise ConfigError(f"{flag} {name}: {path} has no such column; {nearest(name, table.columns)}")
    if not table.height:
        raise DataError(f"{where} has no rows")
    cells = {name: table[name].cast(polars.String).fill_null("").str.strip_chars().to_list() for name in table.columns}
    found = {
        name: np.array([_number(where, name, row, one) for row, one in enumerate(cells[name])]) for name in columns
    }
    if date is None:
        return found, None
    place = f"{where}: column {date!r}, line"
    return found, np.array([day(one, f"{place} {row + 2}") for row, one in enumerate(cells[date])])


def _number(where: str, name: str, row: int, text: str) -> float:
    if text.lower() in GAPS:
        return np.nan
    try:
        value = float(text)
    except ValueError:
        value = np.inf
    if np.isinf(value):
        raise DataError(f"{where}: column {name!r}, line {row + 2}: {text[:40]!r} is not a number; leave a gap empty")
    return value


def day(text: str, where: str) -> Any:
    """The day that a text means.

    Raises:
        DataError: none.
    """
    first = text.split("T")[0].split(" ")[0]
    try:
        if len(first) == 10:
            return np.datetime64(first, "D")
    except ValueError:
        pass
    raise DataError(f"{where}: {text[:40]!r} is not a date; expected YYYY-MM-DD")
