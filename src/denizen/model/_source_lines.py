"""Whose line of code is running: the author's, denizen's own or a library's."""

import dataclasses
import functools
import inspect
import linecache
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch

from denizen.perf.watch import PACKAGES, STDLIB, made_by_dataclass, shown

_DENIZEN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_ZOO = _DENIZEN + "zoo" + os.sep  # zoo models are written by authors like any other
_HOST_CODE = _DENIZEN + os.path.join("model", "_interventions.py")  # asks the author's functions on the host, rightly
_WATCHERS = {_DENIZEN + os.path.join("model", name) for name in ("_guard.py", "_check_gates.py", "_check_dt_causes.py")}
_WATCHERS.add(_DENIZEN + os.path.join("run", "_recorder.py"))
# Stand between an author and torch, once a process has used the simulated device.
_SIMULATED = _DENIZEN + os.path.join("perf", "simulated")
_WATCHERS |= {os.path.join(_SIMULATED, name) for name in ("_pinned.py", "_streams.py", "_tensor.py")}
_LIBRARIES = tuple(os.path.dirname(os.path.abspath(package.__file__ or "")) + os.sep for package in (torch, np))


@dataclasses.dataclass(frozen=True, order=True)
class Line:
    """A line of source code."""

    file: str
    number: int

    @property
    def text(self) -> str:
        """The source, where it can be read."""
        return linecache.getline(self.file, self.number).strip()

    def __str__(self) -> str:
        return f"{os.path.relpath(self.file) if os.path.isfile(self.file) else shown(self.file)}:{self.number}"


@functools.cache
def whose(file: str) -> str:
    """``"author"``, ``"denizen"`` or ``"library"`` for a file name as code objects carry it."""
    if file == "<__array_function__ internals>" or file.startswith("<frozen"):
        return "library"
    path = os.path.abspath(file) if not file.startswith("<") else file
    if path.startswith(_DENIZEN) and not path.startswith(_ZOO):
        return "denizen"
    # An installed package may be the author's own, unlike for a budget, which blames the script that called it.
    stdlib = path.startswith(STDLIB) and not any(part in path for part in PACKAGES)
    return "library" if stdlib or path.startswith(_LIBRARIES) else "author"


def _by_author(code: CodeType) -> bool:
    return whose(code.co_filename) == "author" and not made_by_dataclass(code)


def author_frame(through_denizen: bool = False) -> FrameType | None:
    """The innermost frame of the author, or None where denizen made the call on its own account.

    Args:
        through_denizen: look past frames of denizen too.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if _by_author(frame.f_code):
            return frame
        if whose(file) == "denizen" and file not in _WATCHERS and not through_denizen:
            return None
        frame = frame.f_back
    return None


def calling_frame() -> FrameType | None:
    """The frame that called the function being watched, whoever wrote it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in _WATCHERS:
        frame = frame.f_back
    return frame


def line_of_frame(frame: FrameType) -> Line:
    """Where a frame is."""
    return Line(frame.f_code.co_filename, frame.f_lineno)


def asked_on_host(frame: FrameType | None) -> bool:
    """Whether the frame runs below an intervention that asks the host, where anything is allowed."""
    while frame is not None:
        if frame.f_code.co_name == "answers" and frame.f_code.co_filename == _HOST_CODE:
            return True
        frame = frame.f_back
    return False


def line_of_error(error: BaseException) -> Line | None:
    """The author's innermost line that an exception passed through."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if _by_author(trace.tb_frame.f_code):
            found = Line(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return found


def line_of_function(function: Callable[..., Any]) -> Line | None:
    """Where the author defined a function; None for one that denizen or a library brings."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or whose(code.co_filename) != "author":
        return None
    return Line(code.co_filename, code.co_firstlineno)


def line_of_class(cls: type) -> Line | None:
    """Where a class is defined, where its source can be read."""
    try:
        return Line(inspect.getsourcefile(cls) or "", inspect.getsourcelines(cls)[1])
    except (OSError, TypeError):
        return None
