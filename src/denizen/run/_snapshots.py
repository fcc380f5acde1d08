"""Snapshots: chosen fields of the state every k steps, copied off the device and written while the simulation runs."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from denizen.errors import CapacityError, InputError, nearest
from denizen.model import State, plain
from denizen.run._atomic import uninterrupted
from denizen.run._narrow import Form, chosen, narrow, widen
from denizen.run._ring import Ring
from denizen.run._writer import Sink, Writer, arrays


@dataclasses.dataclass(frozen=True)
class Snapshots:
    """What to keep of the states along a run.

    Attributes:
        every: steps between snapshots; the first is the initial state.
        fields: names of fields, or None for all; or a mapping from names to the dtype to store, None for as it is.
            Fewer fields and narrower dtypes make smaller files and less traffic. Masks are stored as bits, eight
            agents to a byte, unless a dtype is given. What is read has the state's dtype again.
        slots: buffers in host memory between the device and what writes; None takes 2 to 8, by size. Where all are
            full the simulation waits.

    Examples:
        >>> Snapshots(every=10, fields={"infected": None, "weight": torch.float16})
        Snapshots(every=10, fields={'infected': None, 'weight': torch.float16}, slots=None)
    """

    every: int
    fields: Sequence[str] | Mapping[str, torch.dtype | None] | None = None
    slots: int | None = None


class SnapshotStore:
    """The snapshots of a run: what leaves the device at due steps, and where it is kept.

    Attributes:
        every: steps between snapshots.
        forms: how each field is stored.
        ring: buffers between the device and the writer; counts how often and how long the simulation waited.
    """

    def __init__(self, wanted: Snapshots, state: State) -> None:
        """Checks the fields against the state and takes the first snapshot."""
        tensors = {name: plain(getattr(state, name)) for name in state.kinds}
        self.every = wanted.every
        self.forms = chosen(wanted.fields, state.kinds, tensors)
        layout = [
            (form.shape(tuple(tensors[name].shape)), getattr(torch, form.hosted)) for name, form in self.forms.items()
        ]
        device = next(iter(tensors.values())).device
        self.ring = Ring(device, layout, wanted.slots)
        self._writer = Writer(self.ring, Kept())
        self._copied = device.type == "cpu"  # at once, so that the state may be copied from
        self._misfits: dict[str, Tensor] = {}
        self.put(0, state)

    @property
    def sink(self) -> Sink:
        """Where snapshots are kept."""
        return self._writer.sink

    @property
    def nbytes(self) -> int:
        """Of host memory: buffers, and snapshots that no folder keeps."""
        return self.ring.nbytes + self.sink.nbytes

    def due(self, step: int) -> bool:
        """Whether a snapshot is kept after `step` steps."""
        return step % self.every == 0

    def count(self, steps: int) -> int:
        """Snapshots of a run of so many steps."""
        return steps // self.every + 1

    def whole_pieces(self, start: int, size: int) -> int:
        """The size of a chunk from step `start` on, cut at its last snapshot.

        Captured pieces between snapshots then have one length, or two, and each length is a graph of its own.
        """
        last = (start + size) // self.every * self.every
        return last - start if last > start else size

    def put(self, step: int, state: State) -> None:
        """Take a snapshot; waits where all buffers are full.

        Raises:
            StorageError: an earlier one could not be written.
        """
        writer, sources = self._writer, []
        writer.raise_error()
        for name, form in self.forms.items():
            field = plain(getattr(state, name)).detach()
            stored, bad = narrow(form, field)
            sources.append(stored if self._copied else _private(stored, field))
            if bad is not None:
                self._misfits[name] = bad if name not in self._misfits else self._misfits[name] | bad
        while not self.ring.put(sources, step // self.every, writer.failed):
            if writer.running:
                writer.raise_error()
            else:
                writer.flush()

    def check(self, when: Callable[[], str]) -> None:
        """Read whether all values did fit since the last check; one read on the host, and none where all must.

        Raises:
            CapacityError: names the field and the dtype.
        """
        if not self._misfits:
            return
        misfits, self._misfits = self._misfits, {}
        for name, bad in zip(misfits, torch.stack(list(misfits.values())).tolist(), strict=True):
            if bad:
                form = self.forms[name]
                raise CapacityError(
                    f"snapshots: field {name!r} has {form.dtype} values that {form.stored} cannot hold, {when()}; "
                    f"store it in a wider dtype, or as it is: Snapshots(every={self.every}, fields={{{name!r}: None}})"
                )

    def drop(self, steps: int) -> None:
        """Take back the snapshots behind so many steps: their chunk failed."""
        self._misfits = {}
        with (
            uninterrupted(),
            contextlib.suppress(OSError),
        ):  # what cannot be cut off now is written over, or cut off by a resume
            self._writer.drop(self.count(steps))

    def at_work(self) -> contextlib.AbstractContextManager[None]:
        """While the block runs, a thread writes."""
        return self._writer.at_work()

    def flush(self) -> None:
        """Return when all snapshots are where they are kept, and safe there.

        Raises:
            StorageError: one could not be written; it is still in memory.
        """
        self._writer.flush()

    def copy_to(self, sink: Sink, steps: int) -> None:
        """Write all snapshots of so many steps to another sink and make them safe there; nothing changes here."""
        pending = {slot.place: slot for slot in self.ring.filled}
        for place in range(self.count(steps)):
            if place in pending:
                self.ring.wait(pending[place])
                sink.write(place, arrays(pending[place]))
            else:
                sink.write(place, [self.sink.read(place, field) for field in range(len(self.forms))])
        sink.sync()

    def keep_in(self, sink: Sink) -> None:
        """From now on keep snapshots in a sink that has all that were taken so far."""
        self._writer.hand_over(sink)

    def __str__(self) -> str:
        named = [f"{name} as {form.stored}" if form.stored != form.dtype else name for name, form in self.forms.items()]
        return f"every {self.every} steps of {', '.join(named)}; {self.ring.slots} buffers"

    def view(self, steps: int) -> "SnapshotView":
        """The snapshots of so many steps, to read from."""
        self.flush()
        return SnapshotView(self.forms, [place * self.every for place in range(self.count(steps))], self.sink)


def _private(stored: Tensor, field: Tensor) -> Tensor:
    """What is stored, dense and in memory of its own: it is copied while later steps write to the field's."""
    if stored.untyped_storage().data_ptr() == field.untyped_storage().data_ptr():
        return stored.clone(memory_format=torch.contiguous_format)
    return stored.contiguous()


