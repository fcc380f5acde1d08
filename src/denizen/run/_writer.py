"""The thread that takes snapshots out of a ring and brings them to where they are kept, while the simulation runs."""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from denizen._atomic import uninterrupted
from denizen.run._ring import Part, Ring

# Seconds after which a thread that wants the interpreter's lock gets it. Python's 5 ms are a thousand steps of a small
# model: after a look at the device, which has nothing to do then, whoever steps would wait so long for whoever writes.
SWITCH = 5e-4
_quick: list[float] = []  # of the writers that are at work, what held before the first of them
_quick_changes = threading.Lock()


@contextmanager
def _quick_switches() -> Generator[None]:
    """Let threads take the lock from one another after `SWITCH` seconds; as before when the last such block ends."""
    with _quick_changes:
        _quick.append(_quick[0] if _quick else sys.getswitchinterval())
        sys.setswitchinterval(min(_quick[0], SWITCH))
    try:
        yield
    finally:
        with _quick_changes:
            before = _quick.pop()
            if not _quick:
                sys.setswitchinterval(before)


class Sink(Protocol):
    """Where snapshots are kept, by their place: 0 for the first."""

    def write(self, place: int, arrays: list[np.ndarray]) -> None:
        """Take snapshots over, the first of which is number `place`: each field `[snapshots, …]`, only lent.

        What was written at or behind `place` before is void.
        """
        ...

    def sync(self) -> None:
        """Make what was written safe."""
        ...

    def trim(self, count: int) -> None:
        """Forget all but the first `count`."""
        ...

    def read(self, place: int, field: int) -> np.ndarray:
        """A field of a snapshot, as it was written."""
        ...

    @property
    def nbytes(self) -> int:
        """Of host memory that is taken."""
        ...


class Writer:
    """Writes what is put into a ring.

    A buffer is handed back when the sink has taken its snapshots over; what could not be written stays, and can be
    written again, to the same sink or to another one.

    Attributes:
        ring: where snapshots come from.
        sink: where they go.
        error: what ended the thread, if anything; reset by the next start.
    """

    def __init__(self, ring: Ring, sink: Sink) -> None:
        self.ring, self.sink = ring, sink
        self.error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._busy = self._stopping = self._flushing = False

    @property
    def running(self) -> bool:
        """Whether the thread is at work."""
        return self._thread is not None and self._thread.is_alive()

    @contextmanager
    def at_work(self) -> Generator[None]:
        """The thread runs while the block does; at a good end everything is written, at a bad one it just stops."""
        self.error, self._stopping, self._flushing = None, False, False
        self._thread = threading.Thread(target=self._loop, name="denizen-snapshots", daemon=True)
        with _quick_switches():
            self._thread.start()
            try:
                yield
                self.flush()
            finally:
                self._stop()

    def flush(self) -> None:
        """Return when all that was put is safe; raises what writing raised."""
        self.ring.send()
        if not self.running:
            self.error = None
            while self.ring.filled:
                with uninterrupted():  # between two buffers, Ctrl-C finds each in the ring
                    self._write_oldest()
            self.sink.sync()
            return
        with self.ring.changed:
            self._flushing = True
            self.ring.changed.notify_all()
            self.ring.changed.wait_for(lambda: self.error is not None or not self._flushing)
        self.raise_error()

    def raise_error(self) -> None:
        """Raise what ended the thread."""
        if self.error is not None:
            raise self.error

    def failed(self) -> bool:
        """Whether nobody will free a buffer any more."""
        return self.error is not None or not self.running

    def drop(self, count: int) -> None:
        """Take back all but the first `count` snapshots."""
        with self.ring.changed:
            self.ring.drop(count)
            self.ring.changed.wait_for(lambda: not self._busy)
            self.ring.drop(count)  # an error has put back what was being written
            self.sink.trim(count)

    def hand_over(self, sink: Sink) -> None:
        """From now on write to another sink, which has all that was put so far; for a thread that is not at work."""
        self.ring.drop(0)
        self.sink = sink

    # --- in the thread --------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        changed = self.ring.changed
        while True:
            with changed:
                changed.wait_for(lambda: self._stopping or self.ring.filled or self._flushing)
                if self._stopping:
                    return
                self._busy = True
            try:
                if self.ring.filled:
                    self._write_oldest()
                else:
                    self.sink.sync()
                    self._flushing = False
            except BaseException as error:
                self.error = error
                return
            finally:
                with changed:
                    self._busy = False
                    changed.notify_all()

    def _write_oldest(self) -> None:
        ring = self.ring
        with ring.changed:
            slot = ring.filled.popleft()
        try:
            ring.wait(slot)
            while slot.parts:
                self.sink.write(slot.parts[0].place, arrays(slot.parts[0]))
                slot.parts.popleft()
        except BaseException:
            with ring.changed:  # to be written again
                ring.filled.appendleft(slot)
            raise
        ring.hand_back(slot)

    def _stop(self) -> None:
        with uninterrupted():  # a second Ctrl-C waits for the snapshot that is being written
            with self.ring.changed:
                self._stopping = True
                self.ring.changed.notify_all()
            assert self._thread is not None
            self._thread.join()
            self._thread = None


def arrays(part: Part) -> list[np.ndarray]:
    """The fields of a part's snapshots, `[snapshots, …]` each; they share the slot's memory."""
    return [tensor.numpy()[: part.count] for tensor in part.pack.tensors]
