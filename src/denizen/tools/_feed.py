"""How batches get to a device ahead of time: pinned slots, a copy stream, an event behind each copy, a thread.

Nothing here knows of epochs or reports; `PrefetchLoader` does.
"""

import copy
import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor

PHASES = ("copy", "load", "pin")  # of a batch, in the order in which they happen


@dataclasses.dataclass
class Staged:
    """A batch on its way.

    Attributes:
        batch: with tensors on the device.
        slot: what its copies read from.
        tensors: those on the device.
        late: whether it holds objects that move themselves.
        spent: seconds of the host in each of `PHASES`.
        copied: seconds that the copies of an earlier batch took on the device.
        error: what was raised instead of a batch; `StopIteration` at the end.
    """

    batch: Any = None
    slot: "Slot | None" = None
    tensors: list[Tensor] = dataclasses.field(default_factory=list)
    late: bool = False
    spent: dict[str, float] = dataclasses.field(default_factory=dict)
    copied: float = 0.0
    error: BaseException | None = None


class Slot:
    """Pinned memory for one batch.

    Attributes:
        buffers: one for each tensor, grown where a batch needs more.
        held: pinned tensors of the batch itself, read by the copies without staging.
        began: event in front of the copies.
        copied: event behind them; None before the first.
    """

    __slots__ = ("began", "buffers", "copied", "held")

    def __init__(self) -> None:
        self.buffers: list[Tensor] = []
        self.held: list[Any] = []
        self.began: Any = None
        self.copied: Any = None


class Stager:
    """Copies batches to a CUDA device through slots."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)

    @staticmethod
    def reuse(slot: Slot) -> float:
        """Wait until a slot's memory is no longer read; the seconds that its copies took on the device."""
        seconds = 0.0
        if slot.copied is not None:
            slot.copied.synchronize()
            seconds = slot.began.elapsed_time(slot.copied) / 1e3
        slot.held.clear()
        return seconds

    def stage(self, slot: Slot, batch: Any) -> Staged:
        """Bring a batch into a slot, which is free, and start its copies."""
        staged = Staged(slot=slot)
        began = time.perf_counter()
        pinned = mapped(batch, self._pinner(slot), lambda thing: self._pin_object(staged, slot, thing))
        staged.spent["pin"] = time.perf_counter() - began
        if slot.copied is None:
            slot.began, slot.copied = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self.stream):
            slot.began.record(self.stream)
            staged.batch = mapped(pinned, lambda tensor: self._start(staged, tensor), lambda thing: thing)
            slot.copied.record(self.stream)
        return staged

    def hand_over(self, staged: Staged) -> Any:
        """The batch, for the current stream, which waits for its copies; the host does not."""
        assert staged.slot is not None
        current = torch.cuda.current_stream(self.device)
        current.wait_event(staged.slot.copied)
        for tensor in staged.tensors:
            tensor.record_stream(current)  # or its memory could be given out while this stream still reads it
        if staged.late:
            return mapped(staged.batch, lambda tensor: tensor, lambda thing: _move_object(thing, self.device))
        return staged.batch

    def _start(self, staged: Staged, pinned: Tensor) -> Tensor:
        if pinned.device.type != "cpu":
            return pinned  # the loader has brought it to a device by itself
        tensor = pinned.to(self.device, non_blocking=True)
        staged.tensors.append(tensor)
        return tensor

    @staticmethod
    def _pinner(slot: Slot) -> Callable[[Tensor], Tensor]:
        number = -1

        def pin(tensor: Tensor) -> Tensor:
            nonlocal number
            if tensor.device.type != "cpu":
                return tensor
            if tensor.is_pinned():
                slot.held.append(tensor)
                return tensor
            number += 1
            stride = torch.empty_like(tensor, device="meta").stride()  # as it would have on the device
            elements = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, stride, strict=True)) if tensor.numel() else 0
            nbytes = elements * tensor.element_size()
            if number == len(slot.buffers):
                slot.buffers.append(_pinned(nbytes))
            elif slot.buffers[number].numel() < nbytes:
                slot.buffers[number] = _pinned(nbytes)
            view = slot.buffers[number][:nbytes].view(tensor.dtype).as_strided(tensor.shape, stride)
            view.copy_(tensor)
            return view

        return pin

    @staticmethod
    def _pin_object(staged: Staged, slot: Slot, thing: Any) -> Any:
        staged.late = True
        pins = callable(getattr(thing, "pin_memory", None)) and not isinstance(thing, Tensor)  # no sparse ones
        pinned = thing.pin_memory() if pins else thing
        slot.held.append(pinned)
        return pinned


