"""What a step asks of loaders, the compiler, clocks and optimizers: heard within a block, on objects one by one.

Torch's classes stay as they are. New passes over loaders are of a subclass, which the loader's module finds under the
name of the class.
"""

import contextlib
import dataclasses
import functools
import gc
import itertools
import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, dataloader
from torch.utils.data._utils import fetch

from denizen.perf._doctor.operations import Operations
from denizen.perf.watch._calls import calls_traced, replaced
from denizen.perf.watch._event_log import HOST_READS, EventLog
from denizen.perf.watch._faults import METHODS
from denizen.perf.watch._places import Place, is_user, locate

_NAMES = ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")
Begun = Callable[[Any, Any], object]  # what hears of a pass that begins: (pass, loader)


def living(*kinds: type) -> list[Any]:
    """Objects of some classes in this process."""
    wanted = set(kinds)
    for kind in (rest := list(kinds)):  # grows as it goes
        wanted.update(fresh := set(type.__subclasses__(kind)) - wanted)
        rest.extend(fresh)
    things = gc.get_objects()  # millions: without a line of Python for each
    if wanted.isdisjoint(map(type, things)):
        return []
    return list(itertools.compress(things, map(wanted.__contains__, map(type, things))))


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


CLOCKS = {time.time, time.perf_counter, time.monotonic, time.time_ns, time.perf_counter_ns, time.monotonic_ns}
CLOCKS |= {time.process_time}
# What every optimizer's step runs in, in torch's own code.
_STEP = next(
    part
    for part in torch.optim.Optimizer.profile_hook_step.__code__.co_consts
    if getattr(part, "co_name", "") == "wrapper"
)
_HEARD = {"append", "appendleft", "extend", "extendleft", "insert", "add", "update"} | {
    clock.__name__ for clock in CLOCKS
}


@dataclasses.dataclass
class Drawn:
    """Batches that a line drew from a loader.

    Attributes:
        place: the line.
        loader: what it draws from.
        steps: number of the step of each batch.
        wait: seconds that each took to come.
        dataset: seconds within the dataset, where it ran in this process.
        collate: seconds within the collate function.
        samples: of a batch, fetched one by one.
        starts: steps in which workers were started anew.
    """

    place: Place
    loader: Any
    steps: list[int] = dataclasses.field(default_factory=list)
    wait: list[float] = dataclasses.field(default_factory=list)
    dataset: float = 0.0
    collate: float = 0.0
    samples: int = 0
    starts: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Clock:
    """A clock that was read."""

    step: int
    place: Place
    ops: int
    synced: bool


@dataclasses.dataclass
class Stepped:
    """An optimizer's step: its line, the parameters with gradients, its operations, whether a backward pass asked."""

    step: int
    place: Place
    optimizer: Any
    parameters: int
    ops: int = 0
    hooked: bool = False


