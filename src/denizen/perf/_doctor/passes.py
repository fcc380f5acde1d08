"""The passes over a step: settle, time, count, watch every operation, profile. Each sees steps begin and end."""

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import Any

import torch

from denizen.perf._doctor.autograd import Graphs
from denizen.perf._doctor.hooks import Drawn, Hooks, debug_flags, remembering_loaders
from denizen.perf._doctor.operations import Operations
from denizen.perf.simulated._streams import streams_watched
from denizen.perf.watch import _compiler
from denizen.perf.watch._event_log import EventLog, logging_events
from denizen.perf.watch._on_cuda import logging_cuda
from denizen.perf.watch._operations import SIMULATED

SETTLE = 3  # steps before anything is examined
LEAST = 3  # steps of a pass, however slow


@dataclasses.dataclass
class Pass:
    """One pass; subclasses open what they listen with.

    Attributes:
        most: steps at most.
        seconds: after which it ends, once it has had `LEAST` steps.
        done: steps that it had.
    """

    most: int
    seconds: float = 10.0
    done: int = 0
    _began: float = 0.0

    @contextlib.contextmanager
    def open(self) -> Generator[None]:
        """Listen within the block."""
        self._began = time.perf_counter()
        yield

    def begin(self) -> None:
        """A step begins."""

    def end(self) -> None:
        """A step ended."""
        self.done += 1

    @property
    def enough(self) -> bool:
        """Whether it needs no more steps."""
        return self.done >= self.most or (
            self.done >= min(LEAST, self.most) and time.perf_counter() - self._began > self.seconds
        )


@dataclasses.dataclass
class Settle(Pass):
    """First-call work: optimizer state, plans, compilation."""


@dataclasses.dataclass
class Timed(Pass):
    """Plain steps with a clock: events on CUDA, nothing else installed but the loaders' clock.

    Attributes:
        device: of the step.
        host: seconds of the host in each step.
        times: seconds of each step, by the device's clock on CUDA.
        drawn: what loaders took.
    """

    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cpu"))
    host: list[float] = dataclasses.field(default_factory=list)
    times: list[float] = dataclasses.field(default_factory=list)
    drawn: list[Drawn] = dataclasses.field(default_factory=list)
    _marks: list[Any] = dataclasses.field(default_factory=list)
    _hooks: Any = None

    @contextlib.contextmanager
    def open(self) -> Generator[None]:
        """See `Pass.open`."""
        self._hooks = Hooks()
        with super().open(), self._hooks.loaders():
            self._mark()
            yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            pairs = zip(self._marks, self._marks[1:], strict=False)
            self.times = [before.elapsed_time(after) / 1e3 for before, after in pairs]
        else:
            self.times = list(self.host)
        self.drawn = list(self._hooks.drawn.values())

    def _mark(self) -> None:
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)

    def begin(self) -> None:
        """See `Pass.begin`."""
        self._hooks.step = self.done
        self._start = time.perf_counter()

    def end(self) -> None:
        """See `Pass.end`."""
        self.host.append(time.perf_counter() - self._start)
        self._mark()
        super().end()

    @property
    def step(self) -> float:
        """Seconds of a step, the median."""
        return statistics.median(self.times) if self.times else 0.0


@dataclasses.dataclass
class Counted(Pass):
    """What budgets hear: reads, copies, work.

    Attributes:
        device: of the step.
        event_log: what was heard.
    """

    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cpu"))
    event_log: EventLog = dataclasses.field(default_factory=EventLog)

    @contextlib.contextmanager
    def open(self) -> Generator[None]:
        """See `Pass.open`."""
        with super().open(), logging_events(self.event_log), hearing(self.device, self.event_log):
            yield

    def begin(self) -> None:
        """See `Pass.begin`."""
        self.event_log.begin(self.done, True)

    def end(self) -> None:
        """See `Pass.end`."""
        super().end()
        self.event_log.begin(None, False)

    @property
    def steps(self) -> list[int]:
        """Numbers of the steps."""
        return list(range(self.done))


@dataclasses.dataclass
class Watched(Pass):
    """Every operation, autograd, loaders, clocks and optimizers.

    Attributes:
        device: of the step.
        parameters: gives those of the model, as far as is known.
        hooked: whether tensors saved for backward passes may be hooked; `torch.func` does not allow it.
        flags: switches for debugging that were on, with the text that turns them on.
        error: why it ended early, "" where it did not.
    """

    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cpu"))
    parameters: Callable[[], list[torch.Tensor]] = list
    hooked: bool = True
    flags: dict[str, str] = dataclasses.field(default_factory=dict)
    error: str = ""

    def __post_init__(self) -> None:
        self.event_log = EventLog()
        self.operations = Operations(self.device.type)
        self.graphs = Graphs(self.operations)
        self.hooks = Hooks(self.event_log, self.operations)
        self.operations.loaded = self.hooks.loaded
        self.operations.each = self._flags

    @contextlib.contextmanager
    def open(self) -> Generator[None]:
        """See `Pass.open`."""
        with ExitStack() as stack:
            stack.enter_context(super().open())
            stack.enter_context(logging_events(self.event_log))
            stack.enter_context(hearing(self.device, self.event_log))
            stack.enter_context(self.hooks.all())
            stack.enter_context(self.graphs.watching(self.hooked))
            stack.enter_context(self.operations)
            yield

    def begin(self) -> None:
        """See `Pass.begin`."""
        known = {id(p): p for stepped in self.hooks.stepped for p in _parameters(stepped.optimizer)}
        known |= {id(p): p for p in self.parameters()}
        self.operations.parameters = list(known.values())
        self.operations.begin(self.done)
        self.graphs.step = self.hooks.step = self.done
        self.event_log.begin(self.done, True)

    def end(self) -> None:
        """See `Pass.end`."""
        super().end()
        self._flags()

    @property
    def operations_a_step(self) -> int:
        """On the device, on average."""
        return len(self.operations.ops) // max(1, self.done)

    def _flags(self) -> None:
        self.flags |= debug_flags()


@dataclasses.dataclass
class Profiled(Pass):
    """A few steps under `denizen.perf.profile`.

    Attributes:
        device: of the step; CUDA.
        report: what ran, and why the device stood still; None before the end.
    """

    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cuda"))
    report: Any = None
    _profiler: Any = None

    @contextlib.contextmanager
    def open(self) -> Generator[None]:
        """See `Pass.open`."""
        from denizen.perf._profile.profile import Profiler

        self._profiler = Profiler(None, 1, 1, max(1, self.most - 2), False, self.device)
        with super().open(), self._profiler:
            yield
        self.report = self._profiler.report

    def end(self) -> None:
        """See `Pass.end`."""
        super().end()
        self._profiler.step()


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


@contextlib.contextmanager
def hearing(device: torch.device, event_log: EventLog) -> Generator[None]:
    """Have an event log, open already, take up what a CUDA device does; the simulated one writes by itself."""
    with logging_cuda(device, event_log) if device.type == "cuda" else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def throughout(device: torch.device) -> Generator[EventLog]:
    """What has to be in place for all passes: stand-ins for CUDA without it, and ears for the compiler."""
    _compiler.install()
    event_log = EventLog()
    with contextlib.ExitStack() as stack:
        if device.type in (SIMULATED, "cuda"):
            stack.enter_context(streams_watched)
        stack.enter_context(logging_events(event_log))
        stack.enter_context(remembering_loaders())
        yield event_log