class Kept:
    """Snapshots in host memory."""

    def __init__(self) -> None:
        self._taken: list[list[np.ndarray]] = []

    def write(self, place: int, arrays: list[np.ndarray]) -> None:
        """See `Sink`."""
        self._taken[place:] = [[values.copy() for values in arrays]]

    def sync(self) -> None:
        """Memory is as safe as the process."""

    def trim(self, count: int) -> None:
        """See `Sink`."""
        del self._taken[count:]

    def read(self, place: int, field: int) -> np.ndarray:
        """See `Sink`."""
        return self._taken[place][field]

    @property
    def nbytes(self) -> int:
        """See `Sink`."""
        return sum(values.nbytes for taken in self._taken for values in taken)


class Source(Protocol):
    """What snapshots are read from."""

    def read(self, place: int, field: int) -> np.ndarray:
        """A field of a snapshot, as it was written."""
        ...


class SnapshotView(Mapping[str, Tensor]):
    """Snapshots to read: a field by name, ``"step"``, or all fields at a step. Tensors are on the CPU.

    A field is read when it is asked for, so that no more than it has to fit into memory.
    """

    def __init__(self, forms: Mapping[str, Form], steps: Sequence[int], sink: "Source") -> None:
        self._forms, self._steps, self._sink = forms, list(steps), sink

    def __getitem__(self, name: str) -> Tensor:
        """A field `[replicates, snapshots, …]` in the state's dtype, or ``"step"``, int64 `[snapshots]`.

        Raises:
            DataError: the run folder that holds it was damaged.
        """
        if name == "step":
            return torch.tensor(self._steps)
        first = self._one(name, 0)
        whole = first.new_empty(first.shape[0], len(self._steps), *first.shape[1:])
        whole[:, 0] = first
        for place in range(1, len(self._steps)):
            whole[:, place] = self._one(name, place)
        return whole

    def at(self, step: int) -> dict[str, Tensor]:
        """Every field `[replicates, …]` after `step` steps."""
        if step not in self._steps:
            raise InputError(f"snapshots.at({step!r}): there are snapshots after steps {_some(self._steps)}")
        # Clones: a field that is stored as it is may share the memory in which it is kept.
        return {name: self._one(name, self._steps.index(step)).clone() for name in self._forms}

    def _one(self, name: str, place: int) -> Tensor:
        if name not in self._forms:
            raise InputError(f"snapshots[{name!r}]: this field was not kept; {nearest(name, self._forms)}")
        return widen(self._forms[name], self._sink.read(place, list(self._forms).index(name)))

    def __contains__(self, name: object) -> bool:
        return name == "step" or name in self._forms

    def __iter__(self) -> Iterator[str]:
        return iter((*self._forms, "step"))

    def __len__(self) -> int:
        return len(self._forms) + 1

    def __repr__(self) -> str:
        return f"snapshots of {', '.join(self._forms)} after steps {_some(self._steps)}"


def _some(steps: Sequence[int]) -> str:
    shown = [str(step) for step in steps]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:4], "…", *shown[-2:]])