class Hooks:
    """What was heard.

    Attributes:
        step: number of the current one; -1 outside.
        drawn: by line.
        compiled: calls of `torch.compile` in a step.
        clocks: readings by the user's code.
        put: the line of the user's that last put something into a list, deque or set, by its identity.
        stepped: optimizers.
        loaded: batches of late, by storage.
    """

    def __init__(self, event_log: EventLog | None = None, operations: Operations | None = None) -> None:
        self.step = -1
        self._operations = operations
        self.drawn: dict[tuple[str, int], Drawn] = {}
        self.compiled: list[tuple[int, Place]] = []
        self.clocks: list[Clock] = []
        self.put: dict[int, Place] = {}
        self.stepped: list[Stepped] = []
        self.loaded: dict[int, Tensor] = {}
        self._event_log = event_log
        self._fetching: list[list[float]] = []

    # --- loaders ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def loaders(self) -> Generator[None]:
        """Hear of batches; costs a microsecond each."""
        with each_pass(self._pass, self._begun):
            yield

    @contextlib.contextmanager
    def _pass(self, iterator: Any) -> Generator[None]:
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        with contextlib.ExitStack() as stack:
            stack.enter_context(replaced(iterator, "_next_data", functools.partial(self._next, weakref.ref(iterator))))
            if isinstance(fetcher, fetch._MapDatasetFetcher):
                stack.enter_context(replaced(fetcher, "fetch", functools.partial(self._fetch, fetcher)))
            yield

    def _next(self, known: Any, original: Any) -> Any:
        def next_data() -> Any:
            self._fetching.append([0.0, 0.0, 0.0])
            began = time.perf_counter()
            try:
                batch = original()
            finally:
                dataset, collate, samples = self._fetching.pop()
            if self.step >= 0:
                iterator = known()
                waited = time.perf_counter() - began
                drawn = self._drawn(getattr(iterator, "_denizen_loader", iterator))
                drawn.steps.append(self.step)
                drawn.wait.append(waited)
                drawn.dataset, drawn.collate = drawn.dataset + dataset, drawn.collate + collate
                drawn.samples = max(drawn.samples, int(samples))
            self._remember(batch)
            return batch

        return next_data

    def _begun(self, iterator: Any, loader: Any) -> None:
        if self.step >= 0 and isinstance(iterator, dataloader._MultiProcessingDataLoaderIter):
            self._drawn(loader).starts.append(self.step)

    def _fetch(self, fetcher: Any, original: Any) -> Any:
        def fetched(index: Any) -> Any:
            if not self._fetching:
                return original(index)
            collate, spent = fetcher.collate_fn, self._fetching[-1]

            @functools.wraps(collate)
            def timed(data: Any) -> Any:
                began = time.perf_counter()
                try:
                    return collate(data)
                finally:
                    spent[1] += time.perf_counter() - began

            one_by_one = not getattr(fetcher.dataset, "__getitems__", None)
            spent[2] += len(index) if one_by_one and hasattr(index, "__len__") else 0
            began, fetcher.collate_fn = time.perf_counter(), timed
            try:
                return original(index)
            finally:
                fetcher.collate_fn = collate
                spent[0] += time.perf_counter() - began - spent[1]

        return fetched

    def _drawn(self, loader: Any) -> Drawn:
        place = locate(METHODS)
        return self.drawn.setdefault((place.file, place.line), Drawn(place, loader))

    def _remember(self, batch: Any) -> None:
        for tensor in _flat(batch):
            if tensor.device.type == "cpu" and tensor.layout is torch.strided:
                self.loaded[tensor.untyped_storage()._cdata] = tensor
        while len(self.loaded) > 64:
            del self.loaded[next(iter(self.loaded))]

    # --- compiler, clocks, optimizers ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def all(self) -> Generator[None]:
        """Hear of everything; slows Python down. No hook is registered: compiled code would be compiled again."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(replaced(torch, "compile", self._compile))
            stack.enter_context(self.loaders())
            stack.enter_context(self._autocasts())
            stack.enter_context(calls_traced(self._called))
            yield

    def _compile(self, original: Any) -> Any:
        @functools.wraps(original)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            if self.step >= 0:
                self.compiled.append((self.step, locate(METHODS)))
            return original(*args, **kwargs)

        return compiled

    @contextlib.contextmanager
    def _autocasts(self) -> Generator[None]:
        """Modes run below autocast and cannot ask for it: hear of its contexts, which count how deep they are."""
        operations: Any = self._operations

        def heard(change: int) -> Any:
            def wrap(original: Any) -> Any:
                def nesting() -> int:
                    context = sys._getframe(1).f_locals.get("self")
                    if isinstance(context, torch.autocast):
                        wanted = context.device == "cuda" and not torch.cuda.is_available()
                        operations.autocast += change * (context._enabled or wanted)
                    return original()

                return nesting

            return wrap

        with (
            replaced(torch, "autocast_increment_nesting", heard(1)),
            replaced(torch, "autocast_decrement_nesting", heard(-1)),
        ):
            yield

    def _called(self, frame: Any, event: str, function: Any) -> None:
        if event != "c_call":
            if frame.f_code is _STEP and event in ("call", "return"):
                (self._begins if event == "call" else self._ends)(next(iter(frame.f_locals["args"])))
            return
        if function.__name__ not in _HEARD or self.step < 0:  # this is asked most often of all
            return
        puts, event_log = isinstance(getattr(function, "__self__", None), list | deque | set), self._event_log
        if not (puts or _is_clock(function)) or not is_user(frame.f_code) or event_log is None:
            return
        place = Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        if puts:
            self.put[id(function.__self__)] = place
            return
        last = max((e.order for e in event_log.events if HOST_READS in e.limits), default=-1)
        self.clocks.append(Clock(self.step, place, event_log.ops, last >= event_log.ops))

    def _begins(self, optimizer: Any) -> None:
        operations = self._operations
        if self.step >= 0 and operations is not None:
            parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            begun = Stepped(self.step, locate(METHODS), optimizer, len(parameters), -len(operations.ops))
            begun.hooked = torch._C._current_graph_task_id() >= 0  # as in hooks that free each gradient at once
            self.stepped.append(begun)
            operations.optimizing = True

    def _ends(self, optimizer: Any) -> None:
        operations = self._operations
        if operations is not None and operations.optimizing:
            self.stepped[-1].ops += len(operations.ops)
            operations.optimizing = False


@contextlib.contextmanager
def remembering_loaders() -> Generator[None]:
    """Have loaders remember the line that made them: the first thing that they do is to tell torch of their use."""

    def wrap(original: Any) -> Any:
        def log_api_usage_once(event: str) -> None:
            if event == "python.data_loader":
                loader = sys._getframe(1).f_locals.get("self")
                if isinstance(loader, DataLoader):
                    loader._denizen_place = locate(METHODS)  # type: ignore[attr-defined]
            original(event)

        return log_api_usage_once

    with replaced(torch._C, "_log_api_usage_once", wrap):
        yield


def _is_clock(function: Any) -> bool:
    try:
        return function in CLOCKS
    except TypeError:
        return False


def _flat(batch: Any) -> Generator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from _flat(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from _flat(value)


def debug_flags() -> dict[str, str]:
    """Switches for debugging that are on, each with the text that turns it on."""
    found = {}
    if torch.is_anomaly_enabled():
        found["anomaly detection"] = "detect_anomaly"
    if torch.are_deterministic_algorithms_enabled():
        found["deterministic algorithms"] = "use_deterministic_algorithms"
    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        found["CUDA_LAUNCH_BLOCKING (each launch waits)"] = "CUDA_LAUNCH_BLOCKING"
    return found
