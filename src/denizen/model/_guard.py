"""The guard around a run's init and first step: what would give wrong numbers without a word becomes an error.

It watches the author's calls of torch from two sides: as written (a function mode; under vmap it sees one world) and
as executed (a dispatch mode; below vmap it sees storages). Calls that denizen makes on its own account pass. Host reads
pass too, an eager run survives them; `dz.check` finds those, by stricter modes. What comes out wrong without an error
are operations on narrow integers (`hazard_before`, `hazard_after`).
"""

import collections
import dataclasses
import functools
import operator
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from denizen import ops
from denizen.errors import ModelError
from denizen.model import _kinds
from denizen.model._model import Model
from denizen.model._source_lines import (
    Line,
    asked_on_host,
    author_frame,
    calling_frame,
    line_of_error,
    line_of_frame,
    line_of_function,
    whose,
)

NARROW = (torch.int8, torch.uint8, torch.int16)
_NOT = {"__invert__", "bitwise_not", "bitwise_not_"}
_FLOAT_ONLY = {"mean", "std", "var", "nanmean", "std_mean", "var_mean"}
_MATMUL = {"matmul", "__matmul__", "__rmatmul__", "mm", "mv", "dot", "bmm", "inner", "einsum"}
_BINARY = {"add", "sub", "mul", "__rsub__", "rsub", "subtract", "multiply", "pow", "__pow__", "__rpow__", "__lshift__"}
_OTHERS = {"neg", "__neg__", "square", "sum", "prod", "cumsum", "cumprod", "index_add", "scatter_add", "scatter_reduce"}
_IN_PLACE = {name + "_" for name in (*_BINARY, *_OTHERS)} | {"__iadd__", "__isub__", "__imul__"}
_CASTS = {"to", "char", "byte", "short", "type", "type_as"}
# Operations whose result is extreme where the operands are, on which `_fits` relies.
_CORNERS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "__rsub__": lambda x, y: y - x,
}
WATCHED = _NOT | _FLOAT_ONLY | _MATMUL | _BINARY | _OTHERS | _IN_PLACE | _CASTS


@dataclasses.dataclass(frozen=True)
class Hazard:
    """What is wrong with a call, and what to write instead."""

    what: str
    instead: str


