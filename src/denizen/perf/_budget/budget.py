"""Budgets: how often a region of code may keep the device waiting, and failing with the lines that go over."""

import functools
import inspect
import os
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar, overload

import torch

from denizen._arguments import whole
from denizen.errors import BudgetError, DenizenError, InputError, nearest
from denizen.perf._budget.report import LIMITS, BudgetReport, measure
from denizen.perf.simulated._device import simulated_device
from denizen.perf.simulated._streams import streams_watched
from denizen.perf.simulated._tensor import live_bytes
from denizen.perf.watch import _compiler
from denizen.perf.watch._blame import could_not_look, unseen
from denizen.perf.watch._compiler import graphs_compiled
from denizen.perf.watch._event_log import EventLog, allow, logging_events, open_logs
from denizen.perf.watch._findings import Finding, findings
from denizen.perf.watch._on_cuda import logging_cuda
from denizen.perf.watch._operations import SIMULATED
from denizen.perf.watch._spans import profiled

Item = TypeVar("Item")
Call = TypeVar("Call", bound=Callable[..., Any])


def budget(
    host_reads: int | None = 0,
    transfers: int | None = 0,
    bytes: int | None = None,
    graphs: int | None = None,
    recompiles: int | None = 0,
    new_allocations: int | None = None,
    kernels: int | None = None,
    ops: int | None = None,
    peak_bytes: int | None = None,
    *,
    device: torch.device | str | None = None,
) -> "Budget":
    """Fail where a region of code keeps the device waiting, or does more than allowed, and name the lines.

    ```python
    guard = dz.budget()  # no host reads, no transfers, no recompilations
    model = Net().to(guard.device)  # the GPU where there is one, else a simulated one: no GPU needed
    train_step(model)  # first-call work: optimizer state, compilation
    with guard:
        train_step(model)
    ```

    Or for a whole loop, `for batch in guard.steps(loader)`: each limit then holds for each step, the first of which is
    a warm-up. Or as a decorator, where each call is a region. It counts what this thread or task does, and threads that
    it starts. Use it in tests: it adds about 10 µs to an operation, and nothing once it is closed.

    Each limit is an upper bound; None: no bound.

    Args:
        host_reads: times that the host waits for the device: `.item()`, `if tensor:`, `print`, `nonzero`, masks as
            indices, `.cpu()`, `synchronize()`.
        transfers: copies between host and device that are waited for or go through pageable memory, those of a single
            value included (``torch.tensor(0.5, device=...)``, ``x[0] = 3.0``). Not among them: copies between pinned
            memory and the device with ``non_blocking=True``, copies of no elements, and what arithmetic and fills are
            given with their launch.
        bytes: carried across, by copies of every sort and by reads.
        graphs: that `torch.compile` makes.
        recompiles: of functions that were compiled before, and functions given up at torch's limit of recompilations.
        new_allocations: blocks of device memory taken.
        kernels: run by the device. On the simulated device operations are counted, an upper bound but for libraries
            that launch several for one.
        ops: operations that compute something; views are left out. On CUDA operations inside compiled code pass unseen.
        peak_bytes: of device memory in use, at most, what was in use before included.
        device: that the region works on: a CUDA device, or ``"simulated"``. None: the current CUDA device where there
            is one (and $DENIZEN_DEVICE is not ``cpu``), else the simulated one.

    Returns:
        A context manager, decorator and source of steps; `Budget.report` tells what was counted.

    Raises:
        InputError: a limit is no number of 0 or more, or the device is neither.
        BudgetError: at the end of a region, if it went over a limit; on the simulated device also if nothing ran there,
            in this region or an earlier one, and neither `ops` nor `kernels` is 0 (on CUDA, where replayed graphs and
            compiled code pass unseen, a warning tells it).
        DenizenError: the region uses what cannot be examined, such as nested tensors on the simulated device.
    """
    limits = {
        "host_reads": host_reads,
        "transfers": transfers,
        "bytes": bytes,
        "graphs": graphs,
        "recompiles": recompiles,
        "new_allocations": new_allocations,
        "kernels": kernels,
        "ops": ops,
        "peak_bytes": peak_bytes,
    }
    return Budget(limits, device)


