"""Metrics that leave the device without anybody waiting: a ring of buffers, one copy per update, a thread that writes.

`MetricsWriter.log` puts the values of an update into one buffer on the device, starts one copy to the host, records an
event behind it and returns. A thread waits for that event and hands the numbers, in order, to the sinks of `_sinks`.
"""

import atexit
import dataclasses
import threading
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from denizen._arguments import whole
from denizen.errors import InputError
from denizen.perf.watch import SIMULATED
from denizen.tools._sinks import Number, Row, Sink, as_sink

ALIGN = 8
RESERVED = ("step",)


class _Slot:
    """A buffer on the device, the buffer on the host that it is copied to, and the event behind that copy."""

    __slots__ = ("device", "done", "host")

    def __init__(self) -> None:
        self.device = self.host = torch.empty(0, dtype=torch.uint8)
        self.done: Any = None


@dataclasses.dataclass
class _Record:
    """An update on its way to the sinks.

    Attributes:
        step: what `log` was given.
        values: numbers by name, in the order of `log`; None until they are read out of the slot.
        slot: where those are that come from the device.
        places: name, dtype and offset in bytes of each of them.
        sinks: those that still have to take the update over.
    """

    step: int
    values: dict[str, Number | None]
    slot: _Slot | None
    places: list[tuple[str, torch.dtype, int]]
    sinks: list[Sink]


