"""Spaces: what actions and observations of an `Env` look like, and what an engine does with values of any space.

A value of `Dict` and `Tuple`, which have several parts and may be nested, is a dict or tuple of tensors. Where many
rows are stored they are bytes: the leaves of a row one behind the other, each from a multiple of eight bytes on. One
tensor then holds a row, whatever its parts are, without loss.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from denizen._arguments import whole
from denizen.errors import InputError

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)

_ALIGNED = 8  # bytes: the widest number begins where it may, and rows are gathered eight bytes at a time


@dataclasses.dataclass(frozen=True, repr=False)
class Discrete:
    """One of `n` choices, numbered from `start`: int64 of shape ().

    Attributes:
        n: number of choices, at least 1.
        start: number of the first choice.
    """

    n: int
    start: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole("Discrete", "n", self.n, 1))
        object.__setattr__(self, "start", whole("Discrete", "start", self.start))

    def __repr__(self) -> str:
        return f"Discrete(n={self.n}{f', start={self.start}' if self.start else ''})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one value."""
        return ()

    @property
    def dtype(self) -> torch.dtype:
        """Of a value."""
        return torch.int64

    @property
    def factors(self) -> tuple[int, ...]:
        """How many choices there are of each factor; an action mask has them side by side."""
        return (self.n,)

    def fault(self, value: Tensor) -> Tensor:
        """Bool of the shape of `value`: whether an entry is no choice."""
        return (value < self.start) | (value >= self.start + self.n)

    def nearest(self, value: Tensor) -> Tensor:
        """The nearest choice, in the dtype of `value`."""
        return value.clamp(self.start, self.start + self.n - 1)


