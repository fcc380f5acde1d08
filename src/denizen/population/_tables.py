"""Tables with named columns: Parquet (polars or pyarrow) and CSV (polars, else the standard library)."""

import contextlib
import csv
import importlib.util
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from denizen.errors import DataError, need
from denizen.population._columns import STAGES, Raw, categorical, strings
from denizen.space.files import check_size, content, is_number, reading, utf8

TEXT = (".csv", ".tsv")
_MARKS = {";": "semicolons", "\t": "tabs"}
_PLAIN = r"-?(?:0|[1-9][0-9]*)(?:\.0*)?"
_DIGITS = re.compile(r"[+-]?[\d.,]*\d[\d.,]*", re.ASCII)
_COMMA = re.compile(r"[+-]?\d*,?\d+", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+", re.ASCII)

Named = Callable[[str], bool]
"""Says of the name of a column whether it is meant."""


def every(name: str) -> bool:
    """Wants all columns."""
    return True


def nothing(name: str) -> bool:
    """Wants no column."""
    return False


@dataclass(frozen=True, eq=False)
class Table:
    """The columns that were read, the names of those that were not, and sentences for the report."""

    columns: dict[str, Raw]
    rest: list[str] = field(default_factory=list)
    report: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _Text:
    """A CSV file: its bytes, the names of its columns, and how many header lines it has (0 or 1)."""

    data: bytes
    names: list[str]
    separator: str
    header: int
    origin: str


def read_parquet(path: Path, origin: str, wanted: Named = every) -> Table:
    """The wanted columns of a Parquet file.

    Raises:
        DataError: broken content, or a column that is neither number, boolean nor string.
        MissingExtra: neither polars nor pyarrow is installed.
    """
    data = content(path, origin, "Parquet")
    if importlib.util.find_spec("polars") is None and importlib.util.find_spec("pyarrow"):
        return _with_pyarrow(data, origin, wanted)
    polars = need("polars", "tables", "read Parquet files")
    with reading(origin, "Parquet"):
        schema = polars.read_parquet_schema(io.BytesIO(data))
        chosen = [name for name in schema if wanted(name)]
        rows = polars.scan_parquet(io.BytesIO(data)).select(polars.len()).collect().item()
        check_size(rows, len(chosen), len(data), origin)
        table = polars.read_parquet(io.BytesIO(data), columns=chosen)
        found = {name: _from_polars(table[name], name, origin) for name in chosen}
    return Table(found, [name for name in schema if name not in found])


def table_names(path: Path) -> list[str]:
    """The names of a table's columns, without reading it."""
    with reading(path.name, "table"):
        if path.suffix.lower() in TEXT:
            with path.open("rb") as file:
                head = file.readline() + file.readline()
            return _header(head, path.name, path.stem)[0]
        if importlib.util.find_spec("polars"):
            import polars

            return list(polars.read_parquet_schema(path))
        if importlib.util.find_spec("pyarrow"):
            from pyarrow import parquet

            return list(parquet.read_schema(path).names)
    return []


def _from_polars(column: Any, name: str, origin: str) -> Raw:
    import polars

    kind = column.dtype
    if kind in (polars.Int128, getattr(polars, "UInt128", polars.Int128)):  # what no int64 holds is a name
        column, kind = column.cast(polars.String), polars.String
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


def _with_pyarrow(data: bytes, origin: str, wanted: Named) -> Table:
    import pyarrow
    from pyarrow import parquet

    with reading(origin, "Parquet"):
        file = parquet.ParquetFile(io.BytesIO(data))
        names = file.schema_arrow.names
        chosen = [name for name in names if wanted(name)]
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
        return Table(found, [name for name in names if name not in found])


def read_csv(path: Path, origin: str, wanted: Named = every, exact: Named = nothing) -> Table:
    """The wanted columns of a CSV file, its fields separated by commas, semicolons or tabs.

    A file of several columns needs a header, which names them. A file of one column is an attribute named by its
    header or, where it has none, after the file. Numbers in a file separated by semicolons or tabs may have decimal
    commas.

    Args:
        path: the file.
        origin: its name, for messages.
        wanted: says which columns to read.
        exact: says which columns are names: they are integers only where nothing of their spelling is lost.

    Raises:
        DataError: broken content, missing cells, or several columns without a header.
    """
    data = content(path, origin, "CSV")
    names, text, said = _header(data, origin, path.stem)
    chosen = [k for k, name in enumerate(names) if wanted(name)]
    found = _columns(text, chosen, {names[k] for k in chosen if exact(names[k])})
    commas = []
    for name, raw in found.items():
        found[name], more = _decimals(name, raw, text)
        commas += [name] if more else []
        said += more
    points = [name for name, raw in found.items() if raw.values.dtype.kind == "f" and name not in commas]
    if commas and points:
        raise DataError(
            f"{origin}: column {commas[0]!r} is written with decimal commas and column {points[0]!r} with points; use "
            "one of them"
        )
    if len(names) == 1:
        _only_numbers(found, text)
    return Table(found, [name for k, name in enumerate(names) if k not in chosen], said)


def _header(data: bytes, origin: str, stem: str) -> tuple[list[str], _Text, list[str]]:
    """The names of the columns, the text below them, and sentences for the report."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{origin} is UTF-16 text; save it as UTF-8")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if data.endswith(b"\n\n"):
        data = data.rstrip(b"\n")
    end = data.find(b"\n") % (len(data) + 1)
    other = data.find(b"\n", end + 1) % (len(data) + 1)
    one, two = utf8(data[:end], origin), data[end + 1 : other].decode("utf-8", "replace")
    if re.fullmatch(r'"?sep=."?', one.strip()):
        raise DataError(f"{origin}, line 1: {one.strip()!r} is for Excel; remove this line")
    bare = [re.sub(r'"[^"]*"', "", line) for line in (one, two)]
    separator = max(",;\t", key=lambda mark: [line.count(mark) for line in bare])
    with reading(origin, "CSV"):
        first, second = (next(csv.reader([line], delimiter=separator), []) for line in (one, two))
    first = [cell.strip() for cell in first]
    if not first:
        raise DataError(
            f"{origin} {'starts with an empty line; remove it' if data else 'is empty; expected one row per agent'}"
        )
    if len(second) > len(first):
        raise DataError(f"{origin}, line 2: {len(second)} columns; expected {len(first)} as in the first line")
    said = [f"{origin}: its columns are separated by {_MARKS[separator]}."] if separator != "," else []
    if len(first) == 1:
        header, more = _one_column(first[0], two.strip().strip('"'), origin)
        if header and first[0] != stem and f"\n{one}\n".encode() in data + b"\n":  # a name does not occur among values
            header, more = False, []
        names = [first[0] if header and first[0] and stem != STAGES else stem]
        if more and names[0] == first[0] != stem:
            more = [f"{origin}: its only column is named {names[0]!r}, after the header line."]
        return names, _Text(data, names, separator, int(header), origin), more
    if any(is_number(cell) and cell for cell in first):
        raise DataError(f"{origin} has {len(first)} columns and no header line; name the columns in the first line")
    if len(set(first)) != len(first):
        raise DataError(f"{origin}: two columns have the same name: {', '.join(first)[:200]}")
    return first, _Text(data, first, separator, 1, origin), said


def _one_column(first: str, second: str, origin: str) -> tuple[bool, list[str]]:
    """Whether the first line of a file of one column is a header, and a sentence on it."""
    blanks = len(first.split()) == len(second.split()) > 1 and all(map(is_number, second.split()))
    for mark, word, found in (("|", "bars", 0 < first.count("|") == second.count("|")), (" ", "blanks", blanks)):
        if found:
            raise DataError(f"{origin}: its columns are separated by {word} ({mark!r}); separate them by commas")
    numbers = is_number(second)
    if not numbers:
        return True, [f"{origin}: first line taken as a header and skipped."]
    header = not is_number(first)
    return header, [f"{origin}: header line {first!r} skipped."] if header else []


def _only_numbers(found: dict[str, Raw], text: _Text) -> None:
    """Refuse a word in a column of numbers that is the only one of its file."""
    for raw in found.values():
        if raw.labels is None or raw.exact:
            continue
        second = raw.texts()[0] if len(raw.values) else ""
        wrong = [code for code, label in enumerate(raw.labels) if not is_number(label)]
        if is_number(second) and wrong:
            row = int(np.flatnonzero(np.isin(raw.values, wrong))[0])
            held = raw.labels[raw.values[row]]
            raise DataError(f"{text.origin}, {raw.place(row)}: {held[:40]!r} is not a number; expected one in each row")


def _columns(text: _Text, chosen: list[int], exact: set[str]) -> dict[str, Raw]:
    """The chosen columns of a CSV file below its header lines, one or none."""
    found = _fast(text, chosen, exact)
    if found is None or any(raw.labels and not raw.exact and all(map(is_number, raw.labels)) for raw in found.values()):
        found = _split(text, chosen, exact)  # such as numbers with words for missing ones
    return {name: replace(raw, first_line=1 + text.header) for name, raw in found.items()}


def _fast(text: _Text, chosen: list[int], exact: set[str]) -> dict[str, Raw] | None:
    """The columns of a clean file by polars; None where the careful reader has to decide."""
    if importlib.util.find_spec("polars") is None:
        return None
    import polars

    rows = text.data.count(b"\n") + (not text.data.endswith(b"\n")) - text.header
    for scanned in (10_000, None):  # rows that tell the types; all of them take far longer
        with contextlib.suppress(DataError), reading(text.origin, "CSV"):
            table = polars.read_csv(
                io.BytesIO(text.data),
                has_header=False,
                skip_rows=text.header,
                infer_schema_length=scanned,
                new_columns=text.names,
                separator=text.separator,
                schema_overrides=dict.fromkeys(exact, polars.String),
            )
            if table.height != rows or table.width != len(text.names):
                return None
            found = {}
            for name in (text.names[k] for k in chosen):
                column = table[name]
                column = column.str.strip_chars() if column.dtype == polars.String else column
                found[name] = _exactly(column) if name in exact else _from_polars(column, name, text.origin)
            return found
    return None


def _exactly(column: Any) -> Raw:
    """Integers where the texts of a polars column are plain ones, such as `7` and `7.0` and not `007`; else labels."""
    import polars

    if column.null_count() == 0 and column.str.contains(f"^(?:{_PLAIN})$").all():
        numbers = column.str.replace(r"\.0*$", "").cast(polars.Int64, strict=False)
        if numbers.null_count() == 0:
            return Raw(numbers.to_numpy())
    return replace(_from_polars(column, column.name, ""), exact=True)


def _split(text: _Text, chosen: list[int], exact: set[str]) -> dict[str, Raw]:
    """The careful reader: any quotes and line ends; names the line of a fault."""
    origin, names, header = text.origin, text.names, text.header
    decoded = utf8(text.data, origin)
    with reading(origin, "CSV"):
        rows = list(csv.reader(io.StringIO(decoded, newline=""), delimiter=text.separator, strict=True))[header:]
    while rows and not any(cell.strip() for cell in rows[-1]):
        rows.pop()
    if not rows:
        raise DataError(f"{origin} is empty; expected one row per agent")
    for line, row in enumerate(rows, start=1 + header):
        if len(row) != len(names):
            expected = len(names)
            raise DataError(f"{origin}, line {line}: {len(row)} columns; expected {expected} as in the first line")
    return {names[k]: _parse([row[k].strip() for row in rows], names[k] in exact) for k in chosen}


def _parse(cells: list[str], exact: bool = False) -> Raw:
    """Integers, else real numbers, else strings; an empty cell is missing."""
    texts = [cell or None for cell in cells]
    if exact:
        plain = all(re.fullmatch(_PLAIN, cell) for cell in cells)
        numbers = [int(cell.split(".")[0]) for cell in cells] if plain else []
        if plain and all(-(2**63) <= number < 2**63 for number in numbers):
            return Raw(np.array(numbers, dtype=np.int64))
        return replace(strings(texts), exact=True)
    if not all(is_number(cell) for cell in cells):
        return strings(texts)
    try:
        return Raw(np.array([int(cell) for cell in cells], dtype=np.int64))
    except OverflowError:  # what no int64 holds is a name: as real numbers, different ones would become equal
        return strings(texts)
    except ValueError:
        words = [cell if cell.lower() not in ("", "na", "n/a", "null", "none") else "nan" for cell in cells]
        return Raw(np.array([float(word) for word in words]))


def _decimals(name: str, raw: Raw, text: _Text) -> tuple[Raw, list[str]]:
    """A column of numbers with decimal commas as numbers.

    Raises:
        DataError: the commas may be something else.
    """
    labels = raw.labels or ()
    commas = [label for label in labels if "," in label]
    if raw.exact or not commas or not all(_DIGITS.fullmatch(label) for label in labels):
        return raw, []
    row = int(np.flatnonzero(raw.values == labels.index(commas[0]))[0])
    thousands = all(_THOUSANDS.fullmatch(label) for label in commas)
    if text.separator == "," or thousands or not all(_COMMA.fullmatch(label) for label in labels):
        raise DataError(
            f"{text.origin}, {raw.place(row)}: column {name!r} holds {commas[0]!r}; write numbers with a decimal point "
            "and without separators of thousands"
        )
    values = np.array([float(label.replace(",", ".")) for label in labels] + [np.nan])[raw.values]
    said = f"{text.origin}: column {name!r} is written with decimal commas; read as real numbers."
    return replace(raw, values=values, labels=None), [said]
