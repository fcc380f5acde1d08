"""An author's function of two neighbours, read once: the program that the kernels evaluate for every pair.

The function is called with small tensors that stand for one pair while a dispatch mode writes down what torch does with
them, number by number; so it is plain torch, of fixed shapes, and pointwise in the pairs by construction.
"""

import functools
import math
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from denizen.errors import ModelError, expect_function
from denizen.ops import PairBuilder

Shape = tuple[int, ...]

_ADVICE = (
    "it may have arithmetic, comparisons, torch.where, minimum, maximum, clamp, abs, floor, sqrt, exp, sin, cos, sums "
    "and norms of a pair's own numbers, stack and cat"
)


Program = tuple[str, tuple[Shape, ...], bool]

_KEPT = 256
_programs: dict[Any, Program] = {}


def program_of(
    function: Callable[..., Any], dims: int, theirs: tuple[Shape, ...], own: tuple[Shape, ...], shared: int
) -> Program:
    """(text of the program, shapes of its results, whether they came as a tuple) of a function.

    Args:
        function: of (offset, distance, *theirs, *own) and whatever is shared, where it was given.
        dims: axes of space.
        theirs: shapes of what is taken of a neighbour, without the axis of agents; () among them may be shared.
        own: shapes of what is taken of the receiver.
        shared: a bit for each of `theirs`, from the lowest: whether it is one number for all pairs.

    Raises:
        ModelError: for what a function of two neighbours cannot do.
    """
    known = _known(function)
    key = known if known is None else (known, dims, theirs, own, shared)
    if key in _programs:
        return _programs[key]
    found: list[Any] = []

    def read() -> None:  # in a thread of its own, which has none of torch's modes and transforms
        try:
            found.append(_read(function, dims, theirs, own, shared))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=read, name="denizen-pairs")
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    if key is not None:
        if len(_programs) >= _KEPT:
            _programs.clear()
        _programs[key] = found[0]
    return found[0]


def _known(function: Any, above: tuple[Any, ...] = ()) -> Any:
    """What a function's program depends on: its code and every value that it finds outside its arguments.

    A number that a notebook sets anew must make another program. None where this cannot be told, as of objects.
    """
    if isinstance(function, types.BuiltinFunctionType):
        return function
    if not isinstance(function, types.FunctionType):
        return None
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # not filled yet
        return None
    names = _names(function.__code__)
    found = [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    found += [value for name, value in function.__globals__.items() if name in names]
    parts = [_part(value, (*above, function)) for value in found]
    return None if None in parts else (function.__code__, *parts)


def _part(value: Any, above: tuple[Any, ...]) -> Any:
    if isinstance(value, tuple):
        parts = [_part(one, above) for one in value]
        return None if None in parts else (tuple, *parts)
    if value is None or isinstance(value, bool | int | float | str):
        return type(value), repr(value)  # tells 1 from 1.0 and 0.0 from -0.0
    if isinstance(value, types.ModuleType):
        return value.__name__ if value.__name__.partition(".")[0] in ("math", "torch") else None
    return "itself" if value in above else _known(value, above)


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*inner)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _stands_alone(function: Callable[..., Any]) -> None:
    """Refuse a function that holds an object, such as a model: torch.compile takes functions of plain values only."""
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    held = [getattr(function, "__self__", None), *cells]
    plain = int | float | str | tuple | Tensor | types.FunctionType | types.ModuleType | None
    for one in held:
        if not isinstance(one, plain):
            raise ModelError(
                f"Near.reduce: {_name(function)} uses a whole {type(one).__name__} (self, perhaps); take the number "
                f"that it needs beforehand, k = self.k, or give a parameter to reduce; a method becomes a @staticmethod"
            )


