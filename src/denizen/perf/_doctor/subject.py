"""The step that is examined: how it is called, on which device it works, and what it changes."""

import inspect
import random
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from denizen.errors import InputError, expect_function
from denizen.perf.state._training_state import Keeper, Snapshot, TrainingState, _global_generators, used
from denizen.perf.watch._blame import place_of, unseen
from denizen.perf.watch._operations import SIMULATED
from denizen.perf.watch._places import shown

_STATEFUL = (Tensor, nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
_STATEFUL += (torch.Generator, np.ndarray, np.random.Generator, random.Random, dict, list)


class Subject:
    """A step, called again and again.

    Attributes:
        step: as given.
        made: whether a `make` built it, so that it is nobody's.
        spent: whether its data came to an end, so that it has to be built anew.
        ended: by which error, where it was none that only says so; "" otherwise.
    """

    def __init__(self, step: Callable[..., Any], args: tuple[Any, ...], state: Any, made: bool) -> None:
        if not callable(step):
            raise InputError(f"doctor(step={step!r}): expected a function that does one step of the loop")
        self.step, self.made = step, made
        self._args, self._state = args, state
        self._numbered = not args and _wants_one(step)
        given = ("number",) if self._numbered else tuple(type(one).__name__ for one in args)
        wanted = (
            None if args else "a function of nothing or of the step's number; what else it takes is given behind it"
        )
        expect_function("the step", step, *given, wanted=wanted)
        self._count = 0
        self.spent, self.ended = False, ""
        self._again: Callable[[], Subject] | None = None

    def __call__(self) -> None:
        """Do the next step; one that takes a single argument, and was given none, gets its number."""
        number, self._count = self._count, self._count + 1
        made = self.step(*((number,) if self._numbered else self._args))
        if inspect.isgenerator(made) or inspect.iscoroutine(made):
            made.close()
            raise InputError(
                f"doctor: the step gives a {type(made).__name__}, of which nothing has run; pass a function that does "
                "one step, such as lambda: next(steps) with steps = train()"
            )

    def exhausted(self, error: Exception) -> bool:
        """Whether an error only says that the data came to an end, and the step can be built anew.

        Raises:
            InputError: they came to an end, and it cannot be built anew.
        """
        if self._again is not None and self._count > 2 and not unseen(error):
            if not isinstance(error, StopIteration) and not self.ended:
                place = place_of(error)
                at = f" at {shown(place.file)}:{place.line} in {place.function}" if place is not None else ""
                said = f"{type(error).__name__}: {error}".partition("\n")[0]
                after = f"the step failed after {self._count - 1} steps{at} ({said})"
                self.ended = f"{after}, taken for the end of its data: it was built anew"
            self.spent = True
            return True
        if isinstance(error, StopIteration) and self._again is None:
            raise InputError(
                f"the step ran out of data after {self._count - 1} steps; begin a pass of its own inside the step when "
                "that happens, or pass make=, a function of a device that builds the step, which is then built anew"
            ) from error
        return False

    def rebuild(self) -> None:
        """Begin anew with a step that `make` builds."""
        assert self._again is not None
        fresh = self._again()
        self.step, self._args, self._numbered = fresh.step, fresh._args, fresh._numbered
        self._count, self.spent = 0, False

    def snapshot(self) -> "Kept":
        """Keep what the step changes: what was said to be its state, else what it uses by name."""
        return Kept(self)

    def parameters(self) -> list[Tensor]:
        """Parameters of the modules and optimizers that the step uses by name."""
        things = [thing for thing in self.used() if isinstance(thing, nn.Module | torch.optim.Optimizer)]
        return [tensor for tensor in _tensors_of(things, 0) if isinstance(tensor, nn.Parameter)]

    def used(self) -> list[Any]:
        """Things that the step uses by name: modules, optimizers, tensors."""
        return [thing for _, thing in used(self.step, 0)]


class Kept:
    """What a step changes, as far as it is known; `restore` puts it back."""

    def __init__(self, subject: Subject) -> None:
        self._subject, self._count = subject, subject._count
        if subject._state is not None:
            self._snapshot = TrainingState.of(subject._state).snapshot()
            return
        keeper = Keeper()
        for name, thing in used(subject.step, 0):
            if isinstance(thing, _STATEFUL) or (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
                _keep(keeper, name, thing)
        for number, argument in enumerate(subject._args):
            _keep(keeper, f"argument {number}", argument)
        self._snapshot = Snapshot([*keeper.restores, _global_generators()], keeper)

    def restore(self) -> None:
        """Put it back in place."""
        self._snapshot.restore()
        self._subject._count = self._count


def _keep(keeper: Keeper, name: str, thing: Any) -> None:
    begun = len(keeper.restores)
    try:
        keeper.keep(name, thing, strict=False)
    except Exception:  # a thing of the user's that cannot be kept stays as the steps leave it
        del keeper.restores[begun:]


def _wants_one(step: Callable[..., Any]) -> bool:
    """Whether a step has exactly one argument that it must be given."""
    return len(required(step)) == 1


def required(function: Callable[..., Any]) -> list[str]:
    """Names of the arguments that a function must be given by position."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty]


def check_make(make: Any) -> None:
    """Raise `InputError` where this cannot be called with a `device`, or without arguments."""
    named = ["device"] if callable(make) and make_takes_device(make) else []
    expect_function("doctor: make", make, named=named, wanted="a function of device, or without arguments")


def make_takes_device(make: Callable[..., Any]) -> bool:
    """Whether a maker can be told where to build."""
    try:
        return "device" in inspect.signature(make).parameters
    except (TypeError, ValueError):
        return False


def built(make: Callable[..., Any], device: torch.device) -> Subject:
    """The step that `make` builds for a device, as `doctor(make=…)` and the commands take it.

    Args:
        make: of the device, or without an argument; returns a step, or the step and its arguments.
        device: that it is built for.

    Returns:
        The step, which takes its arguments along: a function of nothing.

    Raises:
        InputError: `make` takes other arguments, or returns no function.
    """
    check_make(make)
    step = make(device=device) if make_takes_device(make) else make()
    args: tuple[Any, ...] = ()
    if isinstance(step, tuple) and step and callable(step[0]):
        step, args = step[0], tuple(step[1:])
    if not callable(step):
        name = getattr(make, "__name__", "make")
        raise InputError(
            f"{name}() returned {type(step).__name__}; expected a function that does one step of the loop, as in "
            f"def {name}(device): ...; def step(): ...; return step"
        )
    subject = Subject(step, args, None, made=True)
    subject._again = lambda: built(make, device)
    return subject


def device_of(subject: Subject) -> torch.device:
    """The device of what a step uses: CUDA or the simulated one where anything lies there, else the CPU."""
    seen: dict[str, torch.device] = {}
    for tensor in _tensors_of([*subject.used(), *subject._args], 0):
        seen.setdefault(tensor.device.type, tensor.device)
    for kind in ("cuda", SIMULATED):
        if kind in seen:
            return seen[kind]
    if "cpu" not in seen and torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _tensors_of(things: Any, depth: int) -> Iterator[Tensor]:
    for thing in things:
        if isinstance(thing, Tensor):
            yield thing
        elif isinstance(thing, nn.Module):
            yield from thing.parameters()
            yield from thing.buffers()
        elif isinstance(thing, torch.optim.Optimizer):
            yield from (parameter for group in thing.param_groups for parameter in group["params"])
        elif isinstance(thing, torch.device):
            if thing.type != "cpu" and depth == 0:
                yield torch.empty(0, device=thing)
        elif isinstance(thing, dict) and depth < 3:
            yield from _tensors_of(thing.values(), depth + 1)
        elif isinstance(thing, list | tuple) and depth < 3:
            yield from _tensors_of(thing[:64], depth + 1)
        elif isinstance(thing, type | ModuleType) or callable(thing):
            continue
        elif hasattr(thing, "__dict__") and depth < 2:
            yield from _tensors_of(list(vars(thing).values()), depth + 1)
