"""Logged events in a run folder: Parquet files, one for each event and save, which any reader of Parquet takes."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from denizen._results import Rows
from denizen._run_folder import Part, content
from denizen._run_folder import write as write_part
from denizen.errors import DataError, InputError, need
from denizen.run._event_log import joined
from denizen.run._manifest import Logged, Manifest

if TYPE_CHECKING:
    from denizen.run._run import Run

PURPOSE = "keep a log of events, which is Parquet,"


def stems(names: Sequence[str]) -> dict[str, str]:
    """How the files of each event begin.

    Raises:
        InputError: two events would have the same files.
    """
    made = {name: re.sub(r"[^\w]+", "-", name) for name in names}
    for name, stem in made.items():
        if list(made.values()).count(stem) > 1:
            raise InputError(f"log: {name!r} and another event have the same files, events/{stem}-…; rename one")
    return made


def write(path: Path, old: Manifest, run: "Run") -> tuple[Logged, ...]:
    """Write the rows of the steps since a manifest; what the next one says of them."""
    polars = need("polars", "tables", PURPOSE)
    number, before = len(old.metrics), {event.name: event.parts for event in old.events or ()}
    made = []
    for name, stem in stems(list(run._events)).items():
        rows = joined(run._events[name])
        begin = int(np.searchsorted(rows["step"], old.steps, side="right"))
        table = run._event_table(name, {column: values[begin:] for column, values in rows.items()})
        buffer = io.BytesIO()
        polars.DataFrame(table.columns).write_parquet(buffer)
        part = write_part(path, f"events/{stem}-{number:05d}.parquet", old.steps + 1, run.steps, buffer.getvalue())
        kinds = {column: str(values.dtype) for column, values in rows.items()}
        made.append(Logged(name, kinds, (*before.get(name, ()), part)))
    return tuple(made)


def read(path: Path, event: Logged) -> Rows:
    """The rows of an event.

    Raises:
        DataError: a file was damaged, or does not hold what the manifest says.
        MissingExtra: polars is not installed.
    """
    return joined([_decode(content(path, part), event, part, str(path / part.file)) for part in event.parts])


def _decode(data: bytes, event: Logged, part: Part, where: str) -> Rows:
    polars = need("polars", "tables", "read a log of events, which is Parquet,")
    try:
        table = polars.read_parquet(io.BytesIO(data), columns=list(event.columns))
        rows = {name: table[name].to_numpy() for name in event.columns}
    except Exception as error:  # polars raises many types for a damaged file
        raise DataError(f"{where} cannot be read as Parquet: {str(error)[:200]}") from error
    for name, kind in event.columns.items():
        if str(rows[name].dtype) != kind:
            raise DataError(f"{where}: column {name!r} is {rows[name].dtype}, expected {kind}")
    steps = rows["step"]
    if len(steps) and not part.first <= int(steps[0]) <= int(steps[-1]) <= part.last:
        raise DataError(f"{where} has events of steps {steps[0]} to {steps[-1]}, expected {part.first} to {part.last}")
    return rows
