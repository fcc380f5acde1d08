"""Hearing of calls of Python functions, without touching the functions or the classes that they belong to."""

import contextlib
import sys
import threading
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

Listener = Callable[[FrameType, str, Any], object]


@contextlib.contextmanager
def calls_heard(listener: Listener, threads: bool = False) -> Generator[None]:
    """Have a listener hear of each call and return of this thread, as `sys.setprofile` tells them.

    Listeners may be nested. A profiler of the user's that is written in Python hears on; beside one written in C
    (cProfile) nothing is heard. Costs about 0.1 µs for each call of a Python function.

    Args:
        listener: called with frame, event and argument.
        threads: whether threads that are started within are heard too, until the end of the block.
    """
    before: Any = sys.getprofile()
    if before is not None and not callable(before):
        yield
        return
    listening = True

    def heard(frame: FrameType, event: str, arg: Any) -> None:
        if before is not None:
            before(frame, event, arg)
        if listening:
            listener(frame, event, arg)

    def heard_elsewhere(frame: FrameType, event: str, arg: Any) -> None:
        if listening:
            listener(frame, event, arg)
        else:
            sys.setprofile(None)  # a thread that outlives the block

    others = threading.getprofile()
    sys.setprofile(listener if before is None else heard)
    if threads and others is None:
        threading.setprofile(heard_elsewhere)
    try:
        yield
    finally:
        listening = False
        sys.setprofile(before)
        if threads and others is None:
            threading.setprofile(others)  # type: ignore[arg-type]
