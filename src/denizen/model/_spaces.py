"""Spaces: what actions and observations of an `Env` look like."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