class MetricsWriter:
    """Logs values of a training loop without a host read in the loop.

    ```python
    with MetricsWriter("metrics.jsonl") as metrics:
        for step in range(steps):
            loss, norm = update()
            metrics.log(step, {"loss": loss, "norm": norm, "rate": 3e-4})
    ```

    The file is the one that a plain log would have written: same order, same step numbers, same values. What was
    logged is written when the block ends, when the process ends, and when it ends by an exception. A process that is
    killed outright loses what was still on the device, a few updates at most.

    Attributes:
        dropped: updates that were left out because the ring was full; always 0 unless `drop` is set.
    """

    def __init__(self, *sinks: Any, slots: int = 64, drop: bool = False) -> None:
        """Args:
        sinks: where rows go: a path that ends in ``.jsonl`` or ``.parquet``, a callable that takes a row (a dictionary
            with ``step`` first), or a `Sink`.
        slots: updates under way at most.
        drop: where all slots are taken, leave the update out and count it, instead of waiting for a slot.

        Raises:
            InputError: no sink, or one that cannot be used.
        """
        if not sinks:
            raise InputError('MetricsWriter needs a sink: MetricsWriter("metrics.jsonl") or a callable')
        whole("MetricsWriter", "slots", slots, 1)
        self.drop, self.dropped = drop, 0
        self._sinks = [as_sink(sink) for sink in sinks]
        self._changed = threading.Condition()
        self._free: deque[_Slot] = deque(_Slot() for _ in range(slots))
        self._filled: deque[_Record] = deque()
        self._error: BaseException | None = None
        self._stopping = self._closed = False
        self._layouts: dict[tuple[tuple[str, torch.dtype], ...], tuple[list[tuple[str, torch.dtype, int]], int]] = {}
        self._thread: threading.Thread | None = None
        atexit.register(self.close)

    def log(self, step: int, values: Mapping[str, Tensor | Number]) -> bool:
        """Write `values` under `step`, some time soon.

        Args:
            step: number of the update; any order, repeated or not.
            values: numbers, or tensors of one element, on the CPU or on one other device. Names may differ between
                calls.

        Returns:
            Whether it will be written; False only where `drop` is set and the ring was full.

        Raises:
            InputError: a value is no number, or the writer is closed.
            BaseException: what a sink or the device raised for an earlier update, which will be tried again.
        """
        if self._closed:
            raise InputError("log() after close(): the writer takes no more updates; open another one")
        self._raise_error()
        host, remote = self._sorted(values)
        slot = self._next_free()
        if slot is None:
            self.dropped += 1
            return False
        try:
            places = self._copy(slot, remote) if remote else []
        except BaseException:
            self._hand_back(slot)
            raise
        with self._changed:
            self._filled.append(_Record(step, host, slot, places, list(self._sinks)))
            self._changed.notify_all()
        self._start()
        return True

    def flush(self) -> None:
        """Return when all that was logged is written and safe; raises what a sink raised."""
        self._raise_error()
        with self._changed:
            self._changed.wait_for(lambda: not self._filled or self._error is not None)
        self._raise_error()
        for sink in self._sinks:
            sink.sync()

    def close(self) -> None:
        """Write what is left and close the sinks; a second call does nothing.

        Raises:
            BaseException: what a sink or the device raised; the other sinks are closed all the same.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        errors: list[BaseException] = []
        _attempt(errors, self._raise_error)  # an older one; its update is tried again
        _attempt(errors, self._drain)
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        for sink in self._sinks:
            _attempt(errors, sink.close)
        if errors:
            if self._filled:
                errors[0].add_note(f"updates that were not written: {len(self._filled)}")
            raise errors[0]

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BaseException as own:
            if error is None:
                raise
            error.add_note(f"besides, metrics could not be written: {own!r}")

    # --- on the way in ------------------------------------------------------------------------------------------------

    def _sorted(self, values: Mapping[str, Tensor | Number]) -> tuple[dict[str, Number | None], dict[str, Tensor]]:
        """Numbers that are here (None holds the place of others), and tensors that are on the device."""
        host: dict[str, Number | None] = {}
        remote: dict[str, Tensor] = {}
        for name, value in values.items():
            if name in RESERVED or not isinstance(name, str):
                raise InputError(f"metric {name!r}: expected a name other than {', '.join(RESERVED)}")
            if isinstance(value, Tensor):
                self._check(name, value)
                if not _far(value.device):
                    host[name] = value.item()
                else:
                    host[name], remote[name] = None, value
            elif isinstance(value, (bool, int, float)):
                host[name] = value
            elif hasattr(value, "item") and getattr(value, "size", None) == 1:  # NumPy
                host[name] = value.item()
            else:
                raise InputError(f"metric {name!r} is a {type(value).__name__}: expected a number or a tensor of one")
        devices = {str(value.device) for value in remote.values()}
        if len(devices) > 1:
            raise InputError(f"metrics of one update are on {' and '.join(sorted(devices))}; bring them to one device")
        return host, remote

    @staticmethod
    def _check(name: str, value: Tensor) -> None:
        if value.numel() != 1:
            raise InputError(
                f"metric {name!r} is a tensor of shape {list(value.shape)}: expected one element, such as its mean()"
            )
        if value.is_complex():
            raise InputError(f"metric {name!r} is complex: log its abs(), or real and imaginary parts")

    def _copy(self, slot: _Slot, remote: dict[str, Tensor]) -> list[tuple[str, torch.dtype, int]]:
        """Start one copy of all the values into the host's buffer; behind it comes the slot's event."""
        with torch.inference_mode(False), torch.no_grad():  # buffers serve calls in any mode
            return self._copy_plain(slot, remote)

    def _copy_plain(self, slot: _Slot, remote: dict[str, Tensor]) -> list[tuple[str, torch.dtype, int]]:
        places, size = self._layout(remote)
        device = next(iter(remote.values())).device
        if slot.device.numel() < size or slot.device.device != device:
            slot.device = torch.empty(size, dtype=torch.uint8, device=device)
            slot.host = torch.empty(size, dtype=torch.uint8, pin_memory=_copies_late(device))
            slot.done = torch.cuda.Event(blocking=True) if _has_events(device) else None  # who waits for it sleeps
        start = 0
        for dtype, group in _by_dtype(remote):
            stop = start + len(group) * dtype.itemsize
            torch.stack(group, out=slot.device[start:stop].view(dtype))
            start = _aligned(stop)
        slot.host[:size].copy_(slot.device[:size], non_blocking=_copies_late(device))
        if slot.done is not None:
            slot.done.record(torch.cuda.current_stream(device))
        return places

    def _layout(self, remote: dict[str, Tensor]) -> tuple[list[tuple[str, torch.dtype, int]], int]:
        """Where in a buffer each value goes, and bytes in all; worked out once for each set of names."""
        key = tuple((name, value.dtype) for name, value in remote.items())
        if key not in self._layouts:
            places, start = [], 0
            for dtype in dict.fromkeys(dtype for _, dtype in key):
                for name in (name for name, own in key if own is dtype):
                    places.append((name, dtype, start))
                    start += dtype.itemsize
                start = _aligned(start)
            self._layouts[key] = places, start
        return self._layouts[key]

    def _next_free(self) -> _Slot | None:
        with self._changed:
            if not self._free and not self.drop:
                self._changed.wait_for(lambda: self._free or self._error is not None)
                if not self._free:
                    error, self._error = self._error, None
                    assert error is not None
                    raise error
            return self._free.popleft() if self._free else None

    def _hand_back(self, slot: _Slot) -> None:
        with self._changed:
            self._free.append(slot)
            self._changed.notify_all()

    def _raise_error(self) -> None:
        with self._changed:
            error, self._error = self._error, None
            self._changed.notify_all()  # the thread tries again
        if error is not None:
            raise error

    def _drain(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._filled or self._error is not None)
        self._raise_error()

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="denizen-metrics", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or (self._filled and self._error is None))
                if self._stopping:
                    return
                record = self._filled[0]
            try:
                self._write(record)
            except BaseException as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                continue
            with self._changed:
                self._filled.popleft()
                self._changed.notify_all()

    def _write(self, record: _Record) -> None:
        if record.slot is not None:
            if record.places:
                if record.slot.done is not None:
                    record.slot.done.synchronize()
                for name, dtype, start in record.places:
                    value = record.slot.host[start : start + dtype.itemsize].view(dtype)
                    record.values[name] = value.item()
            self._hand_back(record.slot)
            record.slot = None
        row: Row = {"step": record.step, **record.values}
        while record.sinks:
            record.sinks[0].write(row)
            del record.sinks[0]  # what has it does not get it again when another one fails


def _far(device: torch.device) -> bool:
    """Whether reading from a device would make the host wait."""
    return device.type != "cpu"


def _has_events(device: torch.device) -> bool:
    return device.type == "cuda"


def _copies_late(device: torch.device) -> bool:
    """Whether a copy can be left to itself; elsewhere `log` waits for it. The simulated device copies at once."""
    return device.type in ("cuda", SIMULATED)


def _by_dtype(remote: dict[str, Tensor]) -> list[tuple[torch.dtype, list[Tensor]]]:
    groups: dict[torch.dtype, list[Tensor]] = {}
    for value in remote.values():
        groups.setdefault(value.dtype, []).append(value.detach().reshape(()))
    return list(groups.items())


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def _attempt(errors: list[BaseException], action: Any) -> None:
    try:
        action()
    except BaseException as error:
        errors.append(error)