def _read(
    function: Callable[..., Any], dims: int, theirs: tuple[Shape, ...], own: tuple[Shape, ...], shared: int
) -> tuple[str, tuple[Shape, ...], bool]:
    words = [f"theirs {k + 1}" for k in range(len(theirs))] + [f"own {k + 1}" for k in range(len(own))]
    expect_function("Near.reduce: pair", function, "offset", "distance", *words)
    _stands_alone(function)
    alone = [bool(shared >> k & 1) for k in range(len(theirs))]
    sizes = [math.prod(shape) for shape in theirs]
    num_theirs = sum(size for size, one in zip(sizes, alone, strict=True) if not one)
    builder = PairBuilder(dims, num_theirs, sum(map(math.prod, own)), sum(alone))
    offset, square, of_theirs, of_own, of_all = builder.inputs
    mode = _Reader(builder, _name(function))
    given = [mode.tensor(np.array(offset), (dims,)), mode.tensor(np.array(builder.op("sqrt", square)), ())]
    for shape, size, one in zip(theirs, sizes, alone, strict=True):
        source = of_all if one else of_theirs
        given.append(mode.tensor(np.array([source.pop(0) for _ in range(size)]), shape))
    for shape in own:
        given.append(mode.tensor(np.array([of_own.pop(0) for _ in range(math.prod(shape))]), shape))
    with mode:
        out = function(*given)
    several = isinstance(out, tuple | list)
    results = list(out) if several else [out]
    places: list[int] = []
    shapes: list[Shape] = []
    for one in results:
        if isinstance(one, int | float):
            one = torch.tensor(float(one))
        if not isinstance(one, Tensor) or one.dim() > 1:
            what = f"a tensor of shape {tuple(one.shape)}" if isinstance(one, Tensor) else type(one).__name__
            raise ModelError(
                f"Near.reduce: {_name(function)} returned {what}, expected a number of the pair or a short vector, "
                f"or a tuple of these: it is written for one pair"
            )
        places += [builder.number(place) for place in mode.places(one).ravel().tolist()]
        shapes.append(tuple(one.shape))
    return builder.program(places).text, tuple(shapes), several


