"""A bounded ring of host buffers: tensors leave the device on a side stream while the compute stream goes on.

The ring knows nothing of disks or steps. One thread puts tensors in, another takes buffers out and hands them back;
where none is free, putting waits, so memory stays bounded.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen.errors import CapacityError
from denizen.run._room import out_of_memory

BYTES = 128 << 20  # of buffers, unless two snapshots take more
MOST = 8
ALIGN = 64


class Slot:
    """One buffer.

    Attributes:
        tensors: views of the buffer, in the ring's layout.
        place: what `Ring.put` was given.
        done: event behind the copy; None where copies are done at once.
        held: tensors that the copy reads, kept alive until it is done.
    """

    __slots__ = ("done", "held", "place", "tensors")

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors, self.place = tensors, -1
        self.done: Any = None
        self.held: tuple[Tensor, ...] = ()


class Ring:
    """Buffers in host memory, pinned where the device is CUDA.

    Attributes:
        changed: guards `filled` and the free slots; notified when they change.
        filled: slots with a copy in them or on its way, oldest first.
        slots: number of buffers.
        nbytes: of all buffers.
        puts: copies so far.
        waits: how often putting had to wait for a free buffer.
        seconds_waited: in total.
    """

    def __init__(
        self, device: torch.device, layout: Sequence[tuple[tuple[int, ...], torch.dtype]], slots: int | None = None
    ) -> None:
        """Args:
        device: where tensors come from.
        layout: shape and dtype of each tensor.
        slots: number of buffers; None takes 2 to 8, by size.
        """
        places, one = [], 0
        for shape, dtype in layout:
            size = torch.Size(shape).numel() * dtype.itemsize
            places.append((one, size))
            one += -(-size // ALIGN) * ALIGN
        self.slots = slots or max(2, min(MOST, BYTES // max(one, 1)))
        self.nbytes = self.slots * one
        self.changed = threading.Condition()
        self.filled: deque[Slot] = deque()
        self.puts = self.waits = 0
        self.seconds_waited = 0.0
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._free: deque[Slot] = deque()
        for _ in range(self.slots):
            buffer = self._buffer(one)
            views = [
                buffer[start : start + size].view(dtype).view(shape)
                for (start, size), (shape, dtype) in zip(places, layout, strict=True)
            ]
            self._free.append(Slot(views))

    def _buffer(self, size: int) -> Tensor:
        try:
            return torch.empty(size, dtype=torch.uint8, pin_memory=self._stream is not None)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            raise CapacityError(
                f"snapshots: {self.slots} buffers of {size / 2**30:,.2f} GiB do not fit into the host's memory; keep "
                f"fewer fields or narrower ones (fields=), or set fewer buffers (slots=)"
            ) from error

    @property
    def full(self) -> bool:
        """Whether putting would have to wait."""
        return not self._free

    def put(self, sources: Sequence[Tensor], place: int, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Copy tensors into the next free buffer, behind what the current stream has been given so far.

        Args:
            sources: in the layout of the ring. On CUDA they are read later: nothing may write to them any more.
            place: a number for whoever takes the buffer out.
            give_up: asked while waiting.

        Returns:
            False where `give_up` said so.
        """
        self._let_go()
        slot = self._next_free(give_up)
        if slot is None:
            return False
        try:
            self._copy(slot, sources)
        except BaseException:
            slot.held = ()
            with self.changed:
                self._free.append(slot)
                self.changed.notify_all()
            raise
        slot.place = place
        with self.changed:
            self.puts += 1
            self.filled.append(slot)
            self.changed.notify_all()
        return True

    def wait(self, slot: Slot) -> None:
        """Wait until a slot's copy is done; raises what went wrong on the device."""
        if slot.done is not None:
            slot.done.synchronize()
        slot.held = ()

    def hand_back(self, slot: Slot) -> None:
        """Make a slot free again; nobody may read its tensors from then on."""
        with self.changed:
            slot.held = ()
            self._free.append(slot)
            self.changed.notify_all()

    def _let_go(self) -> None:
        """Give up sources whose copy is done, so that a slow disk holds no memory of the device."""
        with self.changed:
            for slot in self.filled:
                if slot.held and slot.done.query():
                    slot.held = ()

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

    def _copy(self, slot: Slot, sources: Sequence[Tensor]) -> None:
        if self._stream is None:
            for buffer, source in zip(slot.tensors, sources, strict=True):
                buffer.copy_(source)
            return
        made = torch.cuda.Event()
        made.record(torch.cuda.current_stream(self._stream.device))
        slot.held = tuple(sources)
        slot.done = torch.cuda.Event(blocking=True)  # the thread that waits for it sleeps
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(made)
            for buffer, source in zip(slot.tensors, sources, strict=True):
                buffer.copy_(source, non_blocking=True)
            slot.done.record(self._stream)