@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """A choice of each of several factors, each numbered from 0: int64 `[factors]`.

    Attributes:
        nvec: how many choices there are of each factor: whole numbers of at least 1, a NumPy array or a tensor of them;
            kept as a tuple.
    """

    nvec: tuple[int, ...]

    def __post_init__(self) -> None:
        given = self.nvec.tolist() if isinstance(self.nvec, np.ndarray | Tensor) else self.nvec
        if not isinstance(given, Sequence) or isinstance(given, str) or not given:
            raise InputError(f"MultiDiscrete(nvec={self.nvec!r}): expected a size for each factor, for example (3, 2)")
        sizes = tuple(whole("MultiDiscrete", f"nvec[{place}]", size, 1) for place, size in enumerate(given))
        object.__setattr__(self, "nvec", sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one value."""
        return (len(self.nvec),)

    @property
    def dtype(self) -> torch.dtype:
        """Of a value."""
        return torch.int64

    @property
    def factors(self) -> tuple[int, ...]:
        """How many choices there are of each factor; an action mask has them side by side."""
        return self.nvec

    def fault(self, value: Tensor) -> Tensor:
        """Bool of the shape of `value`: whether an entry is no choice."""
        return (value < 0) | (value >= self._sizes(value))

    def nearest(self, value: Tensor) -> Tensor:
        """The nearest choices, in the dtype of `value`."""
        return torch.minimum(value.clamp(min=0), self._sizes(value) - 1).to(value.dtype)

    def _sizes(self, like: Tensor) -> Tensor:
        return _filled(list(self.nvec), torch.int64, like.device)


@dataclasses.dataclass(frozen=True)
class MultiBinary:
    """A yes or no of each of `n` factors: int8 `[n]`, 0 or 1.

    Attributes:
        n: number of factors, at least 1.
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole("MultiBinary", "n", self.n, 1))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one value."""
        return (self.n,)

    @property
    def dtype(self) -> torch.dtype:
        """Of a value."""
        return torch.int8

    @property
    def factors(self) -> tuple[int, ...]:
        """2 for each factor; an action mask has (0 is open, 1 is open) of each side by side."""
        return (2,) * self.n

    def fault(self, value: Tensor) -> Tensor:
        """Bool of the shape of `value`: whether an entry is neither 0 nor 1."""
        return (value < 0) | (value > 1)

    def nearest(self, value: Tensor) -> Tensor:
        """The nearest of 0 and 1, in the dtype of `value`."""
        return value.clamp(0, 1)


_WHOLE = 2**53  # whole numbers below this are kept as such
Bound = float | Sequence[Any] | NDArray[Any] | Tensor


@dataclasses.dataclass(frozen=True)
class Box:
    """Numbers within bounds.

    A policy draws from a normal distribution, which knows no bounds: the world gets the nearest action within them,
    whichever of them are finite, and the policy learns from what it drew.

    Attributes:
        low: lower bound, inclusive; may be -inf. One number, or one for each entry: numbers, a NumPy array or a tensor
            that broadcasts to `shape`, kept as nested tuples.
        high: upper bound, inclusive; may be inf. Like `low`, and nowhere below it.
        shape: of one value.
        dtype: of one value: floats, whole numbers or `torch.bool`.
    """

    low: Bound
    high: Bound
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _shape(self.shape))
        if self.dtype not in DTYPES:
            names = ", ".join(str(dtype) for dtype in DTYPES)
            raise InputError(f"Box(dtype={self.dtype!r}): expected one of {names}")
        for name in ("low", "high"):
            object.__setattr__(self, name, _bound(name, getattr(self, name), self.shape))
        for low, high in zip(*self._entries(), strict=True):
            if not _holds(low, high, self.dtype):
                raise InputError(
                    f"Box(low={self.low!r}, high={self.high!r}, dtype={self.dtype}): expected low nowhere above high, "
                    f"and no number of this dtype is from {low!r} to {high!r}"
                )

    @property
    def _uniform(self) -> bool:
        return not (isinstance(self.low, tuple) or isinstance(self.high, tuple))

    def _entries(self) -> tuple[list[float], list[float]]:
        """Bounds of each entry in a row; one of each where all are the same."""
        size = 1 if self._uniform else math.prod(self.shape)
        return _flat(self.low, size), _flat(self.high, size)

    def _limits(self, like: Tensor) -> tuple[Any, Any]:
        """Bounds to compare values with: numbers, or tensors of the shape of one value where entries differ."""
        if self._uniform:
            return self.low, self.high
        dtype = like.dtype if like.is_floating_point() else torch.float64
        low, high = (_filled(bound, dtype, like.device).view(self.shape) for bound in self._entries())
        return low, high

    @property
    def factors(self) -> tuple[int, ...]:
        """Numbers are no choices: none."""
        return ()

    @property
    def bounded(self) -> bool:
        """Whether all bounds are finite."""
        return all(math.isfinite(bound) for bounds in self._entries() for bound in bounds)

    def bounds(self) -> list[tuple[float, float]]:
        """(low, high) of each entry in a row."""
        count, ends = math.prod(self.shape), self._entries()
        return list(zip(*(end * count if self._uniform else end for end in ends), strict=True))

    def spans(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds of all entries in a row, float32 `[entries]` each, made on the device."""
        low, high = zip(*self.bounds(), strict=True)
        return _filled(list(low), torch.float32, device), _filled(list(high), torch.float32, device)

    def fault(self, value: Tensor) -> Tensor:
        """Bool of the shape of `value`: whether an entry lies outside, NaN included."""
        low, high = self._limits(value)
        return ~((value >= low) & (value <= high))

    def nearest(self, value: Tensor) -> Tensor:
        """The nearest value within the bounds, `[…, *shape]` like `value`; NaN stays."""
        if not any(math.isfinite(bound) for bounds in self._entries() for bound in bounds):
            return value
        return value.clamp(*self._limits(value)).to(value.dtype)

    def within(self, reach: float) -> tuple[Any, Any]:
        """Finite bounds, numbers or float32 of `shape`; for one that is not, `reach` beyond 0 or the other one."""
        pairs = [
            (low, high)
            if math.isfinite(low) and math.isfinite(high)
            else (max(low, min(high, 0) - reach), min(high, max(low, 0) + reach))
            for low, high in zip(*self._entries(), strict=True)
        ]
        if self._uniform:
            return pairs[0]
        low, high = torch.tensor(pairs, dtype=torch.float32).T.reshape(2, *self.shape)
        return low, high


def _shape(shape: Any) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else None
    if sizes is None or any(not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in sizes):
        raise InputError(f"Box(shape={shape!r}): expected sizes of at least 1, for example (4,)")
    return sizes


