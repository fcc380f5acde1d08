"""Run a few steps for what they compile and allocate, and undo everything else; and where a training lives."""

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from denizen._arguments import whole
from denizen.errors import expect_function
from denizen.perf.state import Snapshot, TrainingState, used
from denizen.perf.watch import allow


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
    whole("warm_up", "steps", steps, 1)
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
    missing = {name for name, thing in used(step, 0) if _has_state(thing) and not _covered(snapshot, thing)}
    if missing:
        names = ", ".join(sorted(missing))
        warnings.warn(
            f"{caller}: the step uses {names}, which will not be put back; add to state=[…] what it changes",
            stacklevel=3,
        )


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


def place_of(training: TrainingState) -> torch.device:
    """Where the tensors of the parts are."""
    for tensor in _tensors(training):
        if tensor.device.type != "cpu":
            return tensor.device
    return torch.device("cpu")


def _tensors(training: TrainingState) -> Iterator[Tensor]:
    for part in training.parts.values():
        if isinstance(part, nn.Module):
            yield from part.parameters()
        elif isinstance(part, torch.optim.Optimizer):
            yield from (weight for group in part.param_groups for weight in group["params"])
        elif isinstance(part, Tensor):
            yield part
