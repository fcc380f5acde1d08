"""Tables with named columns: Parquet (polars or pyarrow) and CSV (polars, else the standard library)."""

import contextlib
import csv
import importlib.util
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from denizen.errors import DataError, need
from denizen.population._columns import Raw, categorical, strings
from denizen.space._csv import is_number
from denizen.space._files import check_size, content, reading


def read_parquet(path: Path, origin: str, columns: Sequence[str] | None = None) -> dict[str, Raw]:
    """The columns of a Parquet file, those of `columns` only if given.

    Raises:
        DataError: broken content, or a column that is neither number, boolean nor string.
        MissingExtra: neither polars nor pyarrow is installed.
    """
    data = content(path, origin, "Parquet")
    if importlib.util.find_spec("polars") is None and importlib.util.find_spec("pyarrow"):
        return _with_pyarrow(data, origin, columns)
    polars = need("polars", "tables", "read Parquet files")
    with reading(origin, "Parquet"):
        schema = polars.read_parquet_schema(io.BytesIO(data))
        chosen = [name for name in schema if columns is None or name in columns]
        rows = polars.scan_parquet(io.BytesIO(data)).select(polars.len()).collect().item()
        check_size(rows, len(chosen), len(data), origin)
        table = polars.read_parquet(io.BytesIO(data), columns=chosen)
        return {name: _from_polars(table[name], name, origin) for name in chosen}


def table_names(path: Path) -> list[str]:
    """The names of a table's columns, for messages."""
    data = content(path, path.name, "table")
    if path.suffix == ".csv":
        names = first_cells(data, path.name)
        return names if len(names) > 1 else [path.stem]
    if importlib.util.find_spec("polars") is None:
        return []
    import polars

    with reading(path.name, "Parquet"):
        return list(polars.read_parquet_schema(io.BytesIO(data)))


def _from_polars(column: Any, name: str, origin: str) -> Raw:
    import polars

    kind = column.dtype
    if kind in (polars.String, polars.Categorical, polars.Enum):
        column = column.cast(polars.String)
        labels = column.drop_nulls().unique().sort().to_list()
        codes = column.cast(polars.Enum(labels)).to_physical().cast(polars.Int64).fill_null(-1).to_numpy()
        return categorical(codes, labels)
    if kind == polars.Boolean or kind.is_integer():
        if column.null_count() == 0:
            return Raw(column.to_numpy())
        column = column.cast(polars.Float64)
    elif not kind.is_float() and kind != polars.Null:
        raise DataError(
            f"{origin}: column {name!r} has type {kind}; expected integers, real numbers, booleans or strings. "
            "Convert it, or leave it out: remove the column, or pass columns=[...] to load"
        )
    return Raw(column.cast(polars.Float64).fill_null(float("nan")).to_numpy())


def _with_pyarrow(data: bytes, origin: str, columns: Sequence[str] | None) -> dict[str, Raw]:
    import pyarrow
    from pyarrow import parquet

    with reading(origin, "Parquet"):
        file = parquet.ParquetFile(io.BytesIO(data))
        chosen = [name for name in file.schema_arrow.names if columns is None or name in columns]
        check_size(file.metadata.num_rows, len(chosen), len(data), origin)
        table = file.read(columns=chosen)
        found: dict[str, Raw] = {}
        for name in chosen:
            kind, column = table.schema.field(name).type, table[name]
            kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
            if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
                found[name] = strings(column.to_pylist())
            elif pyarrow.types.is_boolean(kind) or pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind):
                found[name] = Raw(column.to_numpy())
            else:
                raise DataError(
                    f"{origin}: column {name!r} has type {kind}; convert it, or leave it out: remove the "
                    "column, or pass columns=[...] to load"
                )
        return found


def first_cells(data: bytes, origin: str) -> list[str]:
    """The cells of the first line."""
    with reading(origin, "CSV"):
        head = data[:65536].decode("utf-8-sig", "replace")
        return next(csv.reader(io.StringIO(head, newline="")), [])


