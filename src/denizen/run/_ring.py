"""A bounded ring of host buffers: tensors leave the device on a side stream while the compute stream goes on.

The ring knows nothing of disks or steps. What is put in is a pack of one or more entries that lie side by side, so that
it leaves in one copy. One thread puts packs in, another takes buffers out and hands them back; where none is free,
putting waits, so memory stays bounded.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen._watch._observe import SIMULATED
from denizen.errors import CapacityError
from denizen.run._room import out_of_memory

BYTES = 128 << 20  # of buffers, unless two entries take more
FEWEST, MOST = 2, 8
ALIGN = 64
Layout = Sequence[tuple[tuple[int, ...], torch.dtype]]


class Pack:
    """Entries side by side in one buffer.

    Attributes:
        count: number of entries.
        buffer: uint8 `[bytes]`.
        tensors: views of it, `[entries, …]` each.
    """

    __slots__ = ("buffer", "count", "tensors")

    def __init__(self, buffer: Tensor, layout: Layout, count: int) -> None:
        self.count, self.tensors, start = count, list[Tensor](), 0
        for shape, dtype in layout:
            size = count * torch.Size(shape).numel() * dtype.itemsize
            self.tensors.append(buffer[start : start + size].view(dtype).view(count, *shape))
            start += _aligned(size)
        self.buffer = buffer[:start]


class Slot:
    """One buffer of the ring.

    Attributes:
        pack: what is in it.
        place: of the first entry, as `Ring.put` was given it.
        count: entries that are wanted of it.
        taken: entries that whoever takes them out is done with.
        done: event behind the copy; None where copies are done at once.
        held: what the copy reads, kept alive until it is done.
    """

    __slots__ = ("buffer", "count", "done", "held", "pack", "place", "taken")

    def __init__(self, buffer: Tensor) -> None:
        self.buffer, self.place, self.count, self.taken = buffer, -1, 0, 0
        self.pack: Pack | None = None
        self.done: Any = None
        self.held: Tensor | None = None

    def lay_out(self, layout: Layout, count: int) -> None:
        """Make room for so many entries."""
        if self.pack is None or self.pack.count != count:
            self.pack = Pack(self.buffer, layout, count)
        self.count, self.taken = count, 0


class Ring:
    """Buffers in host memory, pinned where the device is CUDA.

    Attributes:
        changed: guards `filled` and the free slots; notified when they change.
        filled: slots with a copy in them or on its way, oldest first.
        slots: number of buffers.
        most: entries that a buffer has room for.
        nbytes: of all buffers.
        puts: copies so far.
        entries: that they brought.
        waits: how often putting had to wait for a free buffer.
        seconds_waited: in total.
    """

    def __init__(self, device: torch.device, layout: Layout, slots: int | None = None) -> None:
        """Args:
        device: where tensors come from.
        layout: shape and dtype of each tensor of an entry.
        slots: number of buffers; None takes 2 to 8, by size.
        """
        self.device, self.changed = device, threading.Condition()
        self.filled: deque[Slot] = deque()
        self.puts = self.entries = self.waits = 0
        self.seconds_waited = 0.0
        self._layout, self._wanted = list(layout), slots
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._pins = device.type in ("cuda", SIMULATED)
        self._set_up(1)

    def regroup(self, most: int) -> None:
        """Make room for up to `most` entries in a buffer; nothing may be in the ring."""
        with self.changed:
            assert len(self._free) == self.slots, "all buffers are free"
            self._set_up(most)

    def room(self) -> int:
        """Entries that a buffer may have room for, so that all buffers together stay within `BYTES`; at least one."""
        return max(1, BYTES // (self._wanted or FEWEST) // max(self.size(1), 1))

    def size(self, count: int) -> int:
        """Bytes of a pack of so many entries."""
        return sum(_aligned(count * torch.Size(shape).numel() * dtype.itemsize) for shape, dtype in self._layout)

    def pack(self, count: int) -> Pack:
        """A new pack on the device, to be filled."""
        buffer = torch.empty(self.size(count), dtype=torch.uint8, device=self.device)
        return Pack(buffer, self._layout, count)

    def _set_up(self, most: int) -> None:
        size = self.size(most)
        slots = self._wanted or max(FEWEST, min(MOST, BYTES // max(size, 1)))
        free = deque(Slot(self._buffer(size, slots)) for _ in range(slots))
        self._free, self.slots, self.most, self.nbytes = free, slots, most, slots * size

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

    @property
    def full(self) -> bool:
        """Whether putting would have to wait."""
        return not self._free

    def put(
        self, fill: Callable[[Pack], None], place: int, count: int = 1, give_up: Callable[[], bool] = lambda: False
    ) -> bool:
        """Let a pack be filled, and bring it into the next free buffer, behind what the current stream has been given.

        Args:
            fill: writes every entry; on CUDA into memory of the device, on the current stream.
            place: a number of the first entry, for whoever takes the buffer out.
            count: entries, up to `most`.
            give_up: asked while waiting.

        Returns:
            False where `give_up` said so; nothing was filled then.
        """
        self._let_go()
        slot = self._next_free(give_up)
        if slot is None:
            return False
        try:
            slot.lay_out(self._layout, count)
            self._copy(slot, fill)
        except BaseException:
            self.hand_back(slot)
            raise
        slot.place = place
        with self.changed:
            self.puts += 1
            self.entries += count
            self.filled.append(slot)
            self.changed.notify_all()
        return True

    def wait(self, slot: Slot) -> None:
        """Wait until a slot's copy is done; raises what went wrong on the device."""
        if slot.done is not None:
            slot.done.synchronize()
        slot.held = None

    def hand_back(self, slot: Slot) -> None:
        """Make a slot free again; nobody may read its tensors from then on."""
        with self.changed:
            slot.held = None
            self._free.append(slot)
            self.changed.notify_all()

    def _let_go(self) -> None:
        """Give up packs whose copy is done, so that a slow disk holds no memory of the device."""
        with self.changed:
            for slot in self.filled:
                if slot.held is not None and slot.done.query():
                    slot.held = None

    def _next_free(self, give_up: Callable[[], bool]) -> Slot | None:
        with self.changed:
            if not self._free:
                began = time.perf_counter()
                self.waits += 1
                try:
                    self.changed.wait_for(lambda: self._free or give_up())
                finally:
                    self.seconds_waited += time.perf_counter() - began
            return self._free.popleft() if self._free else None

    def _copy(self, slot: Slot, fill: Callable[[Pack], None]) -> None:
        assert slot.pack is not None, "laid out"
        if not self._pins:
            fill(slot.pack)
            return
        # In memory of its own: later steps may write to what it was filled from while it is copied.
        pack = self.pack(slot.count)
        fill(pack)
        if self._stream is None:  # the simulated device, which copies at once
            slot.pack.buffer.copy_(pack.buffer, non_blocking=True)
            return
        made = torch.cuda.Event()
        made.record(torch.cuda.current_stream(self._stream.device))
        slot.held = pack.buffer
        slot.done = torch.cuda.Event(blocking=True)  # the thread that waits for it sleeps
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(made)
            slot.pack.buffer.copy_(pack.buffer, non_blocking=True)
            slot.done.record(self._stream)


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
