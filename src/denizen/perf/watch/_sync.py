"""Catching torch's warnings of operations that make the host wait for CUDA, for the thread that asked."""

import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch

MESSAGE = "called a synchronizing CUDA operation"


class Sink(Protocol):
    """What takes the places of waits, as they happen."""

    def append(self, place: str, /) -> object:
        """Called in the thread that waited, under the line that made it wait."""


waits_sink: ContextVar[Sink | None] = ContextVar("denizen_waits_sink", default=None)
_lock = threading.Lock()
_open: list[Any] = []  # guards that are open, in this process: the mode belongs to it, not to a thread
_before: tuple[int, Any] = (0, None)  # torch's mode, and what restores Python's warnings


@contextmanager
def sync_warnings() -> Generator[list[str]]:
    """File and line of each operation of this thread that made the host wait for CUDA, as torch tells them.

    torch's mode is one for the process and does not see everything (its own warning says so); copies from pageable
    memory are unseen. Guards may be nested and may be open in several threads; mode and warnings are restored when the
    last one closes, also after an exception. Waits of threads without a guard are told as the mode before wants it.
    """
    places = list[str]()
    with sync_warnings_to(places):
        yield places


@contextmanager
def sync_warnings_to(sink: Sink) -> Generator[None]:
    """As `sync_warnings`, telling each wait while it happens."""
    guard = object()
    _enter(guard)
    token = waits_sink.set(sink)
    try:
        yield
    finally:
        waits_sink.reset(token)
        _leave(guard)


def _enter(guard: Any) -> None:
    global _before
    with _lock:
        if not _open:
            mode, saved = torch.cuda.get_sync_debug_mode(), warnings.catch_warnings()
            saved.__enter__()
            _before = (mode, saved)
            warnings.filterwarnings("always", message=MESSAGE)
            warnings.showwarning = _hook(warnings.showwarning, silent=mode == 0)
            _set_mode("warn")
        _open.append(guard)


def _leave(guard: Any) -> None:
    with _lock:
        _open.remove(guard)
        if not _open:
            mode, saved = _before
            saved.__exit__(None, None, None)
            _set_mode(mode)


def _set_mode(mode: int | str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that the mode is a prototype
        torch.cuda.set_sync_debug_mode(mode)


def _hook(show: Any, silent: bool) -> Any:
    def showwarning(
        message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: str | None = None
    ) -> None:
        sink = waits_sink.get() if MESSAGE in str(message) else None
        if sink is not None:
            sink.append(f"{filename}:{lineno}")
        elif not (silent and MESSAGE in str(message)):  # without us it would not have been said
            show(message, category, filename, lineno, file, line)

    return showwarning
