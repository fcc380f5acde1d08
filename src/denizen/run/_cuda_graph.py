"""A function as a CUDA graph: warm-up, capture, replay, and plain calls where that cannot be."""

import contextlib
import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

from denizen.errors import DenizenError
from denizen.perf.watch import out_of_memory
from denizen.run._torch_switches import TorchSwitches

T = TypeVar("T")

_ONE = threading.Lock()  # torch allows one capture at a time in a process


class NotCapturedError(RuntimeError):
    """A function could not be captured; nothing of it has run. Says why in one line."""


class CapturedFunction(Generic[T]):
    """A function without arguments, called by replaying a CUDA graph of what it launches.

    The function reads and writes tensors that keep their place. Every call of this object is one call of the function:
    the first is a plain one on a side stream, in which everything is compiled, tuned and allocated (the warm-up); the
    second captures the function and replays it; further ones replay it. Where the function cannot be captured, one
    warning says so, and calls are plain ones from then on, with equal results.

    Attributes:
        captures: whether it is to be captured; False: calls stay plain ones.
    """

    def __init__(
        self,
        function: Callable[[], T],
        what: str,
        *,
        switches: TorchSwitches | None = None,
        captures: bool = True,
        warm_up: int = 1,
        again: Callable[[], torch.cuda.Stream] | None = None,
        stream: torch.cuda.Stream | None = None,
        pool: Any = None,
        backward: bool = True,
    ) -> None:
        """Args:
        function: what is called.
        what: the subject of the warning, in the plural: ``"steps"``.
        switches: held around all but replays; None: the caller holds it, where the function runs compiled code.
        captures: see above.
        warm_up: calls of the function that `capture` makes first; 0 where it ran on `stream` before.
        again: warms up once more where a capture has failed, for something may have been compiled or made anew since;
            gives the stream. None: calls of the function, which count.
        stream: to warm up and to capture on; None: a new one of the present device, for torch's own for captures is of
            whichever device captured first.
        pool: memory that is shared with other graphs; a second attempt has its own.
        backward: the function runs a backward pass.
        """
        self._function, self._what, self._switches = function, what, switches
        self._warm_up, self._again = warm_up, again
        self._stream, self._pool, self._backward = stream, pool, backward
        self._side: torch.cuda.Stream | None = stream if warm_up == 0 else None  # where it was warmed up
        self._called: list[T] = []  # what the last call of a warm-up gave
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: T
        self.captures = captures

    @property
    def captured(self) -> bool:
        """Whether calls are replays. What they return are the same tensors each time."""
        return self._graph is not None

    def __call__(self) -> T:
        """One call of the function, whichever way it goes."""
        if self._graph is not None:
            self._graph.replay()
            return self._result
        with self._held():
            if not self.captures:
                return self._function()
            if self._side is None:
                self._side = self._aside(1)
                return self._called.pop()
            return self._first_replay()

    def capture(self) -> None:
        """Warm up and capture now; the next call is a replay. Put back what the calls of the warm-up change.

        Raises:
            NotCapturedError: the function could not be captured.
            DenizenError: of the function.
            RuntimeError: memory ran out.
        """
        with self._held():
            if self._side is None:
                self._side = self._aside(self._warm_up)
            self._capture()
        self._called.clear()

    def try_capture(self) -> bool:
        """As `capture`; False, with the warning, where the function could not be captured."""
        try:
            self.capture()
        except NotCapturedError as error:
            self._give_up(error)
        return self.captured

    def _first_replay(self) -> T:
        """Capture, and make this call: by a replay, or where it had to be warmed up again by what that gave."""
        try:
            self._capture()
        except RuntimeError as error:
            self._give_up(error)
        if self._called:
            return self._called.pop()
        return self() if self._graph is not None else self._function()

    def _capture(self) -> None:
        try:
            self._graph, self._result = self._attempt(self._pool)
        except Exception as error:
            _raise_own(error)
        if self._graph is None:
            self._capture_again()
        del self._function, self._again  # and what they hold

    def _capture_again(self) -> None:
        try:
            self._side = self._aside(self._warm_up) if self._again is None else self._again()
            self._graph, self._result = self._attempt(None)
        except Exception as error:
            _raise_own(error)
            raise NotCapturedError(_reason(error)) from error

    def _attempt(self, pool: Any) -> tuple[torch.cuda.CUDAGraph, T]:
        """A graph of what the function launches, which is not run, and what the function returned."""
        if self._backward:
            # Graphs of autograd that only a cycle holds keep the nodes of the parameters, and with them the stream of
            # an earlier pass, which cannot wait for what is captured.
            gc.collect()
        graph = torch.cuda.CUDAGraph()
        # It first gives back unused memory, for that of the graph is its own. Only this thread's calls must keep to the
        # rules: another one may wait for snapshots or load data meanwhile.
        with _ONE, torch.cuda.graph(graph, pool=pool, stream=self._side, capture_error_mode="thread_local"):
            result = self._function()
        return graph, result

    def _aside(self, times: int) -> torch.cuda.Stream:
        """Calls on a side stream, which it gives; keeps what the last one gave."""

        def call() -> None:
            self._called[:] = [self._function()]

        return aside(call, times, self._stream)

    def _held(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._switches is None else self._switches.held()

    def _give_up(self, error: Exception) -> None:
        self.captures = False
        warn_not_captured(self._what, error, stacklevel=7)


def aside(function: Callable[[], Any], times: int = 1, side: torch.cuda.Stream | None = None) -> torch.cuda.Stream:
    """Call a function on a stream of its own, as has to come before a capture; the stream.

    Args:
        function: what will be captured; compilation, autotuning and lazy initialisation happen in its first calls.
        times: of calling it.
        side: the stream; None: a new one.
    """
    side = torch.cuda.Stream() if side is None else side
    current = torch.cuda.current_stream()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        for _ in range(times):
            function()
    current.wait_stream(side)
    return side


def warn_not_captured(what: str, error: Exception, stacklevel: int = 3) -> None:
    """Say that what cannot be a CUDA graph goes on by plain calls."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    warnings.warn(
        f"{what} could not be captured in a CUDA graph and run eagerly, with equal results: {reason}",
        stacklevel=stacklevel,
    )


def _raise_own(error: Exception) -> None:
    """Raise again what no other attempt would mend."""
    if isinstance(error, DenizenError) or out_of_memory(error):
        raise error


def _reason(error: BaseException) -> str:
    """The first line of the first error: ending a capture that was broken raises one of its own."""
    while error.__context__ is not None and isinstance(error.__context__, Exception):
        error = error.__context__
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
