"""What code does to streams, events and the allocator while a budget is open: waits go into its event log.

Without CUDA, stand-ins take the calls, so that code written for a GPU runs against the simulated device.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import torch

from denizen.perf.watch._blame import could_not_look
from denizen.perf.watch._calls import Wrap, replaced
from denizen.perf.watch._event_log import ALLOCATIONS, HOST_READS, log_event, open_logs
from denizen.perf.watch._on_cuda import EXPLICIT


def _work_so_far() -> int:
    """Operations that open budgets have counted: tells whether anything came after an event."""
    return sum(totals.ops for event_log in open_logs() for totals in event_log.totals.values())


class SimulatedEvent:
    """torch.cuda.Event without CUDA. All work is done at once, so every event is complete."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._time: float | None = None
        self._work = -1

    def record(self, stream: Any = None) -> None:
        self._time, self._work = time.perf_counter(), _work_so_far()

    def query(self) -> bool:
        return True

    def wait(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None:
        """Waits on a GPU where nothing was asked of it since; an event of a step ago is complete."""
        if self._work == _work_so_far():
            log_event(EXPLICIT, "Event.synchronize", (HOST_READS,))

    def elapsed_time(self, end: "SimulatedEvent") -> float:
        return 1e3 * ((end._time or 0.0) - (self._time or 0.0))


class SimulatedStream:
    """torch.cuda.Stream without CUDA."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.device, self.priority = device, priority

    def __enter__(self) -> "SimulatedStream":
        return self

    def __exit__(self, *_: object) -> None: ...

    def synchronize(self) -> None:
        log_event(EXPLICIT, "Stream.synchronize", (HOST_READS,))

    def query(self) -> bool:
        return True

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: Any = None) -> SimulatedEvent:
        event = event or SimulatedEvent()
        event.record(self)
        return event


@contextlib.contextmanager
def _stream(stream: Any) -> Generator[None]:
    yield


def _synchronize(name: str) -> Callable[..., None]:
    def synchronize(device: Any = None) -> None:
        log_event(EXPLICIT, name, (HOST_READS,))

    return synchronize


def _empty_cache() -> None:
    log_event("alloc-churn", "torch.cuda.empty_cache", (ALLOCATIONS,))


def _missing(name: str) -> type:
    """Stands for a class of torch.cuda that cannot be simulated: says so when it is made."""

    def __init__(self: Any, *_: Any, **__: Any) -> None:
        raise could_not_look("CUDA graphs")

    return type(name, (), {"__init__": __init__})


def _without_cuda() -> list[tuple[Any, str, Wrap]]:
    simulated = [
        (torch.cuda, "synchronize", _synchronize("torch.cuda.synchronize")),
        (torch.accelerator, "synchronize", _synchronize("torch.accelerator.synchronize")),
        (torch.cuda, "empty_cache", _empty_cache),
        (torch.cuda, "Event", SimulatedEvent),
        (torch.cuda, "Stream", SimulatedStream),
        (torch.cuda, "stream", _stream),
        (torch.cuda, "current_stream", lambda device=None: SimulatedStream(device)),
        (torch.cuda, "default_stream", lambda device=None: SimulatedStream(device)),
        *((torch.cuda, name, _missing(name)) for name in ("CUDAGraph", "graph", "make_graphed_callables")),
    ]
    return [(owner, name, lambda _, new=new: new) for owner, name, new in simulated]


def _with_cuda() -> list[tuple[Any, str, Wrap]]:
    def logging(op: str) -> Wrap:
        def wrap(original: Any) -> Any:
            @functools.wraps(original)
            def synchronize(*args: Any, **kwargs: Any) -> Any:
                log_event(EXPLICIT, op, (HOST_READS,))
                return original(*args, **kwargs)

            return synchronize

        return wrap

    def emptying(original: Any) -> Any:
        @functools.wraps(original)
        def empty_cache() -> None:
            _empty_cache()
            original()

        return empty_cache

    return [
        (torch.cuda, "synchronize", logging("torch.cuda.synchronize")),
        (torch.accelerator, "synchronize", logging("torch.accelerator.synchronize")),
        (torch.cuda, "empty_cache", emptying),
    ]


class _Installed:
    """In place while any budget is open; what was there before comes back with the last one."""

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._placed = contextlib.ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            aliased = hasattr(torch.cuda.is_available, "simulated")  # by the doctor, for code that asks for CUDA
            real = torch.cuda.is_available() and not aliased
            for owner, name, wrap in _with_cuda() if real else _without_cuda():
                self._placed.enter_context(replaced(owner, name, wrap))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._placed.close()


streams_watched = _Installed()