def read_csv(path: Path, origin: str, columns: Sequence[str] | None = None) -> tuple[dict[str, Raw], list[str]]:
    """The columns of a CSV file and sentences for the report.

    A file of one column is one attribute named after the file, whether or not it has a header line, which is skipped.
    A file of several columns needs a header, which names them.

    Raises:
        DataError: broken content, missing cells, or several columns without a header.
    """
    data = content(path, origin, "CSV")
    first = first_cells(data, origin)
    if not first:
        raise DataError(f"{origin} is empty; expected one row per agent")
    if len(first) == 1:
        return _one_column(data, path.stem, first[0], origin)
    if any(is_number(cell) and cell.strip() for cell in first):
        raise DataError(f"{origin} has {len(first)} columns and no header line; name the columns in the first line")
    if len(set(first)) != len(first):
        raise DataError(f"{origin}: two columns have the same name: {', '.join(first)[:200]}")
    return _columns(data, first, origin, columns, 1), []


def _one_column(data: bytes, name: str, first: str, origin: str) -> tuple[dict[str, Raw], list[str]]:
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n", 2)
    second = lines[1].decode("utf-8", "replace").strip().strip('"') if len(lines) > 1 else ""
    for mark, word in ((";", "semicolons"), ("\t", "tabs")):
        if 0 < first.count(mark) == second.count(mark):
            raise DataError(f"{origin}: its columns are separated by {word}; separate them by commas")
    numbers = is_number(second)
    header = not numbers or not is_number(first)
    said = [f"{origin}: header line {first!r} skipped."] if header else []
    if not numbers:
        said = [f"{origin}: first line taken as a header and skipped."]
    raw = _columns(data, [name], origin, None, int(header))[name]
    if numbers and raw.labels is not None:
        wrong = [code for code, label in enumerate(raw.labels) if not is_number(label)]
        row = int(np.flatnonzero(np.isin(raw.values, wrong))[0])
        held = raw.labels[raw.values[row]]
        raise DataError(f"{origin}, {raw.place(row)}: {held[:40]!r} is not a number; expected one in each row")
    return {name: raw}, said


def _columns(data: bytes, names: list[str], origin: str, columns: Sequence[str] | None, header: int) -> dict[str, Raw]:
    """The columns of a CSV file below its header lines, one or none."""
    found = _fast(data, names, origin, columns, header)
    if found is None or any(raw.labels and all(map(is_number, raw.labels)) for raw in found.values()):
        found = _split(data, names, origin, columns, header)  # such as numbers with words for missing ones
    return {name: replace(raw, first_line=1 + header) for name, raw in found.items()}


def _fast(
    data: bytes, names: list[str], origin: str, columns: Sequence[str] | None, header: int
) -> dict[str, Raw] | None:
    """The columns of a clean file by polars; None where the careful reader has to decide."""
    if importlib.util.find_spec("polars") is None:
        return None
    import polars

    chosen = [k for k, name in enumerate(names) if columns is None or name in columns]
    rows = data.count(b"\n") + (not data.endswith(b"\n")) - header
    for scanned in (10_000, None):  # rows that tell the types; all of them take thirty times as long
        with contextlib.suppress(DataError), reading(origin, "CSV"):
            table = polars.read_csv(
                io.BytesIO(data), has_header=False, skip_rows=header, infer_schema_length=scanned, columns=chosen,
                new_columns=[names[k] for k in chosen],
            )  # fmt: skip
            if table.height != rows or table.width != len(chosen):
                return None
            return {names[k]: _from_polars(table[names[k]], names[k], origin) for k in chosen}
    return None


def _split(data: bytes, names: list[str], origin: str, columns: Sequence[str] | None, header: int) -> dict[str, Raw]:
    """The careful reader: any quotes and line ends; names the line of a fault."""
    with reading(origin, "CSV"):
        rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))[header:]
    while rows and not any(cell.strip() for cell in rows[-1]):
        rows.pop()
    if not rows:
        raise DataError(f"{origin} is empty; expected one row per agent")
    for line, row in enumerate(rows, start=1 + header):
        if len(row) != len(names):
            expected = len(names)
            raise DataError(f"{origin}, line {line}: {len(row)} columns; expected {expected} as in the first line")
    return {
        name: _parse([row[k].strip() for row in rows])
        for k, name in enumerate(names)
        if columns is None or name in columns
    }


def _parse(cells: list[str]) -> Raw:
    """Integers, else real numbers, else strings; an empty cell is missing."""
    if all(is_number(cell) for cell in cells):
        try:
            return Raw(np.array([int(cell) for cell in cells], dtype=np.int64))
        except (ValueError, OverflowError):
            texts = [cell if cell.lower() not in ("", "na", "n/a", "null", "none") else "nan" for cell in cells]
            return Raw(np.array([float(text) for text in texts]))
    return strings([cell or None for cell in cells])