class _Reader(TorchDispatchMode):
    """Writes down what torch does with the tensors of one pair."""

    def __init__(self, builder: PairBuilder, name: str) -> None:
        super().__init__()
        self._builder, self._name = builder, name
        self._known: dict[int, tuple[Tensor, np.ndarray]] = {}  # tensors are kept, so that no id comes again
        self._made: dict[int, Tensor] = {}

    def tensor(self, places: np.ndarray, shape: Shape) -> Tensor:
        """A tensor whose numbers are these values of the program."""
        made = torch.linspace(0.5, 0.9, max(places.size, 1))[: places.size].reshape(shape).clone()
        self._known[id(made)] = (made, places.reshape(shape))
        return made

    def places(self, tensor: Tensor) -> np.ndarray:
        """Where in the program the numbers of a tensor are."""
        if id(tensor) in self._known:
            return self._known[id(tensor)][1]
        if tensor.dtype.is_complex:
            self._refuse("complex numbers")
        values = [self._builder.const(float(value)) for value in tensor.reshape(-1).tolist()]
        return np.array(values, dtype=np.int64).reshape(tuple(tensor.shape))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if not self._traced(name, _tensors((args, kwargs))):
            out = func(*args, **kwargs)
            self._made |= {id(t): t for t in _tensors(out)}
            return out
        if name == "_local_scalar_dense":
            raise ModelError(
                f"Near.reduce: {self._name} decides by the value of a tensor (if, while, float(…)), which differs "
                f"between pairs; use torch.where(condition, this, that)"
            )
        if func._schema.is_mutable:
            self._refuse(f"{name} in place", "write x = x + y, and torch.stack for parts")
        out = func(*args, **kwargs)
        results = list(out) if isinstance(out, tuple | list) else [out]
        for one in results:
            if one.dtype not in _DTYPES:
                self._refuse(f"{one.dtype} numbers", "float32 is what pairs are computed in, int32 and int64 count")
        for one, where in zip(results, self._places(func, name, args, kwargs, results), strict=True):
            self._known[id(one)] = (one, where)
        return out

    def _traced(self, name: str, inputs: list[Tensor]) -> bool:
        """Whether the result of an operation differs between pairs."""
        for one in inputs:
            if id(one) not in self._known and id(one) not in self._made and name != "lift_fresh":
                raise ModelError(
                    f"Near.reduce: {self._name} uses a tensor of shape {tuple(one.shape)} from outside; pass it to "
                    f"reduce, which gives it to the function: near.reduce({self._name}, …, tensor)"
                )
        return name not in _MAKES and any(id(one) in self._known for one in inputs)

    def _places(self, func: Any, name: str, args: Any, kwargs: Any, results: list[Tensor]) -> list[np.ndarray]:
        """Where in the program the results of an operation are, which is written into it."""
        if name in _MOVES:
            return self._moved(func, args, kwargs)
        if name in _SUMS:
            return [_SUMS[name](self._builder, self.places(args[0]), results[0], args[1:], kwargs)]
        if name == "dot":
            pairs = zip(self.places(args[0]).tolist(), self.places(args[1]).tolist(), strict=True)
            return [np.array(_total(self._builder, [self._builder.mul(x, y) for x, y in pairs]))]
        if name not in _EACH:
            self._refuse(name)
        shape, dtype = tuple(results[0].shape), results[0].dtype
        if name.startswith("bitwise_") and dtype != torch.bool:
            self._refuse(f"{name} of numbers", "&, |, ^ and ~ are for conditions")
        cut = name == "_to_copy" and args[0].dtype.is_floating_point and not dtype.is_floating_point
        operands = [np.broadcast_to(self.places(a), shape) if isinstance(a, Tensor) else a for a in args]
        made = np.empty(shape, dtype=np.int64)
        for place in np.ndindex(*shape):
            numbers = [a[place] if isinstance(a, np.ndarray) else a for a in operands]
            value = _EACH[name](self._builder, *numbers, **_plain(kwargs))
            if dtype == torch.bool:  # of bools, + is "or"
                value = self._builder.truth(value)
            made[place] = _trunc(self._builder, value) if cut and dtype != torch.bool else value
        return [made]

    def _moved(self, func: Any, args: Any, kwargs: Any) -> list[np.ndarray]:
        """What an operation that only moves numbers does, found out by moving their positions."""
        every: list[int] = []

        def positions(value: Any) -> Any:
            if isinstance(value, Tensor):
                places = self.places(value)
                first = len(every)
                every.extend(places.ravel().tolist())
                return torch.arange(first, len(every)).reshape(value.shape)
            return type(value)(map(positions, value)) if isinstance(value, tuple | list) else value

        moved = func(*positions(args), **{k: v for k, v in kwargs.items() if k != "dtype"})
        moved = list(moved) if isinstance(moved, tuple | list) else [moved]
        return [np.array(every)[one.numpy()].reshape(tuple(one.shape)) for one in moved]

    def _refuse(self, what: str, instead: str = "") -> Any:
        raise ModelError(
            f"Near.reduce: {self._name} has {what}, which a function of two neighbours cannot have; "
            f"{instead or _ADVICE}"
        )


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    return [t for part in tree for t in _tensors(part)] if isinstance(tree, tuple | list | type({}.values())) else []


def _plain(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in kwargs.items() if k in ("alpha", "rounding_mode", "min", "max")}


# --- what torch's operations are made of ------------------------------------------------------------------------------

_MOVES = {
    *("view", "_unsafe_view", "reshape", "select", "slice", "unsqueeze", "squeeze", "expand", "permute", "transpose"),
    *("t", "clone", "detach", "alias", "flip", "cat", "stack", "unbind", "split", "split_with_sizes", "repeat", "roll"),
    *("index_select", "movedim", "numpy_T", "diagonal", "lift_fresh", "lift_fresh_copy"),
}

_MAKES = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}  # whatever the numbers are


def _n(b: PairBuilder, value: Any) -> int:
    """A number of the program: a value's place (NumPy's integer) or a Python number."""
    return b.number(int(value)) if isinstance(value, np.integer) else b.const(float(value))


def _t(b: PairBuilder, value: Any) -> int:
    return b.truth(int(value)) if isinstance(value, np.integer) else b.truth(b.const(float(value)))


def _plus(b: PairBuilder, x: Any, y: Any, alpha: float = 1) -> int:
    return b.add(_n(b, x), b.mul(_n(b, y), b.const(alpha)))


def _minus(b: PairBuilder, x: Any, y: Any, alpha: float = 1) -> int:
    return b.sub(_n(b, x), b.mul(_n(b, y), b.const(alpha)))


