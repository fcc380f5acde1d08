"""The guard around a run's init and first step: what would give wrong numbers without a word becomes an error.

It watches the author's calls of torch from two sides: as written (a function mode; under vmap it sees one world) and
as executed (a dispatch mode; below vmap it sees storages). Calls that denizen makes on its own account pass. Host reads
pass too, an eager run survives them; `dz.check` finds those.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from denizen.errors import ModelError
from denizen.model import _hazards, _kinds
from denizen.model._hazards import Hazard
from denizen.model._lines import (
    Line,
    asked_on_host,
    author_frame,
    calling_frame,
    line_of_error,
    line_of_frame,
    line_of_function,
)
from denizen.model._model import Model

Tell = Callable[[str, Line | None, Hazard], None]  # rule, line (None: where init or step returns), what is wrong

RANDOM = Hazard(
    "draws from torch's global generator, which no seed, world or restart of a run reproduces",
    'rng.uniform("name"), rng.bernoulli("name", prob), rng.normal("name"), …',
)
IN_PLACE = Hazard(
    "writes into a tensor that the step did not make (of the state, the model or from outside)",
    "a new value: torch.where(…), x.index_add(…), x.scatter(…), x + y",
)
_FROM_OUTSIDE = ("from_numpy", "frombuffer", "as_tensor", "asarray", "__deepcopy__")


class Calls(TorchFunctionMode):
    """Watches torch functions as the author calls them."""

    def __init__(self, tell: Tell, writes: "Writes") -> None:
        super().__init__()
        self._tell, self._writes = tell, writes

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _FROM_OUTSIDE:
            with self._writes.looking_away():
                out = func(*args, **kwargs)
            self._writes.made(out)
            return out
        if name not in _hazards.WATCHED or (frame := author_frame()) is None:
            out = func(*args, **kwargs)
            if name == "to" and (caller := calling_frame()) and caller.f_code.co_filename == _kinds.__file__:
                self._stored(caller, args[0], out)
            return out
        self._report(frame, _hazards.before(name, args, kwargs))
        with self._writes.looking_away():
            wide = _hazards.expected(name, args, kwargs)
        out = func(*args, **kwargs)
        with self._writes.looking_away():
            hazard = _hazards.after(name, func, args, kwargs, out, wide)
        self._report(frame, hazard)
        return out

    def _stored(self, caller: FrameType, value: Tensor, out: Tensor) -> None:
        """A field given wider integers than it stores."""
        if not out.dtype.is_floating_point:
            with self._writes.looking_away():
                hazard = _hazards.cast(value, out)
            if hazard is not None:
                what = f"{caller.f_locals.get('where', 'a field')} is stored as it cannot be: {hazard.what}"
                self._tell("int8", None, Hazard(what, "a mask of 0 and 1, a stage code, a count within its bounds"))

    def _report(self, frame: FrameType, hazard: Hazard | None) -> None:
        if hazard is not None and not asked_on_host(frame):
            self._tell("int8", line_of_frame(frame), hazard)


class Writes(TorchDispatchMode):
    """Watches operations below vmap: random numbers, and writes into tensors that were not made under the watch."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell
        self._made: set[int] = set()
        self._away = False

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """While the watch itself computes something."""
        self._away = True
        try:
            yield
        finally:
            self._away = False

    def made(self, tensor: Tensor) -> None:
        """Count a tensor as made by the step, so that it may be written to."""
        self._made.add(_hazards.plain(tensor).untyped_storage()._cdata)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._away:
            return func(*args, **kwargs)
        self.look(func, args, kwargs)
        out = func(*args, **kwargs)
        if facts(func).fresh:
            for value in out if isinstance(out, tuple | list) else (out,):
                if isinstance(value, Tensor):
                    self._made.add(value.untyped_storage()._cdata)
        return out

    def look(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Tell what is wrong with an operation about to run."""
        known = facts(func)
        if known.random and not (known.dropout is not None and _value(known.dropout, args, kwargs) == 0):
            self.report("random", RANDOM)
        if known.writes and any(t.untyped_storage()._cdata not in self._made for t in _written(known, args, kwargs)):
            self.report("in place", IN_PLACE)

    def report(self, rule: str, hazard: Hazard) -> None:
        """Tell about the author's line that runs now, if it is the author's."""
        frame = author_frame()
        if frame is not None and not asked_on_host(frame):
            self._tell(rule, line_of_frame(frame), hazard)


# torch would import its compiler (0.7 s) to keep it out of a dispatch mode; nothing is compiled while this one watches.
_watch = getattr(Writes.__torch_dispatch__, "__wrapped__", None)
if _watch is not None:
    _watch.__dict__.setdefault("__dynamo_disable", _watch)


@dataclasses.dataclass(frozen=True)
class Facts:
    """What torch says about an operation.

    Attributes:
        random: whether it draws random numbers …
        dropout: … unless this argument, a position and a name, is 0.
        fresh: whether it returns tensors of its own.
        writes: arguments that it writes to.
    """

    random: bool
    dropout: tuple[int, str] | None
    fresh: bool
    writes: tuple[tuple[int, str], ...]


@functools.cache
def facts(func: Any) -> Facts:
    """Read once for each operation, since the schema is slow to ask."""
    schema = func._schema
    writes = [(k, a.name) for k, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    # lift_fresh wraps what torch.tensor(…) has just made, yet says that it returns an alias
    fresh = func is torch.ops.aten.lift_fresh.default or not any(r.alias_info for r in schema.returns)
    dropout = next(((k, a.name) for k, a in enumerate(schema.arguments) if a.name == "dropout_p"), None)
    return Facts(torch.Tag.nondeterministic_seeded in func.tags, dropout, fresh, tuple(writes))


def _value(argument: tuple[int, str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    position, name = argument
    return args[position] if position < len(args) else kwargs.get(name, 0)


def _written(known: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    for argument in known.writes:
        value = _value(argument, args, kwargs)
        yield from (v for v in (value if isinstance(value, list | tuple) else (value,)) if isinstance(v, Tensor))


@contextmanager
def guard(model: Model, phase: str = "step") -> Iterator[None]:
    """Watch init or one step; costs about as much as the step itself.

    Args:
        model: the model that runs, for messages.
        phase: ``"init"`` or ``"step"``, the function that is blamed where no line of it is.

    Raises:
        ModelError: names the author's line, what is wrong and what to write instead: narrow integers that wrap, `~` on
            a mask, writes into tensors that the step did not make, random numbers that do not come from `rng`.
    """
    name = type(model).__name__

    def tell(rule: str, line: Line | None, hazard: Hazard) -> None:
        raise ModelError(_message(name, line or line_of_function(getattr(type(model), phase)), hazard))

    writes = Writes(tell)
    try:
        with writes, Calls(tell, writes):
            yield
    except RuntimeError as error:
        known, line = translate(str(error)), line_of_error(error)
        if known is None or line is None:
            raise
        raise ModelError(_message(name, line, known[1])) from error


def _message(name: str, line: Line | None, hazard: Hazard) -> str:
    where = f" at {line}: {line.text}" if line else ""
    return f"{name}{where}\n  {hazard.what}\n  write instead: {hazard.instead}"


def translate(message: str) -> tuple[str, Hazard] | None:
    """(rule, hazard) for a message of torch's about a broken rule of authoring, None for others."""
    for part, rule, hazard in _MESSAGES:
        if part in message:
            return rule, hazard
    return None


HOST_READ = Hazard(
    "reads a value on the host: the device waits, and vmap and compilation cannot follow",
    "keep it a tensor: torch.where(condition, a, b) instead of if, masks instead of numbers",
)
DATA_SHAPE = Hazard(
    "makes a tensor whose shape depends on values",
    "a fixed shape: a mask times values, torch.where(mask, a, b), torch.zeros(k).index_add(0, codes, values) to count, "
    "torch.nonzero_static(mask, size=k)",
)
_MESSAGES = (
    ("called random operation while in randomness error mode", "random", RANDOM),
    ("vmap: It looks like you're calling .item()", "host read", HOST_READ),
    ("vmap: It looks like you're attempting to use a Tensor in some data-dependent", "host read", HOST_READ),
    (
        "indexing with a boolean mask",
        "vmap",
        Hazard("vmap cannot index with a mask, whose ones differ in number", "torch.where(mask != 0, new, old)"),
    ),
    ("Cannot access data pointer of Tensor", "host read", HOST_READ),  # x.numpy() of many worlds
    ("batching operators that can output dynamic shape", "shapes", DATA_SHAPE),
    ("vmap: inplace arithmetic", "in place", IN_PLACE),
    (
        "value cannot be converted to type int8_t without overflow",
        "int8",
        Hazard("a number does not fit int8 (-128 … 127)", "mask.to(torch.int32) first"),
    ),
)
