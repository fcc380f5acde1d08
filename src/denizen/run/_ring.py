"""A bounded ring of host buffers: tensors leave the device on a side stream while the compute stream goes on.

The ring knows nothing of disks or steps. What is put in is a pack of one or more entries that lie side by side. Packs
are gathered on the device and leave it together, one copy for as many as a buffer holds: a copy costs the thread that
steps as much as ten steps of a small model. One thread puts packs in, another takes buffers out and
hands them back; where none is free, putting waits, so memory stays bounded.
"""

import dataclasses
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen._atomic import uninterrupted
from denizen.errors import CapacityError
from denizen.perf.watch import SIMULATED, out_of_memory

BYTES = 128 << 20  # of buffers, unless two entries take more
FEWEST, MOST = 2, 8
MANY = 32  # where they take a quarter of that, or less: a disk may think for 50 ms
PACKS = 8  # of the largest to a buffer at most
ALIGN = 64
Layout = Sequence[tuple[tuple[int, ...], torch.dtype]]


class Pack:
    """Entries side by side in one buffer.

    Attributes:
        buffer: uint8 `[bytes]`.
        count: number of entries.
    """

    __slots__ = ("_layout", "buffer", "count")

    def __init__(self, buffer: Tensor, layout: Layout, count: int) -> None:
        self.buffer, self.count, self._layout = buffer, count, layout

    @property
    def tensors(self) -> list[Tensor]:
        """Views of the buffer, `[entries, …]` each."""
        made, start = list[Tensor](), 0
        for shape, dtype in self._layout:
            size = self.count * math.prod(shape) * dtype.itemsize
            made.append(self.buffer[start : start + size].view(dtype).view(self.count, *shape))
            start += _aligned(size)
        return made


@dataclasses.dataclass
class Part:
    """A pack in a slot.

    Attributes:
        pack: in host memory, once the slot's copy is done.
        place: of its first entry, as `Ring.put` was given it.
        count: entries that are wanted of it.
        end: where it ends in the buffer.
    """

    pack: Pack
    place: int
    count: int
    end: int


class Slot:
    """One buffer of the ring.

    Attributes:
        buffer: uint8 `[bytes]`, in host memory.
        parts: what is in it and has not been taken out, one behind the other.
        stage: where packs are gathered, on the device: alive until the copy is done. The buffer itself on the host.
        made: event behind what filled the stage; None where copies are done at once.
        done: event behind the copy.
    """

    __slots__ = ("buffer", "done", "made", "parts", "stage")

    def __init__(self, buffer: Tensor, made: Any, done: Any) -> None:
        self.buffer, self.made, self.done = buffer, made, done
        self.parts: deque[Part] = deque()
        self.stage: Tensor | None = None

    @property
    def used(self) -> int:
        """Bytes that its parts take; for a slot of which nothing has been taken out."""
        return self.parts[-1].end if self.parts else 0

    def trim(self, count: int) -> bool:
        """Forget the entries from place `count` on; whether others are left."""
        while self.parts and self.parts[-1].place >= count:
            self.parts.pop()
        if self.parts:
            self.parts[-1].count = min(self.parts[-1].count, count - self.parts[-1].place)
        return bool(self.parts)


