"""The event log of a region: what happened, at which line, totals per step, permits; by thread and task."""

import collections
import dataclasses
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from denizen._arguments import whole
from denizen.errors import InputError
from denizen.perf.watch._faults import METHODS
from denizen.perf.watch._places import Place, locate
from denizen.perf.watch._sync import waits_sink

HOST_READS, TRANSFERS, ALLOCATIONS = "host_reads", "transfers", "new_allocations"
GRAPHS, RECOMPILES = "graphs", "recompiles"


@dataclasses.dataclass
class Event:
    """One thing that happened.

    Attributes:
        kind: of fault; a key of `_faults.FAULTS`.
        op: operation or function that did it.
        place: the line to blame.
        limits: the limits that it counts against; none where it is only told.
        bytes: that crossed between host and device, or were allocated.
        numel: elements of what crossed.
        to: ``"host"``, ``"device"`` or "" where nothing crossed.
        weights: whether what crossed belongs to a parameter.
        step: of the region; None outside of steps.
        counted: whether it lies in what is counted, and not in set-up or warm-up.
        reason: why it is allowed, or None.
        note: what else there is to say.
        order: operations that the log had counted when it happened.
    """

    kind: str
    op: str
    place: Place
    limits: tuple[str, ...] = ()
    bytes: int = 0
    numel: int = 0
    to: str = ""
    weights: bool = False
    step: int | None = None
    counted: bool = True
    reason: str | None = None
    note: str = ""
    order: int = 0


@dataclasses.dataclass
class Totals:
    """Of one step, or of a region without steps.

    Attributes:
        ops: operations on the device that compute something.
        bytes: that crossed, asynchronous copies and allowed ones included.
        allocations: new blocks of device memory.
        peak: bytes of device memory in use, at most.
        kernels: that ran; None where the operations are the bound.
        graphs: that torch compiled.
    """

    ops: int = 0
    bytes: int = 0
    allocations: int = 0
    peak: int = 0
    kernels: int | None = None
    graphs: int = 0


class _Permit(NamedTuple):
    reason: str | None  # None: refused, it came too often
    note: str = ""


_open_logs: ContextVar[tuple["EventLog", ...]] = ContextVar("denizen_recorders", default=())
_permit: ContextVar[_Permit | None] = ContextVar("denizen_permit", default=None)


class EventLog:
    """What one region does. Threads that it starts count with it.

    Args:
        sites: whether allocations are told with their lines.
        step: number of the region itself, where a region is a step.
        uses: when each permit was used last, by reason and place; shared by the regions of one budget.
    """

    def __init__(self, *, sites: bool = False, step: int | None = None, uses: dict[object, int] | None = None) -> None:
        self.sites, self.thread = sites, threading.get_ident()
        self.lock = threading.RLock()
        self.events: list[Event] = []
        self.step, self.counted = step, True
        self.now = Totals()
        self.totals: dict[int | None, Totals] = collections.OrderedDict({step: self.now})
        self.uses = {} if uses is None else uses
        self.open, self.ops = True, 0
        self.saw_device = False  # whether anything of the device was seen, views of its tensors included

    def begin(self, step: int | None, counted: bool) -> Totals:
        """A step begins; None: outside of steps again."""
        with self.lock:
            self.step, self.counted = step, counted
            self.now = self.totals.setdefault(step, Totals())
            return self.now

    def add(self, event: Event) -> Event:
        """Keep a copy of an event, with the step and the permit of now; returns that copy."""
        permit = _permit.get()
        with self.lock:
            kept = dataclasses.replace(event, step=self.step, counted=self.counted, order=self.ops)
            if permit is not None:
                kept.reason, kept.note = permit.reason, permit.note or kept.note
            if self.open:  # a thread may outlive the region that it was started in
                self.events.append(kept)
                self.now.bytes += event.bytes if event.to else 0
        return kept

    def refuses(self, reason: str, every: int, place: Place) -> str:
        """Why a permit does not hold now; "" where it does, or where steps are not known."""
        if self.step is None or not self.counted:
            return ""
        key = (reason, place.file, place.line)
        with self.lock:
            last = self.uses.get(key)
            if last is not None and last < self.step < last + every:
                return f"allowed once in {every} steps ({reason!r}), came again after {self.step - last}"
            self.uses[key] = self.step
        return ""


def open_logs() -> tuple[EventLog, ...]:
    """Those open in this thread and task."""
    return _open_logs.get()