class Inline:
    """Batches of a loader without workers: fetched when asked for, copied on the side stream."""

    def __init__(self, batches: Iterator[Any], stager: Stager, depth: int) -> None:
        self._batches, self._stager = batches, stager
        self._slots = [Slot() for _ in range(depth)]
        self._next = 0

    def get(self) -> Staged:
        """The next batch."""
        slot = self._slots[self._next]
        self._next = (self._next + 1) % len(self._slots)
        return _produce(self._batches, self._stager, slot)

    def hand_back(self, slot: Slot) -> None:
        """Nothing to do: slots take turns."""

    def close(self) -> None:
        """Nothing to do."""


class Prefetched:
    """Batches of a loader with workers: a thread takes them in, pins them and starts their copies."""

    def __init__(self, batches: Iterator[Any], stager: Stager, depth: int) -> None:
        self._batches, self._stager = batches, stager
        self._free: queue.SimpleQueue[Slot | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[Staged] = queue.SimpleQueue()  # bounded by the number of slots
        self._stopping = False
        for _ in range(depth):
            self._free.put(Slot())
        self._thread = threading.Thread(target=self._loop, name="denizen-prefetch", daemon=True)
        self._thread.start()

    def get(self) -> Staged:
        """The next batch."""
        return self._ready.get()

    def hand_back(self, slot: Slot) -> None:
        """A slot may be used again as soon as its copies are done."""
        self._free.put(slot)

    def close(self) -> None:
        """End the thread; waits for the batch that it is just taking in."""
        self._stopping = True
        self._free.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while (slot := self._free.get()) is not None and not self._stopping:
            staged = _produce(self._batches, self._stager, slot)
            self._ready.put(staged)
            if staged.error is not None:
                return


def _produce(batches: Iterator[Any], stager: Stager, slot: Slot) -> Staged:
    """Fetch a batch and start its copies; what goes wrong is in the result."""
    try:
        began = time.perf_counter()
        copied = stager.reuse(slot)
        free = time.perf_counter()
        batch = next(batches)
        loaded = time.perf_counter()
        staged = stager.stage(slot, batch)
    except StopIteration:
        return Staged(error=StopIteration())  # without frames, which would keep the loader's workers alive
    except BaseException as error:  # raised again by whoever takes it
        return Staged(error=error)
    staged.copied = copied
    staged.spent |= {"copy": free - began, "load": loaded - free}
    return staged


def at_once(batch: Any, device: torch.device) -> Any:
    """The batch on a device without streams, by copies from pinned memory."""
    return mapped(
        batch,
        lambda tensor: tensor.pin_memory().to(device, non_blocking=True),
        lambda thing: _move_object(thing, device),
    )


def mapped(thing: Any, tensor: Callable[[Tensor], Any], mover: Callable[[Any], Any]) -> Any:
    """A nested container of the same types, with plain tensors replaced, and whatever else has a method `to`.

    Mappings, sequences, named tuples and dataclasses are gone into; strings, arrays and whatever else there is stay.
    """
    if type(thing) in (Tensor, torch.nn.Parameter) and thing.layout is torch.strided:
        return tensor(thing)
    if isinstance(thing, (str, bytes)):
        return thing
    if isinstance(thing, Mapping):
        return _like(thing, {key: mapped(value, tensor, mover) for key, value in thing.items()})
    if callable(getattr(thing, "to", None)) and not isinstance(thing, type):
        return mover(thing)
    if isinstance(thing, (list, tuple)):
        values = [mapped(value, tensor, mover) for value in thing]
        if hasattr(thing, "_fields"):
            return type(thing)(*values)
        return values if type(thing) is list else type(thing)(values)
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        clone = copy.copy(thing)
        for field in dataclasses.fields(thing):
            object.__setattr__(clone, field.name, mapped(getattr(thing, field.name), tensor, mover))
        return clone
    return thing


def _like(mapping: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    """The values in a mapping of the given one's type, where that can be made."""
    if type(mapping) is dict:
        return values
    try:
        if isinstance(mapping, MutableMapping):
            clone = copy.copy(mapping)
            clone.update(values)
            return clone
        return type(mapping)(values)  # pyrefly: ignore
    except TypeError:
        return values


def _move_object(thing: Any, device: torch.device) -> Any:
    try:
        return thing.to(device, non_blocking=True)
    except TypeError:
        return thing.to(device)


def _pinned(nbytes: int) -> Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