def _bound(name: str, bound: Any, shape: tuple[int, ...]) -> Bound:
    """A bound as one number, or where entries differ as nested tuples."""
    if type(bound) in (int, float):
        return bound if abs(bound) < _WHOLE else float(bound)
    try:
        given = bound.tolist() if isinstance(bound, Tensor) else bound
        numbers = np.asarray(given, dtype=np.float64)
        entries = np.broadcast_to(numbers, shape)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"Box({name}={bound!r}): expected a number, or numbers that broadcast to shape {shape}, the same in all "
            f"worlds"
        ) from error
    if entries.size and (entries == entries.flat[0]).all():
        are_whole = np.asarray(given).dtype.kind in "biu" and abs(entries.flat[0]) < _WHOLE
        return int(entries.flat[0]) if are_whole else float(entries.flat[0])
    return _nested(entries.tolist())


def _holds(low: float, high: float, dtype: torch.dtype) -> bool:
    """Whether there is a finite number of a dtype within bounds."""
    if dtype.is_floating_point and dtype != torch.float64:
        low, high = float(np.float32(low)), float(np.float32(high))  # of which one may have come in float32
    if not low <= high or low == math.inf or high == -math.inf:
        return False
    if dtype.is_floating_point:
        return True
    least, most = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    low, high = max(low, least), min(high, most)
    return low <= high and math.ceil(low) <= math.floor(high)


def _nested(entries: Any) -> Any:
    return tuple(_nested(entry) for entry in entries) if isinstance(entries, list) else entries


def _flat(bound: Bound, size: int) -> list[float]:
    if not isinstance(bound, tuple):
        return [bound] * size  # type: ignore[list-item]  # pyrefly: ignore
    entries: list[Any] = [bound]
    while isinstance(entries[0], tuple):
        entries = [entry for part in entries for entry in part]
    return entries


