"""Where rows of metrics go: JSON lines, a Parquet file, any callable, TensorBoard, Weights & Biases."""

import contextlib
import io
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from denizen.errors import DataError, InputError, expect_function, need

Number = bool | int | float
Row = dict[str, Any]


@runtime_checkable
class Sink(Protocol):
    """Takes rows, one after the other, from one thread."""

    def write(self, row: Row) -> None:
        """Take a row: ``{"step": 3, "loss": 0.5}``. One that raises has not taken it and gets it again."""
        ...

    def sync(self) -> None:
        """Make what was written safe."""
        ...

    def close(self) -> None:
        """Finish."""
        ...


class JsonLines:
    """A text file with one JSON object in each line, complete after every row.

    Numbers are written so that reading them gives the same bits. What is not finite is ``NaN``, ``Infinity`` or
    ``-Infinity``, as Python's json, pandas and polars read it.
    """

    def __init__(self, path: str | Path, append: bool = False) -> None:
        """Args:
        path: of the file; its folder is made.
        append: go on behind what is there; a last line that a crash has cut is taken away.

        Raises:
            InputError: there is something already, and `append` is not set.
        """
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not append and self.path.exists() and self.path.stat().st_size:
            raise InputError(f"{self.path} exists already; pass JsonLines(path, append=True) to go on, or another path")
        self.path.touch()
        self._file = open(self.path, "rb+", buffering=0)  # noqa: SIM115 - as long as the sink
        self._end = _complete(self._file)
        self._file.truncate(self._end)

    def write(self, row: Row) -> None:
        """See `Sink`."""
        data = memoryview(json.dumps(row).encode() + b"\n")
        done = 0
        self._file.seek(self._end)
        try:
            while done < len(data):
                done += self._file.write(data[done:]) or 0
        except BaseException:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)  # no part of a row stays, so it can be written again
            raise
        self._end += done

    def sync(self) -> None:
        """See `Sink`."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """See `Sink`."""
        self._file.close()


class Parquet:
    """A Parquet file with a column for each name, and nulls where a row lacks it.

    A Parquet file is worth nothing until its end is written, so rows go to JSON lines beside it
    (``metrics.parquet.rows.jsonl``), which `close` turns into the file. After a crash they are still there, and opening
    the sink again with `append` takes them up.
    """

    def __init__(self, path: str | Path, append: bool = False) -> None:
        """Args:
        path: of the file; its folder is made.
        append: go on behind what is there, rows of a crashed process included.

        Raises:
            InputError: there is something already, and `append` is not set.
            MissingExtra: polars is not installed.
        """
        self._polars = need("polars", "tables", "write metrics as Parquet")
        self.path = Path(path)
        rows = self.path.with_name(self.path.name + ".rows.jsonl")
        if not append and (self.path.exists() or rows.exists()):
            there = self.path if self.path.exists() else f"{rows} (rows of a process that did not end well)"
            raise InputError(f"{there} exists already; pass Parquet(path, append=True) to go on, or another path")
        self._rows = JsonLines(rows, append=True)

    def write(self, row: Row) -> None:
        """See `Sink`."""
        self._rows.write(row)

    def sync(self) -> None:
        """See `Sink`."""
        self._rows.sync()

    def close(self) -> None:
        """Write the file, whole or not at all."""
        self._rows.close()
        if not self._rows.path.exists():
            return
        with open(self._rows.path, encoding="utf-8") as file:
            table = self._table([json.loads(line) for line in file])
        if self.path.exists():
            table = self._polars.concat([self._before(), table], how="diagonal_relaxed")
        part = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        try:
            table.write_parquet(part)
            with open(part, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(part, self.path)
        finally:
            part.unlink(missing_ok=True)
        self._rows.path.unlink()

    def _table(self, rows: list[Row]) -> Any:
        names = list(dict.fromkeys(name for row in rows for name in row)) or ["step"]
        return self._polars.DataFrame([_column(self._polars, name, [row.get(name) for row in rows]) for name in names])

    def _before(self) -> Any:
        try:
            return self._polars.read_parquet(self.path)
        except Exception as error:  # polars raises many types for a damaged file
            raise DataError(f"{self.path} cannot be read as Parquet, so nothing was added to it: {error}") from error


class Call:
    """Hands each row to a function."""

    def __init__(self, function: Callable[[Row], Any]) -> None:
        self._function = function

    def write(self, row: Row) -> None:
        """See `Sink`."""
        self._function(row)

    def sync(self) -> None:
        """See `Sink`."""

    def close(self) -> None:
        """See `Sink`."""


def as_sink(what: Any) -> Sink:
    """A sink from a path, a callable, or a sink.

    Raises:
        InputError: it is none of these.
    """
    if isinstance(what, (str, Path)):
        kinds = {".jsonl": JsonLines, ".parquet": Parquet}
        kind = kinds.get(Path(what).suffix)
        if kind is None:
            raise InputError(f"sink {str(what)!r}: expected a path that ends in {' or '.join(kinds)}, or a callable")
        return kind(what)
    if isinstance(what, Sink):
        return what
    if callable(what):
        expect_function("sink", what, "row")
        return Call(what)
    raise InputError(
        f"sink {what!r}: expected a path, a callable that takes a row, or an object with write, sync, close"
    )


def _complete(file: io.FileIO) -> int:
    """Bytes up to the end of the last complete line."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 65536)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _column(polars: Any, name: str, values: list[Number | None]) -> Any:
    """A column; where kinds of numbers are mixed, the widest."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool} and kinds:
        return polars.Series(name, values, polars.Boolean)
    if kinds <= {bool, int} and kinds:
        return polars.Series(name, [None if v is None else int(v) for v in values], polars.Int64)
    return polars.Series(name, [None if v is None else float(v) for v in values], polars.Float64)


class TensorBoard:
    """Scalars for TensorBoard, each under its name and step; what is not finite is left out.

    ``tensorboard --logdir FOLDER`` shows them; it listens on this machine only unless told otherwise.
    """

    def __init__(self, folder: str | Path) -> None:
        """Args:
        folder: of the event files.

        Raises:
            MissingExtra: tensorboard is not installed.
        """
        need("tensorboard", "tensorboard", "show metrics in TensorBoard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def write(self, row: Row) -> None:
        """See `Sink`."""
        for name, value in row.items():
            if name != "step" and value is not None and math.isfinite(value):
                self._writer.add_scalar(name, value, row["step"])

    def sync(self) -> None:
        """See `Sink`."""
        self._writer.flush()

    def close(self) -> None:
        """See `Sink`."""
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases; with ``mode="offline"`` nothing leaves the machine until ``wandb sync``."""

    def __init__(self, **init: Any) -> None:
        """Args:
        **init: arguments of `wandb.init`: project, name, config, mode, dir, …

        Raises:
            MissingExtra: wandb is not installed.
        """
        self._run = need("wandb", "wandb", "send metrics to Weights & Biases").init(**init)

    def write(self, row: Row) -> None:
        """See `Sink`."""
        self._run.log({name: value for name, value in row.items() if name != "step"}, step=row["step"])

    def sync(self) -> None:
        """See `Sink`; wandb's own process does it."""

    def close(self) -> None:
        """See `Sink`."""
        self._run.finish()