class Budget:
    """Limits for a region of code; made by `dz.budget`.

    Attributes:
        limits: by name; None where there is no bound.
        report: of the region that closed last; None before.
    """

    def __init__(self, limits: Mapping[str, int | None], device: torch.device | str | None = None) -> None:
        for name, value in limits.items():
            if name not in LIMITS:
                raise InputError(f"budget({name}=...): no such limit; {nearest(name, LIMITS)}")
            if value is not None:
                whole("budget", name, value, low=0, hint=", or None for no bound")
        self.limits = {name: limits.get(name) for name in LIMITS}
        self.report: BudgetReport | None = None
        self._wanted, self._place = device, _where(device)
        self._uses: dict[object, int] = {}
        self._entries, self._heard = 0, False
        self._region: _Region | None = None
        self._lock = threading.Lock()

    @property
    def device(self) -> torch.device:
        """What to move models and tensors to; works before the region as well.

        The CUDA device, or ``simulated:0``, which holds real values on the CPU: code runs as it does on a GPU, apart
        from `torch.autocast`, which does nothing there, and code that asks for ``device.type == "cuda"``.
        """
        return simulated_device() if self._place.type == SIMULATED else self._place

    @property
    def findings(self) -> list[Finding]:
        """Those of the region that closed last, or of the open one so far."""
        if self._region is not None:
            return self._region.findings()
        return [] if self.report is None else self.report.findings

    def __enter__(self) -> "Budget":
        with self._lock:
            if self._region is not None:
                raise InputError("this budget is open already; make another for a region within it: dz.budget(...)")
            self._region = _Region(self.limits, self.device, self._entries, self._uses)
            self._entries += 1
        self._region.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        region, self._region = self._region, None
        assert region is not None
        self._closed(region, error)

    def _closed(self, region: "_Region", error: BaseException | None) -> None:
        self.report = report = region.close(self._heard)
        self._heard = report.heard
        if error is None:
            _judge(report)
        _explain(error)

    def steps(self, items: Iterable[Item] | int, warmup: int = 1) -> Generator[Any]:
        """Loop over steps within the open region; each limit holds for each of them.

        What happens before and after is set-up and is not counted, nor are the first steps.

        Args:
            items: to loop over, a number standing for `range`; drawing the next one belongs to its step.
            warmup: steps at the beginning in which first-call work may happen: optimizer state, compilation, caches.

        Raises:
            InputError: the budget is not open, `items` is nothing to loop over, or `warmup` is no number of 0 or more.
        """
        region = self._region
        if region is None:
            raise InputError(
                "steps() counts within a region: with dz.budget() as guard: for x in guard.steps(...): ..."
            )
        warmup = whole("steps", "warmup", warmup, low=0)
        if isinstance(items, int) and not isinstance(items, bool) and items >= 0:
            return region.steps(range(items), warmup)
        if not isinstance(items, Iterable):
            raise InputError(f"steps: items={items!r}, expected things to loop over, or a number of steps")
        return region.steps(items, warmup)

    def allow(self, reason: str, every: int | None = None) -> AbstractContextManager[None]:
        """`dz.perf.allow`: mark reads and copies as meant."""
        return allow(reason, every)

    @overload
    def __call__(self, function: Call, /) -> Call: ...
    @overload
    def __call__(self, /, **limits: int | None) -> "Budget": ...
    def __call__(self, function: Any = None, /, **limits: int | None) -> Any:
        """Decorate a function, each call of which is a region; or, given limits, make a budget with these changed."""
        if function is None:
            return Budget({**self.limits, **limits}, self._wanted)
        if limits or not callable(function):
            raise InputError(f"a budget decorates a function, or takes limits by name; got {function!r} and {limits}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InputError(
                f"a budget cannot decorate the generator {function.__name__}: who draws from it works between its "
                "parts; decorate the function that loops over it, or use `with budget(...)` there"
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with self._call():
                    return await function(*args, **kwargs)

            return awaited

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with self._call():
                return function(*args, **kwargs)

        return called

    def _call(self) -> AbstractContextManager[object]:
        return _Call(self)


def _explain(error: BaseException | None) -> None:
    """Say by name what torch has no code for here, in place of an error from inside it."""
    name = unseen(error) if isinstance(error, Exception) and not isinstance(error, DenizenError) else ""
    if name:
        raise could_not_look(name, error) from error


def _judge(report: BudgetReport) -> None:
    """Raise, or warn, at the end of a region."""
    if not report.ok:
        raise BudgetError(str(report), report)
    if report.saw_nothing:
        warnings.warn(str(report), stacklevel=4)


class _Call:
    """One call of a decorated function: a region of its own, for threads may call it at once. Recursion is one call."""

    def __init__(self, owner: Budget) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        owner = self._owner
        self._region = None
        if any(event_log.uses is owner._uses for event_log in open_logs()):
            return
        with owner._lock:
            self._region = _Region(owner.limits, owner.device, owner._entries, owner._uses)
            owner._entries += 1
        self._region.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._region is None:
            return
        self._owner._closed(self._region, error)


class _Region:
    """One pass through a budget."""

    def __init__(
        self, limits: Mapping[str, int | None], device: torch.device, entry: int, uses: dict[object, int]
    ) -> None:
        self._limits, self._device, self._opened = limits, device, ExitStack()
        sites = limits["new_allocations"] is not None or limits["peak_bytes"] is not None
        self.event_log = EventLog(sites=sites, step=entry, uses=uses)
        self._step: int | None = None
        self._counted: list[int] | None = None  # steps; None: the region is one
        self._profile: Any = None
        self._mark = (0, 0)

    def __enter__(self) -> None:
        _compiler.install()
        opened = self._opened
        opened.enter_context(streams_watched)
        if self._limits["kernels"] is not None and self._device.type == "cuda":
            self._profile = opened.enter_context(profiled(self._device))
        opened.enter_context(logging_events(self.event_log))
        if self._device.type == "cuda":
            opened.enter_context(logging_cuda(self._device, self.event_log))
        self._begin()

    def close(self, heard: bool) -> BudgetReport:
        """What was counted.

        Args:
            heard: whether an earlier region of the same budget saw anything.
        """
        self._end()
        self._opened.close()
        kernels = len(self._profile.kernels) if self._profile is not None else None
        found, steps = self.findings(), self._counted
        measured = measure(self.event_log, steps, kernels)
        heard = heard or self.event_log.saw_device
        return BudgetReport(self._device, dict(self._limits), measured, found, steps, self.event_log.ops, heard)

    def findings(self) -> list[Finding]:
        with self.event_log.lock:
            return findings(list(self.event_log.events), self._counted)

    def steps(self, items: Iterable[Any], warmup: int) -> Generator[Any]:
        """See `Budget.steps`."""
        if self._counted is None:
            self._counted, self._step = [], 0
            for event in self.event_log.events:  # what came before was set-up
                event.step, event.counted = None, False
        drawn, index = iter(items), 0
        try:
            while True:
                counted = index >= warmup
                self._next(self._step, counted)
                try:
                    item = next(drawn)
                except StopIteration:
                    break
                if counted:
                    self._counted.append(self._step)  # type: ignore[arg-type]
                yield item
                index, self._step = index + 1, self._step + 1  # type: ignore[operator]
        finally:
            self._next(None, False)

    def _next(self, step: int | None, counted: bool) -> None:
        self._end()
        self.event_log.begin(step, counted)
        self._begin()

    def _begin(self) -> None:
        if self._device.type == "cuda":
            self._mark = (_allocated(self._device), graphs_compiled())
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            self._mark = (0, graphs_compiled())
            self.event_log.now.peak = max(self.event_log.now.peak, live_bytes())

    def _end(self) -> None:
        now = self.event_log.now
        now.graphs += graphs_compiled() - self._mark[1]
        if self._device.type == "cuda":
            now.allocations += _allocated(self._device) - self._mark[0]
            now.peak = max(now.peak, torch.cuda.max_memory_allocated(self._device))


def _allocated(device: torch.device) -> int:
    return torch.cuda.memory_stats(device).get("allocation.all.allocated", 0)


def _where(device: torch.device | str | None) -> torch.device:
    if device is None:
        on_cpu = os.environ.get("DENIZEN_DEVICE", "").startswith("cpu")
        if torch.cuda.is_available() and not on_cpu:
            return torch.device("cuda", torch.cuda.current_device())
        return _SIMULATED
    kind, _, index = str(device).partition(":")
    if kind == SIMULATED and index in ("", "0"):
        return _SIMULATED
    if kind == "cuda" and (not index or index.isdigit()):
        if not torch.cuda.is_available():
            raise InputError(
                f"budget(device={str(device)!r}): there is no CUDA device here; leave it out to simulate one"
            )
        count = torch.cuda.device_count()
        number = int(index) if index else torch.cuda.current_device()
        if number >= count:
            raise InputError(f"budget(device={str(device)!r}): this machine has {count}, numbered from 0")
        return torch.device("cuda", number)
    raise InputError(f"budget(device={str(device)!r}): expected a CUDA device, such as 'cuda', or 'simulated'")


class _Simulated:
    """Stands for the simulated device until it is registered, which takes a second."""

    type = SIMULATED


_SIMULATED: Any = _Simulated()
