"""Snapshots: chosen fields of the state every k steps, copied off the device and written while the simulation runs."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from denizen import ops
from denizen._atomic import uninterrupted
from denizen.errors import CapacityError, InputError, nearest
from denizen.model import State, plain
from denizen.run._narrow import Form, chosen, narrow, widen
from denizen.run._ring import Pack, Ring
from denizen.run._writer import Sink, Writer, arrays

APART = 1 << 20  # entries from which a launch for each snapshot costs less than one pass more over all of them
GROUP_BYTES = 64 << 20  # of fields that a group of snapshots keeps on the device, before they are narrowed


@dataclasses.dataclass(frozen=True)
class Snapshots:
    """What to keep of the states along a run.

    Attributes:
        every: steps between snapshots; the first is the initial state.
        fields: names of fields, or None for all; or a mapping from names to the dtype to store, None for as it is.
            Fewer fields and narrower dtypes make smaller files and less traffic. Masks are stored as bits, eight
            agents to a byte, stages in the 2 or 4 bits that their levels take, unless a dtype is given. What is read
            has the state's dtype again.
        slots: buffers in host memory between the device and what writes; None takes 2 to 32, by size. Where all are
            full the simulation waits.
        places: x and y of each agent, `[agents]` each, for who draws the run; None where the model has fields x and y,
            or none has a place.

    Examples:
        >>> Snapshots(every=10, fields={"infected": None, "weight": torch.float16})
        Snapshots(every=10, fields={'infected': None, 'weight': torch.float16}, slots=None)
    """

    every: int
    fields: Sequence[str] | Mapping[str, torch.dtype | None] | None = None
    slots: int | None = None
    places: tuple[Tensor, Tensor] | None = dataclasses.field(default=None, repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class Group:
    """Snapshots that leave the device together.

    Attributes:
        pack: what is stored of them, side by side.
        bad: bool `[checked fields]`, whether a value did not fit; None where all must.
    """

    pack: Pack
    bad: Tensor | None


class SnapshotStore:
    """The snapshots of a run: what leaves the device at due steps, and where it is kept.

    Attributes:
        every: steps between snapshots.
        forms: how each field is stored.
        places: x and y of each agent, where they were given.
        ring: buffers between the device and the writer; counts how often and how long the simulation waited.
        seconds: that handing snapshots over took the simulation.
    """

    def __init__(self, wanted: Snapshots, state: State) -> None:
        """Checks the fields against the state and takes the first snapshot."""
        tensors = {name: plain(getattr(state, name)) for name in state.kinds}
        self.every, self.places = wanted.every, wanted.places
        self.forms = chosen(wanted.fields, state)
        layout = [
            (form.shape(tuple(tensors[name].shape)), getattr(torch, form.hosted)) for name, form in self.forms.items()
        ]
        self.ring = Ring(next(iter(tensors.values())).device, layout, wanted.slots)
        self.seconds = 0.0
        self._bytes = sum(tensors[name].nbytes for name in self.forms)  # of a snapshot, before it is narrowed
        self._writer = Writer(self.ring, Kept())
        self._misfits: Tensor | None = None
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

    def whole_groups(self, start: int, size: int) -> int:
        """The size of a captured chunk from step `start` on: made longer to end with a whole group, or a snapshot.

        Captured pieces then have few lengths, and each length is a graph of its own.
        """
        lead = -start % self.every
        for unit in (self.ring.most * self.every, self.every):
            if size >= lead + unit:
                return lead + -(-(size - lead) // unit) * unit
        return lead if 0 < lead <= size else size

    def gather(self, longest: int) -> None:
        """From now on have room for groups: all snapshots of up to `longest` steps, within `GROUP_BYTES`.

        Raises:
            StorageError: an earlier snapshot could not be written.
        """
        most = min(longest // self.every, GROUP_BYTES // max(self._bytes, 1), self.ring.room())
        self.flush()
        self.ring.regroup(max(most, 1))

    def put(self, step: int, state: State) -> None:
        """Take a snapshot; waits where all buffers are full.

        Raises:
            StorageError: an earlier one could not be written.
        """
        self._put(step, 1, lambda pack: self._note(self._narrow([self.fields(state)], pack)))

    def put_group(self, step: int, group: Group) -> None:
        """Take over copies of snapshots, of which the first is that after `step` steps; otherwise as `put`."""

        def fill(pack: Pack) -> None:
            pack.buffer.copy_(group.pack.buffer)
            self._note(group.bad)

        self._put(step, group.pack.count, fill)

    def fields(self, state: State) -> list[Tensor]:
        """What is to be kept of a state, as it is."""
        return [plain(getattr(state, name)).detach() for name in self.forms]

    def group(self, taken: list[list[Tensor]]) -> Group:
        """Narrow the fields of several states, with few kernels and without a word from the host."""
        pack = self.ring.pack(len(taken))
        return Group(pack, self._narrow(taken, pack))

    def _narrow(self, taken: list[list[Tensor]], pack: Pack) -> Tensor | None:
        """Write fields into a pack as they are stored; whether a value of each checked field did not fit."""
        misfits = []
        for form, target, column in zip(self.forms.values(), pack.tensors, zip(*taken, strict=True), strict=True):
            if form.bits:
                apart = column[0].numel() >= APART
                for one, place in zip(column, target, strict=True) if apart else [(_stack(column), target)]:
                    ops.pack(one, form.bits, place)
                continue
            if form.stored == form.dtype and len(column) > 1:
                _stack(column, target)
                continue
            stored, bad = narrow(form, _stack(column))
            target.copy_(stored)
            if bad is not None:
                misfits.append(bad)
        return torch.stack(misfits) if misfits else None

    def _note(self, bad: Tensor | None) -> None:
        if bad is not None:
            self._misfits = bad.clone() if self._misfits is None else self._misfits | bad

    def _put(self, step: int, count: int, fill: Callable[[Pack], None]) -> None:
        began, writer = time.perf_counter(), self._writer
        writer.raise_error()
        while not self.ring.put(fill, step // self.every, count, writer.failed):
            if writer.running:
                writer.raise_error()
            else:
                writer.flush()
        self.seconds += time.perf_counter() - began

    def check(self, when: Callable[[], str]) -> None:
        """Read whether all values did fit since the last check; one read on the host, and none where all must.

        Raises:
            CapacityError: names the field and the dtype.
        """
        if self._misfits is None:
            return
        misfits, self._misfits = self._misfits.tolist(), None
        checked = [(name, form) for name, form in self.forms.items() if form.checked]
        for (name, form), bad in zip(checked, misfits, strict=True):
            if bad:
                raise CapacityError(
                    f"snapshots: field {name!r} has {form.dtype} values that {form.stored} cannot hold, {when()}; "
                    f"store it in a wider dtype, or as it is: Snapshots(every={self.every}, fields={{{name!r}: None}})"
                )

    def drop(self, steps: int) -> None:
        """Take back the snapshots behind so many steps: their chunk failed."""
        self._misfits = None
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
        self.ring.send()
        pending = [part for slot in self.ring.filled for part in slot.parts]
        for place in range(pending[0].place if pending else self.count(steps)):
            sink.write(place, [self.sink.read(place, field)[None] for field in range(len(self.forms))])
        for slot in self.ring.filled:
            self.ring.wait(slot)
            for part in slot.parts:
                sink.write(part.place, arrays(part))
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


def _stack(column: tuple[Tensor, ...], out: Tensor | None = None) -> Tensor:
    """`torch.stack`, by the widest entries that bytes can be read as: it copies entries one by one, however narrow."""
    first = column[0]
    if len(column) == 1 and out is None:
        return first[None]
    out = first.new_empty(len(column), *first.shape) if out is None else out
    for dtype in (torch.int64, torch.int32, torch.int16):
        size = dtype.itemsize
        if size <= first.itemsize or not first.nbytes:
            break
        in_place = all(one.is_contiguous() and one.data_ptr() % size == 0 for one in (*column, out))
        if in_place and first.nbytes % size == 0:
            wide = [one.view(first.numel()).view(dtype) for one in column]
            torch.stack(wide, out=out.view(len(column), first.numel()).view(dtype))
            return out
    return torch.stack(column, out=out)


class Kept:
    """Snapshots in host memory."""

    def __init__(self) -> None:
        self._taken: list[list[np.ndarray]] = []

    def write(self, place: int, arrays: list[np.ndarray]) -> None:
        """See `Sink`."""
        copies = [values.copy() for values in arrays]
        self._taken[place:] = [[values[k] for values in copies] for k in range(len(copies[0]))]

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
