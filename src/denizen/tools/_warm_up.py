"""Run a few steps for what they compile and allocate, and undo everything else."""

import contextlib
import dis
import inspect
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from denizen._watch._recorder import allow
from denizen.errors import InputError, expect_function
from denizen.tools._training_state import Snapshot, TrainingState

DEPTH = 3  # of functions that a step calls
FOREIGN = ("torch", "numpy", "denizen")


def warm_up(step: Callable[..., object], *args: Any, state: Any, steps: int = 3) -> list[float]:
    """Take steps whose effects are undone: what follows has the same bits as without them.

    ```python
    dz.tools.warm_up(step, state=[model, optimizer, scheduler], steps=3)
    ```

    Compiled code, captured graphs, choices of autotuning and memory pools stay; weights, buffers, gradients, optimizer,
    schedules, loaders and random numbers are put back in place, also if a step fails. The first step shows what
    compilation costs.

    Args:
        step: one step of training, called as ``step(*args)``.
        args: for `step`, such as a batch. A step that draws its own batches begins a pass of its own,
            ``next(iter(loader))``: an iterator cannot be turned back.
        state: what the step changes: a `TrainingState`, or a list or mapping of its parts. Global generators belong to
            it always.
        steps: at least 1.

    Returns:
        Seconds of each step, waiting for the device after each.

    Raises:
        InputError: `steps` is below 1, or a part of `state` cannot be kept.

    Warns:
        UserWarning: `step` uses a model, optimizer, scheduler or generator that is not in `state`.
    """
    if steps < 1:
        raise InputError(f"steps={steps}: expected at least 1")
    expect_function("warm_up: step", step, *(type(one).__name__ for one in args))
    with TrainingState.of(state).kept() as snapshot:
        warn_of_forgotten(step, snapshot, "warm_up")
        return [_timed(step, args) for _ in range(steps)]


def _timed(step: Callable[..., object], args: tuple[Any, ...]) -> float:
    began = time.perf_counter()
    step(*args)
    if torch.cuda.is_initialized():
        with allow("the end of a step that is timed"):
            torch.cuda.synchronize()
    return time.perf_counter() - began


def warn_of_forgotten(step: Callable[..., object], snapshot: Snapshot, caller: str) -> None:
    """Warn of things with a state that a step uses by name and that were not kept."""
    missing = {name for name, thing in _used(step, 0) if _has_state(thing) and not _covered(snapshot, thing)}
    if missing:
        names = ", ".join(sorted(missing))
        warnings.warn(
            f"{caller}: the step uses {names}, which will not be put back; add to state=[…] what it changes",
            stacklevel=3,
        )


def _used(step: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Variables from outside that a function and those it calls use, and attributes of its object if it is a method."""
    owner = getattr(step, "__self__", None)
    if owner is not None and not isinstance(owner, nn.Module):
        yield from ((f"self.{name}", thing) for name, thing in getattr(owner, "__dict__", {}).items())
    function = getattr(step, "__func__", step)
    if not inspect.isfunction(function) or depth > DEPTH or (function.__module__ or "").partition(".")[0] in FOREIGN:
        return
    for name, thing in _outside(function).items():
        yield name, thing
        yield from _used(thing, depth + 1)


def _outside(function: types.FunctionType) -> dict[str, Any]:
    """Globals and variables of enclosing functions that a function reads, functions defined inside it included."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not filled yet
            found[name] = cell.cell_contents
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        names = {it.argval for it in dis.get_instructions(code) if it.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        found |= {name: function.__globals__[name] for name in names if name in function.__globals__}
    return found


def _covered(snapshot: Snapshot, thing: Any) -> bool:
    if isinstance(thing, nn.Module):  # wrappers hold the tensors of what they wrap
        return all(snapshot.covers(tensor) for part in (thing.parameters(), thing.buffers()) for tensor in part)
    return snapshot.covers(thing)


def _has_state(thing: Any) -> bool:
    if isinstance(thing, nn.Module):  # a loss function has none
        return any(True for _ in thing.parameters()) or any(True for _ in thing.buffers())
    return isinstance(thing, (torch.Generator, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)) or (
        isinstance(thing, torch.amp.GradScaler) and thing.is_enabled()
    )
