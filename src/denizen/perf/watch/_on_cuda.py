"""Hearing what a region does to a CUDA device: operations by a dispatch mode, waits by torch's own warnings of them."""

import contextlib
import dataclasses
from collections.abc import Generator
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from denizen.perf.watch._calls import function_traced
from denizen.perf.watch._event_log import HOST_READS, TRANSFERS, EventLog, here, log_event, logging_elsewhere, open_logs
from denizen.perf.watch._faults import METHODS, kind_of_read
from denizen.perf.watch._operations import fresh, is_higher_order, of_parameter, tensors_in, traits, waits, work
from denizen.perf.watch._places import Place, locate, written
from denizen.perf.watch._sync import sync_warnings_to

EXPLICIT = "host-sync-explicit"


@contextlib.contextmanager
def logging_cuda(device: torch.device, event_log: EventLog) -> Generator[None]:
    """Have an event log, open already, take up what this thread does to a device. Costs 10 to 20 µs an operation.

    Compiled code runs as compiled, and counts no operations. Waits that torch does not warn of (events; for streams and
    the whole device see `denizen.perf.simulated._streams`) and copies from pageable memory that were meant not to wait
    are told as well.
    """
    mode = _LogsOperations(device.type, event_log)
    with sync_warnings_to(mode), cuda_events_logged(), mode:
        yield


@contextlib.contextmanager
def cuda_events_logged() -> Generator[None]:
    """Tell waits for events of CUDA that were not complete."""
    with function_traced(torch.cuda.Event.synchronize.__code__, _waits):
        yield


def _waits(frame: FrameType) -> None:
    if open_logs() and not frame.f_locals["self"].query():
        place = here()
        libraries = tuple(at for at in place.libraries if at[2] != frame.f_code.co_name)
        log_event(EXPLICIT, "Event.synchronize", (HOST_READS,), place=dataclasses.replace(place, libraries=libraries))


class _LogsOperations(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, device: str, event_log: EventLog) -> None:
        super().__init__()
        self._device, self._event_log = device, event_log
        self._inside, self._waited = 0, 0
        self._logged_at: tuple[str, int, int | None] | None = None  # file, line and step of the latest that a rule knew

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code may be called within."""
        return True

    def append(self, place: str, /) -> None:
        """Torch warns of a wait: of the operation that runs, or of one that passes no mode, such as compiled code.

        Functions of torch keep the warnings of their operations until they return: then a rule has told of the wait.
        """
        self._waited += 1
        if not self._inside:
            where = _without_warnings(locate(METHODS, self._event_log.thread))
            if self._logged_at == self._at(where):
                return
            where = dataclasses.replace(where, method=where.method or written())
            if where.method == "__getitem__":  # a list as index: torch brings it over itself
                log_event("h2d-index", where.method, (TRANSFERS,), place=where)
                return
            log_event(kind_of_read("", where, False), "CUDA synchronisation", (HOST_READS,), place=where)

    def _at(self, place: Place) -> tuple[str, int, int | None]:
        return place.file, place.line, self._event_log.step

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_higher_order(func):
            return func(*args, **kwargs)
        with (
            contextlib.nullcontext() if open_logs() else logging_elsewhere(self._event_log)
        ):  # autograd's threads hear nothing
            before, self._inside = self._waited, self._inside + 1
            try:
                out = func(*args, **kwargs)
            finally:
                self._inside -= 1
            self._log(func, args, kwargs, out, self._waited > before)
        return out

    def _log(self, func: Any, args: Any, kwargs: Any, out: Any, waited: bool) -> None:
        seen = traits(func)
        if any(tensor.device.type == self._device for tensor in tensors_in((args, out))):
            work(seen, 0, 0)
        if seen.schema == "aten::detach" and of_parameter(args[0]):  # as in state_dict(): still a parameter's memory
            out._of_parameter = True
        before = len(self._event_log.events)
        waits(func, seen, args, kwargs, out, self._device)
        if seen.schema == "aten::lift_fresh" and out.device.type == self._device:
            fresh(seen, out)
            self._logged_at = self._at(locate(METHODS, self._event_log.thread))
        known = len(self._event_log.events) > before
        if not (known or waited):
            return
        place = locate(METHODS, self._event_log.thread)
        self._logged_at = self._at(place)
        if waited and not known:
            place = dataclasses.replace(place, method=place.method or written())
            log_event(kind_of_read(seen.schema, place, False), seen.name, (HOST_READS,), place=place)


def _without_warnings(place: Place) -> Place:
    return dataclasses.replace(
        place, libraries=tuple(at for at in place.libraries if not at[0].endswith("warnings.py"))
    )