class Ring:
    """Buffers in host memory, pinned where the device is CUDA.

    Attributes:
        changed: guards `filled` and the free slots; notified when they change.
        filled: slots with a copy in them or on its way, oldest first.
        slots: number of buffers.
        wanted: number of buffers that was asked for.
        most: entries that a pack may have.
        nbytes: of all buffers.
        puts: copies so far.
        entries: that were put in.
        waits: how often putting had to wait for a free buffer.
        seconds_waited: in total.
    """

    def __init__(self, device: torch.device, layout: Layout, slots: int | None = None) -> None:
        """Args:
        device: where tensors come from.
        layout: shape and dtype of each tensor of an entry.
        slots: number of buffers; None takes 2 to 32, by size.
        """
        self.device, self.changed = device, threading.Condition()
        self.filled: deque[Slot] = deque()
        self.puts = self.entries = self.waits = 0
        self.seconds_waited = 0.0
        self._layout, self.wanted = list(layout), slots
        self._each = [math.prod(shape) * dtype.itemsize for shape, dtype in layout]
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._pins = device.type in ("cuda", SIMULATED)
        self._open: Slot | None = None  # what the next pack goes to
        self._set_up(1, 1)

    def regroup(self, most: int) -> None:
        """Have room for packs of up to `most` entries, several to a buffer; nothing may be in the ring."""
        with self.changed:
            assert len(self._free) == self.slots, "all buffers are free"
            packs = max(1, min(PACKS, BYTES // (self.wanted or MOST) // max(self.size(most), 1)))
            if self.size(most) * packs != self._room:
                self._set_up(most, packs)
            self.most = most

    def room(self) -> int:
        """Entries that a pack may have, so that all buffers together stay within `BYTES`; at least one."""
        return max(1, BYTES // (self.wanted or FEWEST) // max(self.size(1), 1))

    def size(self, count: int) -> int:
        """Bytes of a pack of so many entries."""
        return sum(_aligned(count * size) for size in self._each)

    def pack(self, count: int) -> Pack:
        """A new pack on the device, to be filled."""
        buffer = torch.empty(self.size(count), dtype=torch.uint8, device=self.device)
        return Pack(buffer, self._layout, count)

    def _set_up(self, most: int, packs: int) -> None:
        size = self.size(most) * packs
        slots = self.wanted or max(FEWEST, min(MOST, BYTES // max(size, 1)), min(MANY, BYTES // 4 // max(size, 1)))
        self._free = deque(Slot(self._buffer(size, slots), *self._events()) for _ in range(slots))
        self.slots, self.most, self.nbytes, self._room = slots, most, slots * size, size

    def _buffer(self, size: int, slots: int) -> Tensor:
        try:
            return torch.empty(size, dtype=torch.uint8, pin_memory=self._pins)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            raise CapacityError(
                f"snapshots: {slots} buffers of {size / 2**30:,.2f} GiB do not fit into the host's memory; keep "
                f"fewer fields or narrower ones (fields=), or set fewer buffers (slots=)"
            ) from error

    def _events(self) -> tuple[Any, Any]:
        if self._stream is None:
            return None, None
        return torch.cuda.Event(), torch.cuda.Event(blocking=True)  # the thread that waits for the second sleeps

    @property
    def full(self) -> bool:
        """Whether putting would have to wait."""
        return not self._free and self._open is None

    def put(
        self, fill: Callable[[Pack], None], place: int, count: int = 1, give_up: Callable[[], bool] = lambda: False
    ) -> bool:
        """Let a pack be filled, behind what the current stream has been given.

        It leaves the device with those after it: once another of its size would not fit beside it, or with `send`.

        Args:
            fill: writes every entry; on CUDA into memory of the device, on the current stream.
            place: a number of the first entry, for whoever takes the buffer out.
            count: entries, up to `most`.
            give_up: asked while waiting.

        Returns:
            False where `give_up` said so; nothing was filled then.
        """
        size = self.size(count)
        if self._open is not None and self._open.used + size > self._room:
            self.send()
        slot = self._open or self._next_free(give_up)
        if slot is None:
            return False
        begin, end = slot.used, slot.used + size
        assert slot.stage is not None, "open"
        # In memory of its own: later steps may write to what it was filled from while it is copied.
        fill(Pack(slot.stage[begin:end], self._layout, count))
        slot.parts.append(Part(Pack(slot.buffer[begin:end], self._layout, count), place, count, end))
        self.entries += count
        if end + size > self._room:
            self.send()
        return True

    def send(self) -> None:
        """Bring what was gathered to the host; returns at once."""
        slot = self._open
        if slot is None:
            return
        self._let_go()
        with uninterrupted():  # Ctrl-C finds it open or filled, never both or neither
            if slot.parts:
                self._copy(slot)
            with self.changed:
                (self.filled if slot.parts else self._free).append(slot)
                self._open = None
                self.puts += bool(slot.parts)
                self.changed.notify_all()

    def wait(self, slot: Slot) -> None:
        """Wait until a slot's copy is done; raises what went wrong on the device."""
        if slot.done is not None and slot.stage is not None:
            slot.done.synchronize()
        slot.stage = None

    def hand_back(self, slot: Slot) -> None:
        """Make a slot free again; nobody may read its tensors from then on."""
        with self.changed:
            slot.stage = None
            slot.parts.clear()
            self._free.append(slot)
            self.changed.notify_all()

    def drop(self, count: int) -> None:
        """Forget the entries from place `count` on."""
        with self.changed:
            if self._open is not None:
                self._open.trim(count)  # stays open, without a word to the device, which may have failed
            for slot in list(self.filled):
                if not slot.trim(count):
                    self.filled.remove(slot)
                    self.hand_back(slot)

    def _let_go(self) -> None:
        """Give up stages whose copy is done, so that a slow disk holds no memory of the device."""
        with self.changed:
            for slot in self.filled:
                if slot.stage is not None and (slot.done is None or slot.done.query()):
                    slot.stage = None

    def _next_free(self, give_up: Callable[[], bool]) -> Slot | None:
        """A free slot, which is open from now on; None where there is none to wait for."""
        with self.changed:
            if not self._free:
                began = time.perf_counter()
                self.waits += 1
                try:
                    self.changed.wait_for(lambda: self._free or give_up())
                finally:
                    self.seconds_waited += time.perf_counter() - began
            if not self._free:
                return None
            slot = self._free[0]
            slot.stage = slot.buffer
            if self._pins:
                slot.stage = torch.empty(self._room, dtype=torch.uint8, device=self.device)
            with uninterrupted():
                self._open = self._free.popleft()
            return slot

    def _copy(self, slot: Slot) -> None:
        if not self._pins:
            return
        assert slot.stage is not None, "open"
        target, source = slot.buffer[: slot.used], slot.stage[: slot.used]
        if self._stream is None:  # the simulated device, which copies at once
            target.copy_(source, non_blocking=True)
            return
        slot.made.record(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(slot.made)
            target.copy_(source, non_blocking=True)
            slot.done.record(self._stream)


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