def _filled(entries: list[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers as a tensor that is filled on the device: a copy from the host could not be captured."""
    runs = [(entry, len(list(run))) for entry, run in itertools.groupby(entries)]
    return torch.cat([torch.full((count,), entry, dtype=dtype, device=device) for entry, count in runs])


def encoded(space: Discrete | MultiDiscrete | MultiBinary | Box, value: Tensor) -> Tensor:
    """Values `[…, *shape]` as float32 for a network: a one for the choice made of each factor, boxes as they are."""
    if isinstance(space, Box | MultiBinary):
        return value.to(torch.float32)
    if isinstance(space, Discrete):
        return _one_hot(value - space.start, space.n)
    parts = zip(value.unbind(-1), space.nvec, strict=True)
    return torch.cat([_one_hot(choice, size) for choice, size in parts], -1)


def _one_hot(choice: Tensor, size: int) -> Tensor:
    return (choice[..., None] == torch.arange(size, device=choice.device)).to(torch.float32)


def random_values(
    space: Discrete | MultiDiscrete | MultiBinary | Box, lead: tuple[int, ...], reach: float, generator: torch.Generator
) -> Tensor:
    """Values `[*lead, *shape]`, uniform over a space; over a box without bounds within `reach` beyond 0."""
    shape = (*lead, *space.shape)
    if isinstance(space, Discrete):
        return torch.randint(space.start, space.start + space.n, shape, generator=generator)
    if isinstance(space, Box):
        low, high = space.within(reach)
        return (low + (high - low) * torch.rand(shape, generator=generator)).to(space.dtype)
    return (torch.rand(shape, generator=generator) * torch.tensor(space.factors)).to(space.dtype)


def closed(mask: Tensor, factors: tuple[int, ...]) -> Tensor:
    """Whether a mask `[…, choices]` leaves a factor without an open choice: bool `[…]`."""
    if len(factors) == 1:
        return ~mask.any(-1)
    return torch.stack([~part.any(-1) for part in mask.split(factors, -1)]).any(0)


# --- spaces of several parts ------------------------------------------------------------------------------------------

Leaf = Discrete | MultiDiscrete | MultiBinary | Box


class Tree:
    """Base of spaces of several parts."""

    def items(self) -> list[tuple[Any, "Space"]]:
        """(key, space) of each part."""
        raise NotImplementedError

    def built(self, parts: list[Any]) -> Any:
        """A value from those of the parts."""
        raise NotImplementedError

    def leaves(self) -> list[tuple[str, "Leaf"]]:
        """(path, space) of each leaf."""
        return [(f"[{key!r}]{path}", leaf) for key, part in self.items() for path, leaf in leaves(part)]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a stored row: its bytes."""
        return (sum(_width(leaf) for _, leaf in self.leaves()),)

    @property
    def dtype(self) -> torch.dtype:
        """Of a stored row."""
        return torch.uint8

    @property
    def factors(self) -> tuple[int, ...]:
        """How many choices there are of each factor of all leaves; an action mask has them side by side."""
        return tuple(size for _, leaf in self.leaves() for size in leaf.factors)


@dataclasses.dataclass(frozen=True)
class Dict(Tree):
    """Parts by name, which may be spaces of several parts themselves; a value is a dict of tensors.

    Attributes:
        spaces: space of each part; the order counts in masks and distributions.
    """

    spaces: Mapping[str, "Space"]

    def __post_init__(self) -> None:
        given = self.spaces
        if not isinstance(given, Mapping) or not given:
            raise InputError(f"Dict(spaces={given!r}): expected spaces by name, such as {{'at': dz.rl.Discrete(3)}}")
        for name, space in given.items():
            if not isinstance(name, str):
                raise InputError(f"Dict: the name {name!r} is {type(name).__name__}, expected a string")
            _check_part(f"Dict[{name!r}]", space)
        object.__setattr__(self, "spaces", dict(given))

    def __hash__(self) -> int:
        return hash(tuple(self.spaces.items()))

    def __getitem__(self, name: str) -> "Space":
        return self.spaces[name]

    def items(self) -> list[tuple[Any, "Space"]]:
        """(name, space) of each part."""
        return list(self.spaces.items())

    def built(self, parts: list[Any]) -> dict[str, Any]:
        """A value from those of the parts."""
        return dict(zip(self.spaces, parts, strict=True))


@dataclasses.dataclass(frozen=True)
class Tuple(Tree):
    """Parts in order, which may be spaces of several parts themselves; a value is a tuple of tensors.

    Attributes:
        spaces: space of each part.
    """

    spaces: tuple["Space", ...]

    def __post_init__(self) -> None:
        given = self.spaces
        if not isinstance(given, Sequence) or isinstance(given, str) or not given:
            raise InputError(f"Tuple(spaces={given!r}): expected spaces, for example (dz.rl.Discrete(3),)")
        for place, space in enumerate(given):
            _check_part(f"Tuple[{place}]", space)
        object.__setattr__(self, "spaces", tuple(given))

    def __getitem__(self, place: int) -> "Space":
        return self.spaces[place]

    def items(self) -> list[tuple[Any, "Space"]]:
        """(place, space) of each part."""
        return list(enumerate(self.spaces))

    def built(self, parts: list[Any]) -> tuple[Any, ...]:
        """A value from those of the parts."""
        return tuple(parts)


Space = Leaf | Dict | Tuple


def _check_part(what: str, space: Any) -> None:
    if not isinstance(space, Space):
        raise InputError(f"{what} is {space!r}, expected a space of dz.rl, such as dz.rl.Discrete(3)")


# --- leaves -----------------------------------------------------------------------------------------------------------


def leaves(space: Space) -> list[tuple[str, Leaf]]:
    """(path, space) of each leaf, such as ``("['hand'][0]", Discrete(n=3))``; a space without parts is its own leaf."""
    return space.leaves() if isinstance(space, Tree) else [("", space)]


def at(path: str) -> str:
    """Where a leaf is, for messages."""
    return f" at {path}" if path else ""


def values(space: Space, value: Any, path: str = "") -> list[Any]:
    """What a value has at each leaf; raises `InputError` where it is built otherwise."""
    if not isinstance(space, Tree):
        return [value]
    keys = [key for key, _ in space.items()]
    if isinstance(space, Dict):
        fits = isinstance(value, Mapping) and value.keys() == set(keys)
        wanted = f"a dict with the keys {', '.join(map(repr, keys))}"
    else:
        fits, wanted = isinstance(value, tuple | list) and len(value) == len(keys), f"a tuple of {len(keys)}"
    if not fits:
        has = f" with the keys {', '.join(map(repr, value))}" if isinstance(value, Mapping) else ""
        has = f" of {len(value)}" if isinstance(value, tuple | list) else has
        raise InputError(f"is a {type(value).__name__}{has}{at(path)}, expected {wanted}")
    return [one for key, part in space.items() for one in values(part, value[key], f"{path}[{key!r}]")]


def built(space: Space, parts: Sequence[Any]) -> Any:
    """A value of a space from what it has at each leaf."""
    rest = iter(parts)

    def of(space: Space) -> Any:
        return space.built([of(part) for _, part in space.items()]) if isinstance(space, Tree) else next(rest)

    return of(space)


def mapped(space: Space, function: Callable[[Tensor, Leaf], Any], value: Any) -> Any:
    """A value with a function of (tensor, space) applied at each leaf."""
    if not isinstance(space, Tree):
        return function(value, space)
    parts = zip(values(space, value), leaves(space), strict=True)
    return built(space, [function(tensor, leaf) for tensor, (_, leaf) in parts])


# --- rows of bytes ----------------------------------------------------------------------------------------------------


def _width(leaf: Leaf) -> int:
    return -(-math.prod(leaf.shape) * leaf.dtype.itemsize // _ALIGNED) * _ALIGNED


def packed(space: Space, value: Any) -> Tensor:
    """Values `[*lead, …]` as they are stored: `[*lead, *space.shape]`."""
    if not isinstance(space, Tree):
        return value
    columns = []
    for tensor, (_, leaf) in zip(values(space, value), leaves(space), strict=True):
        lead = tensor.shape[: tensor.dim() - len(leaf.shape)]
        column = tensor.to(leaf.dtype).reshape(*lead, -1).contiguous()
        if column.stride(-1) != 1:  # one number that stands for a batch of one counts as contiguous, with stride 0
            column = column.clone(memory_format=torch.contiguous_format)
        column = column.view(torch.uint8)
        columns.append(F.pad(column, (0, _width(leaf) - column.shape[-1])))
    return torch.cat(columns, -1)


def unpacked(space: Space, stored: Any) -> Any:
    """The inverse of `packed`; a value that is not packed stays as it is."""
    if not isinstance(space, Tree) or not isinstance(stored, Tensor):
        return stored
    parts, widths = [], [_width(leaf) for _, leaf in leaves(space)]
    for column, (_, leaf) in zip(stored.split(widths, -1), leaves(space), strict=True):
        flat = column[..., : math.prod(leaf.shape) * leaf.dtype.itemsize]
        # Inductor compiles no numbers that are looked at as flags.
        flat = flat != 0 if leaf.dtype == torch.bool else flat.view(leaf.dtype)
        parts.append(flat.reshape(*stored.shape[:-1], *leaf.shape))
    return built(space, parts)


def form(space: Space) -> tuple[Any, ...]:
    """What two spaces must share for a policy to be of use in both: all but the bounds of boxes."""
    return tuple(
        (path, type(leaf), leaf.shape, leaf.dtype, leaf.factors, getattr(leaf, "start", 0))
        for path, leaf in leaves(space)
    )


# --- what an engine does with any space -------------------------------------------------------------------------------


def network_inputs(space: Space, value: Any) -> Any:
    """Values, stored or not, as float32 for a network: a tensor, or a tree of them; see `encoded`."""
    return mapped(space, lambda tensor, leaf: encoded(leaf, tensor), unpacked(space, value))


def idle(space: Space, lead: tuple[int, ...], device: torch.device) -> Any:
    """A value of a space, `[*lead, …]`: the one nearest to 0."""
    zero = torch.zeros((), device=device)
    return built(space, [leaf.nearest(zero.to(leaf.dtype).expand((*lead, *leaf.shape))) for _, leaf in leaves(space)])


def drawn(space: Space, lead: tuple[int, ...], reach: float, generator: torch.Generator) -> Any:
    """A random value of a space, `[*lead, …]`; see `random_values`."""
    return built(space, [random_values(leaf, lead, reach, generator) for _, leaf in leaves(space)])
