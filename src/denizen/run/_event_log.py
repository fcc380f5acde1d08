"""The log of events of a run: a row for each agent to whom something happened, gathered on the device.

Within a chunk of steps rows are appended to buffers of a fixed size, and no number reaches the host. At the end of the
chunk they are put in order, by step, replicate and identity, and leave the device. A chunk whose events found no room
is repeated in halves, so that only a single step with more events than rows is an error.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen import ops
from denizen._arguments import whole
from denizen._results import Rows, as_numbers
from denizen.errors import CapacityError, InputError, ModelError, expect_function
from denizen.rng import BY_ID

FUNCTION = ("model", "before", "happened", "rng")  # what a function that finds out more is given


@dataclasses.dataclass(frozen=True)
class EventLog:
    """Which events of a run get a row for each agent to whom they happened.

    Attributes:
        events: a name that the model records with `rng.record`, several, or a mapping from names to functions that find
            out more: of (model, before, happened, rng), where `before` is the state that the step found, `happened` the
            mask and `rng` has streams of its own. They return columns by name, ``{"by": …}``, as `rng.record` takes
            them; None stands for no function.
        capacity: rows of each event that the device keeps for a replicate until they are read, which happens after many
            steps. Default: the number of agents (or cells, and so on), which no single step exceeds.
    """

    events: str | Sequence[str] | Mapping[str, Callable[..., Mapping[str, Any]] | None]
    capacity: int | None = None

    def named(self, caller: str) -> dict[str, Callable[..., Mapping[str, Any]] | None]:
        """The events by name.

        Raises:
            InputError: for something else than names and functions, none at all, or a capacity below 1.
        """
        given = self.events
        if isinstance(given, str):
            given = [given]
        if not isinstance(given, Mapping | list | tuple) or not given:
            raise InputError(f"{caller}: log: events={self.events!r}, expected names of recorded events, at least one")
        found = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)
        if len(found) < len(given):
            raise InputError(f"{caller}: log: events={given!r} names an event twice")
        for name, function in found.items():
            if not isinstance(name, str) or not name:
                raise InputError(f"{caller}: log: events has {name!r}, expected the name of a recorded event")
            if function is not None:
                expect_function(f"{caller}: log: events[{name!r}]", function, *FUNCTION)
        if self.capacity is not None:
            whole(caller, "log.capacity", self.capacity, 1)
        return found


class FullError(Exception):
    """A chunk had more events than there are rows: name, number of events, position of the world."""

    def __init__(self, event: str, found: int, world: int) -> None:
        super().__init__(event, found, world)
        self.event, self.found, self.world = event, found, world


class Recorder:
    """Gathers the rows of a run's events.

    Attributes:
        names: of the events.
        most: steps of a chunk, by what has found room so far; None for any number.
    """

    def __init__(self, names: Sequence[str], capacity: int | None, worlds: int, device: torch.device) -> None:
        """Args:
        names: of the events.
        capacity: rows of each event and world; None for as many as it can happen to in a step.
        worlds: number of worlds.
        device: where they are.
        """
        self.names, self._capacity = list(names), capacity
        self.most: int | None = None
        self._counts = torch.zeros(len(names), worlds, dtype=torch.int64, device=device)
        self._columns: tuple[tuple[str, ...], ...] | None = None
        self._own: list[list[str]] = []  # columns of each event but for its identities
        self._rows: list[list[Tensor]] = []
        # Of each event what happened in the last steps, for which rows are not written yet, and the first of those.
        self._waiting: list[list[ops.Happened]] = [[] for _ in names]
        self._first: list[tuple[Tensor, Tensor, int]] = [(self._counts, self._counts, -1)] * len(names)

    def begin(self) -> None:
        """A chunk begins: what is there is forgotten."""
        self._counts.zero_()
        self._waiting = [[] for _ in self.names]

    def append(
        self,
        logged: Sequence[Tensor | None],
        columns: tuple[tuple[str, ...], ...],
        step: Tensor,
        races: Sequence[ops.Race | None] | None = None,
        *,
        wait: bool = False,
    ) -> None:
        """The events of a step; reads no value on the host.

        Args:
            logged: for each event its mask int8 `[W, N]` and its columns `[W, N]`.
            columns: names of the columns of each event; ``"id"``, the first one where there is one, holds identities
                that are not 0 … N - 1.
            step: int64 `[]`, number of the step, from 0.
            races: for each event what gives those of its columns that are None.
            wait: rows may be written with those of the steps that follow, at `write` at the latest, until when nothing
                writes to the tensors.
        """
        if self._columns is None:
            self._make(logged, columns)
        if columns != self._columns:
            raise ModelError(f"log: the columns changed from {self._columns} to {columns}; each step records the same")
        tensors = iter(logged)
        races = races or [None] * len(columns)
        for event, (names, race) in enumerate(zip(columns, races, strict=True)):
            mask = next(tensors)
            values = {name: next(tensors) for name in names}
            ids = values.pop("id", None)
            by = list(values).index("by") if "by" in values else -1
            assert mask is not None, "only columns come by races"
            happened = ops.Happened(mask, list(values.values()), race)
            if not self._waiting[event]:
                self._first[event] = (step.new_empty(0) if ids is None else ids, step, by)
            self._waiting[event].append(happened)
            if not wait or ids is not None or happened.alone or len(self._waiting[event]) == ops.TOGETHER:
                self._write(event)

    def write(self) -> None:
        """Write the rows that wait."""
        for event, waiting in enumerate(self._waiting):
            if waiting:
                self._write(event)

    def _write(self, event: int) -> None:
        ops.append_events(self._counts[event], self._rows[event], *self._first[event], self._waiting[event])
        self._waiting[event] = []

    def _make(self, logged: Sequence[Any], columns: tuple[tuple[str, ...], ...]) -> None:
        """The buffers, by what the first step hands over."""
        tensors = iter(logged)
        worlds, device = self._counts.shape[1], self._counts.device
        for event, names in zip(self.names, columns, strict=True):
            mask = next(tensors)
            shape = worlds, self._capacity or max(1, mask.shape[-1])
            kinds = {name: next(tensors).dtype for name in names}
            kinds.pop("id", None)
            if len(kinds) > ops.MOST_COLUMNS:
                raise ModelError(
                    f"log: {event!r} has {len(kinds)} columns ({', '.join(kinds)}), expected at most {ops.MOST_COLUMNS}"
                )
            kinds = {_shown(name): torch.int64 if _shown(name) == "by" else dtype for name, dtype in kinds.items()}
            with torch.inference_mode(False):  # compiled steps, which are in none, write to them too
                dtypes = (torch.int64, torch.int64, *kinds.values())
                self._rows.append([torch.zeros(shape, dtype=dtype, device=device) for dtype in dtypes])
            self._own.append(list(kinds))
        self._columns = columns

    def take(self) -> dict[str, Rows]:
        """The rows of the chunk, by event: columns ``replicate``, ``step`` (from 1), ``id`` and its own, in order.

        Raises:
            FullError: there were more than there are rows.
        """
        if self._columns is None:
            return {}
        counts = self._counts.tolist()
        for event, rows, found in zip(self.names, self._rows, counts, strict=True):
            if max(found) > rows[0].shape[1]:
                raise FullError(event, max(found), found.index(max(found)))
        return {
            event: self._ordered(rows, found, names)
            for event, rows, found, names in zip(self.names, self._rows, counts, self._own, strict=True)
        }

    def _ordered(self, rows: list[Tensor], found: list[int], names: Sequence[str]) -> Rows:
        parts = [torch.cat([row[world, :count] for world, count in enumerate(found)]) for row in rows]
        who, step, *values = parts
        world = torch.repeat_interleave(
            torch.arange(len(found), device=who.device), torch.tensor(found, device=who.device), output_size=sum(found)
        )
        order = torch.argsort(who, stable=True)
        order = order[torch.argsort(world[order], stable=True)]
        order = order[torch.argsort(step[order], stable=True)]
        columns = {
            "replicate": world.to(torch.int32),
            "step": step + 1,
            "id": who,
            **dict(zip(names, values, strict=True)),
        }
        return {name: as_numbers(column[order]) for name, column in columns.items()}

    @property
    def nbytes(self) -> int:
        """Of the buffers."""
        return sum(row.nbytes for rows in self._rows for row in rows)

    def full(self, error: FullError, step: int, world: int) -> CapacityError:
        """What is told of a single step with more events than rows."""
        return CapacityError(
            f"log: step {step} had {error.found:,} events {error.event!r} in world {world}, and capacity="
            f"{self._capacity:,} rows are kept for a step; raise it, "
            f"EventLog(…, capacity={1 << math.ceil(math.log2(error.found))}), or leave it out"
        )


def _shown(column: str) -> str:
    """What a column is called in tables."""
    return "by" if column == BY_ID else column


def joined(parts: Sequence[Rows]) -> Rows:
    """Rows of chunks one behind the other."""
    if not parts:
        return {
            name: np.zeros(0, dtype) for name, dtype in (("replicate", "int32"), ("step", "int64"), ("id", "int64"))
        }
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
