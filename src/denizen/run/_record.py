"""A function as a CUDA graph: calls aside, which come before, then the recording, on one stream of the present device.

Whoever compiles what the function calls holds `Settled` around all of it.
"""

import gc
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from denizen.errors import DenizenError
from denizen.run._room import out_of_memory

T = TypeVar("T")

_ONE = threading.Lock()  # torch allows one capture at a time in a process


class NotRecordedError(RuntimeError):
    """A function could not be recorded; nothing of it has run. Says why in one line."""


def aside(function: Callable[[], Any], times: int = 1, side: torch.cuda.Stream | None = None) -> torch.cuda.Stream:
    """Call a function on a stream of its own, as has to come before a capture; the stream.

    Args:
        function: what will be recorded; compilation, autotuning and lazy initialisation happen in its first calls.
        times: of calling it.
        side: the stream; None: a new one, for torch's own for captures is of whichever device captured first.
    """
    side = torch.cuda.Stream() if side is None else side
    current = torch.cuda.current_stream()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        for _ in range(times):
            function()
    current.wait_stream(side)
    return side


def record(
    function: Callable[[], T],
    side: torch.cuda.Stream | None,
    again: Callable[[], torch.cuda.Stream | None],
    *,
    pool: Any = None,
    backward: bool = True,
) -> tuple[torch.cuda.CUDAGraph, T]:
    """A CUDA graph of what a function launches, which is not run, and what the function returned.

    Args:
        function: ran before on `side`.
        side: the stream of `aside`.
        again: warms up once more where the first attempt failed, for something may have been compiled or made anew
            since; gives the stream.
        pool: memory that is shared with other graphs; a second attempt has its own.
        backward: the function runs a backward pass.

    Raises:
        NotRecordedError: it failed twice.
        DenizenError: of the function.
        RuntimeError: memory ran out.
    """
    try:
        return _recorded(function, side, pool, backward)
    except Exception as error:
        _raise_own(error)
    try:
        return _recorded(function, again(), None, backward)
    except Exception as error:
        _raise_own(error)
        raise NotRecordedError(_reason(error)) from error


def _recorded(function: Callable[[], T], side: Any, pool: Any, backward: bool) -> tuple[torch.cuda.CUDAGraph, T]:
    if backward:
        # Graphs of autograd that only a cycle holds keep the nodes of the parameters, and with them the stream of an
        # earlier pass, which cannot wait for what is captured.
        gc.collect()
    graph = torch.cuda.CUDAGraph()
    # It first gives back unused memory, for that of the graph is its own. Only this thread's calls must keep to the
    # rules: another one may wait for snapshots or load data meanwhile.
    with _ONE, torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
        result = function()
    return graph, result


def _raise_own(error: Exception) -> None:
    """Raise again what no other attempt would mend."""
    if isinstance(error, DenizenError) or out_of_memory(error):
        raise error


def _reason(error: BaseException) -> str:
    """The first line of the first error: ending a capture that was broken raises one of its own."""
    while error.__context__ is not None and isinstance(error.__context__, Exception):
        error = error.__context__
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