def log_event(kind: str, op: str, limits: tuple[str, ...], *, place: Place | None = None, **more: Any) -> list[Event]:
    """Record an event in every open log; returns what each of them keeps."""
    listeners = _open_logs.get()
    if not listeners:
        return []
    event = Event(kind, op, place or here(), limits, **more)
    return [event_log.add(event) for event_log in listeners]


def here() -> Place:
    """The line to blame now."""
    listeners = _open_logs.get()
    return locate(METHODS, listeners[0].thread if listeners else None)


@contextmanager
def logging_elsewhere(event_log: EventLog) -> Generator[None]:
    """For a thread that torch started: what it does goes into this log."""
    token = _open_logs.set((event_log,))
    try:
        yield
    finally:
        _open_logs.reset(token)


@contextmanager
def logging_events(event_log: EventLog) -> Generator[EventLog]:
    """Open an event log for this thread or task, and for threads that it starts."""
    with _carried:
        token = _open_logs.set((*_open_logs.get(), event_log))
        try:
            yield event_log
        finally:
            _open_logs.reset(token)
            event_log.open = False


@contextmanager
def allow(reason: str, every: int | None = None) -> Generator[None]:
    """Mark reads and copies as meant; open budgets do not count them. Without a budget it does nothing.

    ```python
    for step in budget.steps(1000):
        loss = train_step()
        if step % 100 == 0:
            with dz.perf.allow("periodic log", every=100):
                print(loss.item())
    ```

    Holds for this thread or task, and for threads started within. Also a decorator.

    Args:
        reason: why it is meant; reports show it.
        every: at most once in so many steps; the next use comes too early otherwise and is counted. None: whenever. It
            is checked where steps are known: in `Budget.steps`, or where each step enters the same budget.

    Raises:
        InputError: an empty reason, or `every` below 1.
    """
    if not isinstance(reason, str) or not reason.strip():
        raise InputError(f"allow(reason={reason!r}): say why it is meant, for example allow('periodic log', every=100)")
    if every is not None:
        every = whole("allow", "every", every, low=1, hint=", or None for whenever")
    permit = _Permit(reason)
    if every is not None and (listeners := _open_logs.get()):
        place = here()
        refusals = [event_log.refuses(reason, every, place) for event_log in listeners]
        if any(refusals):
            permit = _Permit(None, next(filter(None, refusals)))
    token = _permit.set(permit)
    try:
        yield
    finally:
        _permit.reset(token)


class _Carried:
    """Threads started in a region count with it, while any region is open.

    Python's threads begin with an empty context (before 3.14), pools keep that of whoever needed the thread first.
    """

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._saved: list[tuple[type, str, object]] = []

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._install()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                while self._saved:
                    owner, name, value = self._saved.pop()
                    setattr(owner, name, value)

    def _install(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        start, submit = threading.Thread.start, ThreadPoolExecutor.submit

        def start_with(thread: threading.Thread) -> None:
            carrier = _carrier()
            if carrier is not None:
                run = thread.run

                def carried() -> None:
                    thread.__dict__.pop("run", None)
                    carrier(run)

                thread.run = carried
            start(thread)

        def submit_with(pool: ThreadPoolExecutor, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            carrier = _carrier()
            if carrier is None:
                return submit(pool, call, *args, **kwargs)
            return submit(pool, carrier, call, *args, **kwargs)

        self._saved = [(threading.Thread, "start", start), (ThreadPoolExecutor, "submit", submit)]
        threading.Thread.start = start_with  # type: ignore[method-assign]
        ThreadPoolExecutor.submit = submit_with  # type: ignore[method-assign]


def _carrier() -> Callable[..., Any] | None:
    """Calls a function with the open logs and the permit of now; None where there are none."""
    logs, permit, sink = _open_logs.get(), _permit.get(), waits_sink.get()
    if not logs:
        return None

    def carrier(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        now = tuple(event_log for event_log in logs if event_log.open)
        tokens = _open_logs.set(now), _permit.set(permit), waits_sink.set(sink if now else None)
        try:
            return call(*args, **kwargs)
        finally:
            for variable, token in zip((_open_logs, _permit, waits_sink), tokens, strict=True):
                variable.reset(token)  # type: ignore[arg-type]

    return carrier


_carried = _Carried()


@contextmanager
def unlogged() -> Generator[None]:
    """Whatever this thread does within the block goes into no log, and no dispatch mode sees it."""
    from torch.utils._python_dispatch import _disable_current_modes

    tokens = _open_logs.set(()), waits_sink.set(None)
    try:
        with _disable_current_modes():
            yield
    finally:
        _open_logs.reset(tokens[0])
        waits_sink.reset(tokens[1])
