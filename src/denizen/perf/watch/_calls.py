"""Hearing of calls: of Python functions without touching them, and of attributes that are wrapped where they stand."""

import contextlib
import dataclasses
import functools
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from types import CodeType, FrameType
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
Listener = Callable[[FrameType, str, Any], object]
_MONITORING: Any = getattr(sys, "monitoring", None)  # of Python 3.12
_alone: list[Listener] = []  # listeners beside which nothing of the user's hears


@contextlib.contextmanager
def calls_traced(listener: Listener, threads: bool = False) -> Generator[None]:
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
    with quietly_traced():
        if before is None:
            _alone.append(listener)
        sys.setprofile(listener if before is None else heard)
        if threads and others is None:
            threading.setprofile(heard_elsewhere)
        try:
            yield
        finally:
            listening = False
            sys.setprofile(before)
            if before is None:
                _alone.remove(listener)
            if threads and others is None:
                threading.setprofile(others)  # type: ignore[arg-type]


def unheard(function: _Function) -> _Function:
    """A function of this package whose calls no listener has to hear of, such as what is done at every operation.

    Until Python 3.11 a call that is heard of takes several times as long as one that is not; later to stop and to begin
    costs more than that.
    """
    if _MONITORING is not None:
        return function

    @functools.wraps(function)
    def quiet(*args: Any) -> Any:
        listener = sys.getprofile()
        if listener not in _alone:
            return function(*args)
        sys.setprofile(None)
        try:
            return function(*args)
        finally:
            sys.setprofile(listener)

    return quiet  # type: ignore[return-value]


@contextlib.contextmanager
def quietly_traced() -> Generator[None]:
    """Without the warnings of Python 3.12 about comprehensions of a module, where a profiler or tracer is in Python."""
    with contextlib.ExitStack() as stack:
        if sys.version_info[:2] == (3, 12):
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "assigning None to unbound local", RuntimeWarning)
        yield


@contextlib.contextmanager
def function_traced(code: CodeType, listener: Callable[[FrameType], object]) -> Generator[None]:
    """Have a listener hear of each call of one Python function, before its first line.

    From Python 3.12 on nothing else becomes slower, and every thread is heard. Before that, or where other tools have
    taken all places for monitors, it is as in `calls_traced`, with the threads that are started within. Blocks may be
    nested; a listener that is in place already hears of a call once.

    Args:
        code: of the function.
        listener: called with the frame of the call.
    """
    if _MONITORS.add(code, listener):
        try:
            yield
        finally:
            _MONITORS.remove(code, listener)
        return

    def heard(frame: FrameType, event: str, _: Any) -> None:
        if frame.f_code is code and event == "call":
            listener(frame)

    with calls_traced(heard, threads=True):
        yield


class _Monitors:
    """Listeners of single functions, by one monitor of Python's for all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[CodeType, dict[Callable[[FrameType], object], int]] = {}
        self._tool: int | None = None

    def add(self, code: CodeType, listener: Callable[[FrameType], object]) -> bool:
        """Begin to listen; False where that is not possible."""
        with self._lock:
            if self._tool is None:
                self._tool = self._place()
            if self._tool is None:
                return False
            users = self._listeners.setdefault(code, {})
            users[listener] = users.get(listener, 0) + 1
            _MONITORING.set_local_events(self._tool, code, _MONITORING.events.PY_START)
            return True

    def remove(self, code: CodeType, listener: Callable[[FrameType], object]) -> None:
        """End what `add` began; the last one gives the place back."""
        with self._lock:
            users = self._listeners[code]
            users[listener] -= 1
            if not users[listener]:
                del users[listener]
            if not users:
                del self._listeners[code]
                _MONITORING.set_local_events(self._tool, code, 0)
            if not self._listeners:
                _MONITORING.register_callback(self._tool, _MONITORING.events.PY_START, None)
                _MONITORING.free_tool_id(self._tool)
                self._tool = None

    def _place(self) -> int | None:
        free = (tool for tool in (3, 4, 1) if _MONITORING is not None and _MONITORING.get_tool(tool) is None)
        tool = next(free, None)  # 0 is a debugger's, 2 a profiler's, 5 an optimizer's
        if tool is not None:
            _MONITORING.use_tool_id(tool, "denizen")
            _MONITORING.register_callback(tool, _MONITORING.events.PY_START, self._called)
        return tool

    def _called(self, code: CodeType, _: int) -> None:
        frame = sys._getframe(1)
        for listener in tuple(self._listeners.get(code, ())):
            listener(frame)


_MONITORS = _Monitors()


# --- wrapped where they stand -----------------------------------------------------------------------------------------


Wrap = Callable[[Any], Any]


@dataclasses.dataclass
class _Place:
    """An attribute that is replaced: what it was, whether the owner itself had it, what wraps it (innermost first)."""

    owner: Any
    before: Any
    own: bool
    wraps: list[tuple[object, Wrap]] = dataclasses.field(default_factory=list)


_lock = threading.RLock()
_places: dict[tuple[int, str], _Place] = {}


@contextlib.contextmanager
def replaced(owner: Any, name: str, wrap: Wrap) -> Generator[None]:
    """Put what `wrap` makes of an attribute in its place within the block.

    Blocks may overlap, in several threads too: whichever ends first, what was there before comes back with the last.
    Not for classes of torch's: their C slots do not come back (a mode, or the objects one by one).

    Args:
        owner: a module, or an object.
        name: of its attribute.
        wrap: makes the new one from what it finds there; called again where another block ends before this one.
    """
    key, layer = (id(owner), name), object()
    with _lock:
        place = _places.get(key)
        if place is None:
            place = _places[key] = _Place(owner, getattr(owner, name), name in vars(owner))
        place.wraps.append((layer, wrap))
        _apply(key, place)
    try:
        yield
    finally:
        with _lock:
            place.wraps = [one for one in place.wraps if one[0] is not layer]
            _apply(key, place)


def _apply(key: tuple[int, str], place: _Place) -> None:
    value, name = place.before, key[1]
    for _, wrap in place.wraps:
        value = wrap(value)
    if place.wraps or place.own:
        setattr(place.owner, name, value)
    else:
        delattr(place.owner, name)
    if not place.wraps:
        del _places[key]