def hazard_before(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hazard | None:
    """A hazard that shows before the call: from dtypes and constants alone."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    if not tensors:
        return None
    first = tensors[0]
    if name in _NOT and first.dtype in NARROW:
        zero, one = _flip(first.dtype, 0), _flip(first.dtype, 1)
        return Hazard(f"~ on {_short(first.dtype)} flips all bits: 0 becomes {zero} and 1 becomes {one}", "1 - mask")
    whole = not (first.dtype.is_floating_point or first.dtype.is_complex or kwargs.get("dtype"))
    if name in _FLOAT_ONLY and whole:
        what = f"torch has no {name} of {_short(first.dtype)}"
        return Hazard(what, f"mask.float().{name}(), or mask.sum() / mask.numel()")
    if name.strip("_") not in ("pow", "lshift") and (name in _BINARY or name in _IN_PLACE):
        return _constant(args)
    return None


def _constant(args: tuple[Any, ...]) -> Hazard | None:
    """A Python integer that does not fit the narrow dtype that the result will have."""
    operands = args[:2]
    numbers = [a for a in operands if isinstance(a, int) and not isinstance(a, bool)]
    tensors = [a for a in operands if isinstance(a, Tensor)]
    if len(numbers) != 1 or len(tensors) != 1 or tensors[0].dtype not in NARROW:
        return None
    dtype, number = tensors[0].dtype, numbers[0]
    info = torch.iinfo(dtype)
    if info.min <= number <= info.max:
        return None
    wrapped = (number - info.min) % 2**info.bits + info.min
    return Hazard(
        f"{number} does not fit {_short(dtype)} and wraps to {wrapped} without an error",
        f"mask.to(torch.int32) with {number}, or the float {float(number)}",
    )


def hazard_of_product(name: str, args: tuple[Any, ...]) -> Hazard | None:
    """A matrix product of narrow integers, which accumulates in the narrow dtype."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    if name in _MATMUL and tensors and all(t.dtype in NARROW for t in tensors):
        dtype = _short(tensors[0].dtype)
        return Hazard(
            f"{dtype} @ {dtype} adds up in {dtype} and wraps beyond {torch.iinfo(tensors[0].dtype).max}",
            "mask.float() @ …, or (a * b).sum(), whose sum is int64",
        )
    return None


def wide_result(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """For an in-place call on a narrow tensor: what it should write, computed wide; None for every other call."""
    if name not in _IN_PLACE or not isinstance(args[0], Tensor) or args[0].dtype not in NARROW:
        return None
    plain = "__" + name[3:] if name.startswith("__i") else name[:-1]
    return _wide(getattr(Tensor, plain, None), args, kwargs)


def hazard_after(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, wide: Any
) -> Hazard | None:
    """A narrow result whose numbers differ from those of the same call in int64."""
    if not isinstance(out, Tensor) or out.dtype not in NARROW:
        return None
    if name in _CASTS:
        return hazard_of_cast(args[0], out)
    if name in _FLOAT_ONLY or name in _NOT:
        return None
    if name in _CORNERS and not kwargs and _fits(_CORNERS[name], args, out.dtype):
        return None
    if name not in _IN_PLACE:
        wide = _wide(function, args, kwargs)
    if not isinstance(wide, Tensor) or wide.shape != out.shape or not _any(wide != out):
        return None
    info = torch.iinfo(out.dtype)
    what = f"{name.strip('_')} wraps around in {_short(out.dtype)}: a result lies outside {info.min} … {info.max}"
    return Hazard(what, "mask.to(torch.int32) or mask.float() first")


def hazard_of_cast(source: Any, out: Tensor) -> Hazard | None:
    """A cast to an integer that changes more than the fraction of a number."""
    if not isinstance(source, Tensor) or source.dtype == torch.bool or source.dtype == out.dtype:
        return None
    whole = source.detach().trunc() if source.dtype.is_floating_point else source
    if not _any(whole != out):
        return None
    info = torch.iinfo(out.dtype)
    return Hazard(
        f"the cast to {_short(out.dtype)} changes numbers: some lie outside {info.min} … {info.max} or are NaN",
        "clamp(…) first, or keep the wider dtype",
    )


def _wide(function: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def widen(value: Any) -> Any:
        if isinstance(value, Tensor) and not value.dtype.is_floating_point and value.dtype != torch.bool:
            return value.to(torch.int64)
        return torch.int64 if isinstance(value, torch.dtype) and value in NARROW else value

    if function is None:
        return None
    try:
        return function(*map(widen, args), **{k: widen(v) for k, v in kwargs.items() if k != "out"})
    except (RuntimeError, TypeError):
        return None  # nothing to compare with


def _fits(corner: Callable[[int, int], int], args: tuple[Any, ...], dtype: torch.dtype) -> bool:
    """Whether no result can leave the dtype, judged cheaply by the extremes of the operands."""
    if len(args) != 2 or not all(isinstance(a, Tensor) and a.numel() for a in args if not isinstance(a, int)):
        return False
    ranges = [(a, a) if isinstance(a, int) else [int(x) for x in torch.aminmax(unwrapped(a))] for a in args]
    corners = [corner(x, y) for x in ranges[0] for y in ranges[1]]
    info = torch.iinfo(dtype)
    return info.min <= min(corners) and max(corners) <= info.max


def unwrapped(tensor: Tensor) -> Tensor:
    """The tensor below vmap, which holds every world of a batch."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def _any(hit: Tensor) -> bool:
    """Read on the host whether anything is true, in any world."""
    return bool(unwrapped(hit).any())


def _flip(dtype: torch.dtype, value: int) -> int:
    return -1 - value if dtype.is_signed else torch.iinfo(dtype).max - value


def _short(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")


Tell = Callable[[str, Line | None, Hazard], None]  # rule, line (None: where init or step returns), what is wrong
Look = Callable[[str, tuple[Any, ...], dict[str, Any]], Hazard | None]

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
        if name not in WATCHED or (frame := author_frame()) is None:
            out = func(*args, **kwargs)
            if name == "to" and (caller := calling_frame()) and caller.f_code.co_filename == _kinds.__file__:
                self._stored(caller, args[0], out)
            return out
        self._report(frame, hazard_before(name, args, kwargs))
        with self._writes.looking_away():
            wide = wide_result(name, args, kwargs)
        out = func(*args, **kwargs)
        with self._writes.looking_away():
            hazard = hazard_after(name, func, args, kwargs, out, wide)
        self._report(frame, hazard)
        return out

    def _stored(self, caller: FrameType, value: Tensor, out: Tensor) -> None:
        """A field given wider integers than it stores."""
        if not out.dtype.is_floating_point:
            with self._writes.looking_away():
                hazard = hazard_of_cast(value, out)
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
        self._made.add(unwrapped(tensor).untyped_storage()._cdata)

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


ops.keep_compiler_out(Writes)


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
    except Exception as error:  # torch raises many types where it takes functions
        known = translate(error)
        if known is None or known[2] is None:
            raise
        raise ModelError(_message(name, known[2], known[1])) from error


def _message(name: str, line: Line | None, hazard: Hazard) -> str:
    where = f" at {line}: {line.text}" if line else ""
    return f"{name}{where}\n  {hazard.what}\n  write instead: {hazard.instead}"


def translate(error: BaseException) -> tuple[str, Hazard, Line | None] | None:
    """(rule, hazard, the author's line) of an exception of torch about a broken rule of authoring; None of others."""
    message, line = str(error), line_of_error(error)
    for part, rule, hazard in _MESSAGES:
        if part in message:
            stacks = part == _UNEQUAL and line is not None and "stack" in line.text  # the author's own sizes are wrong
            return None if stacks else (rule, hazard, line)
    return _taking_functions(error)


_FUNCTIONS = "which no watched, batched or recorded step can run"
_INSTEAD = collections.defaultdict(
    lambda: "operations of torch on whole tensors",
    {
        "torch.cond": "torch.where(condition, this, that), with both sides computed",
        "torch.while_loop": "a for loop of fixed length with x = torch.where(goes_on, changed, x) in it",
        "scan": "a for loop of fixed length, or torch.cumsum and its kind",
        "map": "torch.vmap(function)(x), or operations on whole tensors",
    },
)


def _taking_functions(error: BaseException) -> tuple[str, Hazard, Line | None] | None:
    """As `translate`, of what passed through an operation that takes functions, such as `torch.cond`."""
    trace, line = error.__traceback__, None
    while trace is not None:
        code = trace.tb_frame.f_code
        if whose(code.co_filename) == "author":
            line = Line(code.co_filename, trace.tb_lineno)
        elif line is not None and (_HIGHER in code.co_filename or code.co_filename.endswith(_FLEX)):
            name = code.co_name.removesuffix("_impl")
            name = f"torch.{name}" if name in ("cond", "while_loop") else name
            return "functions", Hazard(f"{name} takes functions, {_FUNCTIONS}", _INSTEAD[name]), line
        trace = trace.tb_next
    return None


_HIGHER, _FLEX = os.path.join("torch", "_higher_order_ops"), "flex_attention.py"


HOST_READ = Hazard(
    "reads a value on the host: the device waits, and vmap and compilation cannot follow",
    "keep it a tensor: torch.where(condition, a, b) instead of if, masks instead of numbers",
)
DATA_SHAPE = Hazard(
    "makes a tensor whose shape depends on values",
    "a fixed shape: a mask times values, torch.where(mask, a, b), torch.zeros(k).index_add(0, codes, values) to count, "
    "torch.nonzero_static(mask, size=k)",
)
SHARED = Hazard(
    "writes in place what is larger than the tensor: values of each world into one that all share, as of torch.zeros",
    "a new value: torch.where(…), x.index_add(…), x.scatter(…), x + y; or begin from values of the world: "
    "torch.zeros_like(now.field)",
)
_UNEQUAL = "stack expects each tensor to be equal size"
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
    ("Cannot access storage of BatchedTensorImpl", "host read", HOST_READ),
    ("Batching rule not implemented for aten::equal", "host read", HOST_READ),
    ("vmap over torch.allclose", "host read", HOST_READ),
    ("Batching rule not implemented for aten::tensor_split", "shapes", DATA_SHAPE),
    ("batching operators that can output dynamic shape", "shapes", DATA_SHAPE),
    (_UNEQUAL, "shapes", DATA_SHAPE),  # results of the worlds, one by one
    (
        "When vmap-ing torch.nn.functional.one_hot",
        "shapes",
        Hazard("one_hot asks the values for the number of classes", "one_hot(codes, num_classes=k)"),
    ),
    ("accessing `data` under vmap", "vmap", Hazard("vmap knows no x.data", "x itself, or x.detach()")),
    (
        "Can't detach views in-place",  # torch.tensor(x), x.new_tensor(x)
        "vmap",
        Hazard("vmap cannot make a new tensor of a tensor by torch.tensor", "x itself, or x.clone()"),
    ),
    ("is not possible because there exists a Tensor `other`", "in place", SHARED),  # vmap's, of all its sorts
    ("doesn't match the broadcast shape", "in place", SHARED),  # x += y, where y is of several worlds
    (
        "value cannot be converted to type int8_t without overflow",
        "int8",
        Hazard("a number does not fit int8 (-128 … 127)", "mask.to(torch.int32) first"),
    ),
)


_READS = {"tolist", "numpy", "__array__", "cpu"}
_INDEX = Hazard(
    "indexing with a mask makes a tensor whose shape depends on values",
    "mask * values, or torch.where(mask != 0, a, b)",
)


class CheckedCalls(Calls):
    """Also host reads that torch makes without an operation, and products that wrap only in larger populations.

    And what `more` finds of a call, for the rule that it names.
    """

    def __init__(self, tell: Tell, writes: "Writes", more: tuple[str, Look]) -> None:
        super().__init__(tell, writes)
        self._rule, self._more = more

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in _READS:
            self._writes.report("host read", HOST_READ)
        elif (wraps := hazard_of_product(name, args)) is not None:
            self._writes.report("int8", wraps)
        with self._writes.looking_away():
            wrong = self._more(name, args, kwargs or {})
        if wrong is not None:
            self._writes.report(self._rule, wrong)
        return super().__torch_function__(func, types, args, kwargs)


class CheckedOperations(Writes):
    """Also operations that read values on the host, or whose shape depends on them."""

    def look(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().look(func, args, kwargs)
        if torch.Tag.data_dependent_output in func.tags:
            self.report("host read", HOST_READ)
        elif func is torch.ops.aten.index.Tensor:
            if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]):
                self.report("shapes", _INDEX)
        elif torch.Tag.dynamic_output_shape in func.tags and kwargs.get("output_size") is None:
            self.report("shapes", DATA_SHAPE)


@contextmanager
def watching(tell: Tell, more: tuple[str, Look]) -> Iterator[None]:
    """Tell about every rule that a step breaks while it runs.

    Args:
        tell: is told.
        more: a further rule, and what finds it in a call: its name, arguments and named arguments.
    """
    operations = CheckedOperations(tell)
    with operations, CheckedCalls(tell, operations, more):
        yield


class Cuts(TorchFunctionMode):
    """Notes where a value that depends on parameters turns into one that has no gradient.

    Attributes:
        found: (line, name of the torch function, parameters that the value depends on, whether the author's own call).
    """

    def __init__(self, params: dict[str, Tensor]) -> None:
        super().__init__()
        self._names = {id(value): name for name, value in params.items()}
        self.found: list[tuple[Line, str, set[str], bool]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and not out.requires_grad:
            cut = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
            frame = author_frame() if cut else None
            outer = author_frame(through_denizen=True) if cut and frame is None else frame
            if outer is not None:
                names = set().union(*(self._upstream(tensor) for tensor in cut))
                self.found.append((line_of_frame(outer), getattr(func, "__name__", "?"), names, frame is not None))
        return out

    def _upstream(self, tensor: Tensor) -> set[str]:
        """Parameters on which a tensor depends."""
        if id(tensor) in self._names:
            return {self._names[id(tensor)]}
        seen, open_, names = set(), [tensor.grad_fn], set()
        while open_:
            node = open_.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            variable = getattr(node, "variable", None)
            if variable is not None and id(variable) in self._names:
                names.add(self._names[id(variable)])
            open_.extend(parent for parent, _ in node.next_functions)
        return names
