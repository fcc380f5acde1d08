"""Reading files that may hold anything: every failure of a parser ends in one error that names the file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from denizen.errors import DataError, DenizenError, StorageError

_ALWAYS_FINE = 1 << 30
"""Bytes that any Parquet file may unpack to; above this, a thousand times its own size."""


@contextmanager
def reading(origin: str, form: str) -> Iterator[None]:
    """Turn whatever a third-party parser raises on broken content into a `DataError` naming the file.

    Parsers of zip, Parquet and CSV raise dozens of types on hostile input, hence the wide net; denizen's own
    errors pass unchanged.
    """
    try:
        yield
    except DenizenError:
        raise
    except OSError as error:
        raise StorageError(f"{origin} could not be read: {error.strerror or error}") from error
    except MemoryError as error:
        raise DataError(f"{origin} asks for more memory than there is; it may be damaged") from error
    except Exception as error:
        raise DataError(f"{origin} is not a readable {form} file: {_first_line(error)}") from error
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # polars: a Rust panic, not an Exception
            raise DataError(f"{origin} is not a readable {form} file: {_first_line(error)}") from error
        raise


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__


def content(path: Path, origin: str, form: str) -> bytes:
    """The bytes of a file.

    Raises:
        StorageError: the file cannot be read.
    """
    with reading(origin, form):
        return path.read_bytes()


def utf8(data: bytes, origin: str, first: int = 1) -> str:
    """Bytes as text, without a byte order mark; `first` is the number of their first line.

    Raises:
        DataError: they are no text in UTF-8; names the line.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{origin} is UTF-16 text; save it as UTF-8")
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        line = first + data.count(b"\n", 0, error.start)
        raise DataError(
            f"{origin}, line {line}: byte {data[error.start]:#04x} is not UTF-8 text (Latin-1 perhaps); save the file "
            f"as UTF-8, for example by: iconv -f LATIN1 -t UTF-8"
        ) from None
    if "\0" in text:
        line = first + text[: text.index("\0")].count("\n")
        raise DataError(f"{origin}, line {line} is no text: it has a byte of zero; save the file as text in UTF-8")
    return text


def check_size(rows: int, columns: int, size: int, origin: str) -> None:
    """Refuse a small Parquet file that unpacks to gigabytes: run lengths announce any number of rows in a few bytes.

    Args:
        rows: what the file announces.
        columns: how many of its columns are read.
        size: bytes of the file.
        origin: its name for messages.
    """
    if rows * columns * 8 > _ALWAYS_FINE + 1000 * size:
        raise DataError(f"{origin} has {size} bytes and announces {rows} rows of {columns} columns; it may be damaged")
