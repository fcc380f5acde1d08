"""Objects that a step may use, to be listened to one by one: torch's classes stay as they are.

New passes over loaders are of a subclass, which the loader's module finds under the name of the class.
"""

import contextlib
import gc
import weakref
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from torch.utils.data import dataloader

from denizen.perf.watch._replaced import replaced

_NAMES = ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")
Begun = Callable[[Any, Any], object]  # what hears of a pass that begins: (pass, loader)


def living(*kinds: type) -> list[Any]:
    """Objects of some classes in this process."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kinds)]


@contextlib.contextmanager
def each_pass(during: Callable[[Any], AbstractContextManager[object]], begun: Begun | None = None) -> Generator[None]:
    """Enter a context for every pass over a loader that is drawn from within the block; left at the block's end.

    Args:
        during: makes the context of a pass.
        begun: called with a pass that begins, and its loader.
    """
    listening = [True]
    with ExitStack() as undo, ExitStack() as names:
        for one in living(dataloader._BaseDataLoaderIter):
            undo.enter_context(during(one))

        def begins(one: Any, loader: Any) -> None:
            one._denizen_loader = loader
            if begun is not None:
                begun(one, loader)
            context, kept = during(one), weakref.ref(one)
            context.__enter__()
            undo.callback(lambda: context.__exit__(None, None, None) if kept() is not None else None)

        for name in _NAMES:
            names.enter_context(replaced(dataloader, name, _telling(begins, listening)))
        try:
            yield
        finally:
            listening.clear()


def _telling(begins: Begun, listening: list[bool]) -> Callable[[Any], Any]:
    """Makes of a class of passes one whose passes tell when they begin."""

    def wrap(original: Any) -> Any:
        def __init__(self: Any, loader: Any) -> None:
            original.__init__(self, loader)
            if listening:
                begins(self, loader)

        return type(original.__name__, (original,), {"__init__": __init__})

    return wrap