def _div(b: PairBuilder, x: Any, y: Any, rounding_mode: str | None = None) -> int:
    value = b.op("div", _n(b, x), _n(b, y))
    return value if rounding_mode is None else b.op("floor", value) if rounding_mode == "floor" else _trunc(b, value)


def _trunc(b: PairBuilder, x: int) -> int:
    up = b.neg(b.op("floor", b.neg(x)))
    return b.op("where", b.op("lt", x, b.const(0.0)), up, b.op("floor", x))


def _power(b: PairBuilder, x: Any, y: Any) -> int:
    base, exponent = _n(b, x), float(y) if isinstance(y, int | float) else math.nan
    if exponent in (0.5, -0.5):
        root = b.op("sqrt", base)
        return root if exponent > 0 else b.op("div", b.const(1.0), root)
    if not abs(exponent) <= 16 or exponent != int(exponent):
        raise ModelError(
            f"Near.reduce: a power of {'a tensor' if math.isnan(exponent) else y}, expected a whole number up to 16, "
            f"or 0.5; write torch.exp(a * b) for others"
        )
    total = b.const(1.0)
    for _ in range(abs(int(exponent))):
        total = b.mul(total, base)
    return total if exponent >= 0 else b.op("div", b.const(1.0), total)


def _clamp(b: PairBuilder, x: Any, min: Any = None, max: Any = None) -> int:
    value = _n(b, x)
    value = value if min is None else b.most(value, _n(b, min))
    return value if max is None else b.least(value, _n(b, max))


def _tanh(b: PairBuilder, x: Any) -> int:
    one, twice = b.const(1.0), b.exp(b.scaled(_n(b, x), 2.0))
    return b.sub(one, b.op("div", b.const(2.0), b.add(twice, one)))


def _sigmoid(b: PairBuilder, x: Any) -> int:
    one = b.const(1.0)
    return b.op("div", one, b.add(one, b.exp(b.neg(_n(b, x)))))


def _sign(b: PairBuilder, x: Any) -> int:
    value, zero = _n(b, x), b.const(0.0)
    down = b.op("where", b.op("lt", value, zero), b.const(-1.0), value)  # keeps 0 and NaN
    return b.op("where", b.op("lt", zero, value), b.const(1.0), down)


def _remainder(b: PairBuilder, x: Any, y: Any) -> int:
    value, by = _n(b, x), _n(b, y)
    return b.sub(value, b.mul(b.op("floor", b.op("div", value, by)), by))


def _where(b: PairBuilder, c: Any, x: Any, y: Any) -> int:
    return b.op("where", _t(b, c), _n(b, x), _n(b, y))


def _not(b: PairBuilder, x: Any) -> int:
    return b.op("not", _t(b, x))


def _exclusive(b: PairBuilder, x: Any, y: Any) -> int:
    either = b.op("or", _t(b, x), _t(b, y))
    return b.op("and", either, b.op("not", b.op("and", _t(b, x), _t(b, y))))


