"""A torch function mode that holds at chosen lines of the user's only: torch's own classes stay as they are.

Patching a class of torch reaches every caller in the process, and a method such as ``Tensor.__getitem__`` leaves the
class's C slots changed when it is put back. A mode at all times would cost microseconds at each call of torch.
"""

import contextlib
import sys
from collections.abc import Generator, Iterable
from types import FrameType
from typing import Any

from torch.overrides import TorchFunctionMode, _len_torch_function_stack, _pop_mode, _push_mode

from denizen.perf.watch._calls import quietly_traced

Line = tuple[str, int]


class AtLines:
    """Has a mode on torch's stack while this thread is at one of some lines, calls from there included."""

    def __init__(self, mode: TorchFunctionMode) -> None:
        self._mode = mode
        self._lines: dict[str, set[int]] = {}
        self._inside: list[FrameType] = []  # frames that are at one of the lines, the outermost first
        self._before: Any = None

    def choose(self, lines: Iterable[Line]) -> None:
        """The lines from now on."""
        self._lines = {}
        for file, line in lines:
            self._lines.setdefault(file, set()).add(line)

    @contextlib.contextmanager
    def watching(self) -> Generator[None]:
        """Watch what this thread calls within the block. A debugger or coverage that traces it goes on elsewhere."""
        self._before = sys.gettrace()
        with quietly_traced():
            sys.settrace(self._called)
            try:
                yield
            finally:
                sys.settrace(self._before)
                self._inside.clear()
                self._leave()

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename in self._lines:
            return self._moved
        return self._before(frame, event, arg) if self._before is not None else None

    def _moved(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event in ("line", "return"):
            here = event == "line" and frame.f_lineno in self._lines.get(frame.f_code.co_filename, ())
            was = bool(self._inside) and self._inside[-1] is frame
            if here and not was:
                self._inside.append(frame)
                if len(self._inside) == 1:
                    _push_mode(self._mode)
            elif was and not here:
                self._inside.pop()
                if not self._inside:
                    self._leave()
        return self._moved

    def _leave(self) -> None:
        """Take the mode off the stack, also from below modes that the line has opened."""
        above = []
        while _len_torch_function_stack():
            top = _pop_mode()
            if top is self._mode:
                break
            above.append(top)
        for mode in reversed(above):
            _push_mode(mode)