_EACH: dict[str, Callable[..., int]] = {
    "add": _plus,
    "sub": _minus,
    "rsub": lambda b, x, y, alpha=1: _minus(b, y, x, alpha),
    "mul": lambda b, x, y: b.mul(_n(b, x), _n(b, y)),
    "div": _div,
    "true_divide": _div,
    "neg": lambda b, x: b.neg(_n(b, x)),
    "abs": lambda b, x: b.op("abs", _n(b, x)),
    "sqrt": lambda b, x: b.op("sqrt", _n(b, x)),
    "rsqrt": lambda b, x: b.op("div", b.const(1.0), b.op("sqrt", _n(b, x))),
    "reciprocal": lambda b, x: b.op("div", b.const(1.0), _n(b, x)),
    "floor": lambda b, x: b.op("floor", _n(b, x)),
    "ceil": lambda b, x: b.neg(b.op("floor", b.neg(_n(b, x)))),
    "trunc": lambda b, x: _trunc(b, _n(b, x)),
    "pow": _power,
    "exp": lambda b, x: b.exp(_n(b, x)),
    "sin": lambda b, x: b.sin(_n(b, x)),
    "cos": lambda b, x: b.sin(_n(b, x), quarter=True),
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "sign": _sign,
    "relu": lambda b, x: _clamp(b, x, min=0.0),
    "remainder": _remainder,
    "minimum": lambda b, x, y: b.least(_n(b, x), _n(b, y)),
    "maximum": lambda b, x, y: b.most(_n(b, x), _n(b, y)),
    "clamp": _clamp,
    "clamp_min": lambda b, x, y: _clamp(b, x, min=y),
    "clamp_max": lambda b, x, y: _clamp(b, x, max=y),
    "where": _where,
    "lt": lambda b, x, y: b.op("lt", _n(b, x), _n(b, y)),
    "le": lambda b, x, y: b.op("le", _n(b, x), _n(b, y)),
    "gt": lambda b, x, y: b.op("lt", _n(b, y), _n(b, x)),
    "ge": lambda b, x, y: b.op("le", _n(b, y), _n(b, x)),
    "eq": lambda b, x, y: b.op("eq", _n(b, x), _n(b, y)),
    "ne": lambda b, x, y: b.op("not", b.op("eq", _n(b, x), _n(b, y))),
    "logical_and": lambda b, x, y: b.op("and", _t(b, x), _t(b, y)),
    "logical_or": lambda b, x, y: b.op("or", _t(b, x), _t(b, y)),
    "logical_xor": _exclusive,
    "logical_not": _not,
    "bitwise_and": lambda b, x, y: b.op("and", _t(b, x), _t(b, y)),
    "bitwise_or": lambda b, x, y: b.op("or", _t(b, x), _t(b, y)),
    "bitwise_xor": _exclusive,
    "bitwise_not": _not,
    "_to_copy": lambda b, x: int(x),
}

_DTYPES = (torch.float32, torch.bool, torch.int32, torch.int64)


def _along(places: np.ndarray, dims: Any) -> np.ndarray:
    """Numbers with the axes that go together in one, the last."""
    axes = range(places.ndim) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    axes = [axis % places.ndim for axis in axes] if places.ndim else []
    rest = [axis for axis in range(places.ndim) if axis not in axes]
    shape = [places.shape[axis] for axis in rest]
    return places.transpose([*rest, *axes]).reshape(*shape, -1)


def _fold(step: Callable[[PairBuilder, Sequence[int]], int]) -> Callable[..., np.ndarray]:
    def folded(b: PairBuilder, places: np.ndarray, result: Tensor, args: Any, kwargs: Any) -> np.ndarray:
        lined = _along(places, args[0] if args else kwargs.get("dim"))
        made = [step(b, row.tolist()) for row in lined.reshape(-1, lined.shape[-1])]
        return np.array(made, dtype=np.int64).reshape(tuple(result.shape))

    return folded


def _total(b: PairBuilder, row: Sequence[int]) -> int:
    return functools.reduce(b.add, [b.number(place) for place in row]) if row else b.const(0.0)


def _length(b: PairBuilder, places: np.ndarray, result: Tensor, args: Any, kwargs: Any) -> np.ndarray:
    if args and args[0] != 2:
        raise ModelError(f"Near.reduce: a norm of order {args[0]}, expected 2; write abs, sum or max for others")

    def root(b: PairBuilder, row: Sequence[int]) -> int:
        return b.op("sqrt", _total(b, [b.mul(x, x) for x in map(b.number, row)]))

    return _fold(root)(b, places, result, args[1:], kwargs)


_SUMS: dict[str, Callable[..., np.ndarray]] = {
    "sum": _fold(_total),
    "mean": _fold(lambda b, row: b.op("div", _total(b, row), b.const(len(row)))),
    "prod": _fold(lambda b, row: functools.reduce(b.mul, [b.number(place) for place in row])),
    "amin": _fold(lambda b, row: functools.reduce(b.least, map(b.number, row))),
    "amax": _fold(lambda b, row: functools.reduce(b.most, map(b.number, row))),
    "all": _fold(lambda b, row: functools.reduce(lambda x, y: b.op("and", x, y), [b.truth(place) for place in row])),
    "any": _fold(lambda b, row: functools.reduce(lambda x, y: b.op("or", x, y), [b.truth(place) for place in row])),
    "linalg_vector_norm": _length,
}
