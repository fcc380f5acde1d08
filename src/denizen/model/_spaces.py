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
from denizen.errors import InputError, ModelError

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


@dataclasses.dataclass(frozen=True)
class Discrete:
    """One of `n` choices, numbered from 0: int64 of shape ().

    Attributes:
        n: number of choices, at least 1.
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole("Discrete", "n", self.n, 1))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one value."""
        return ()

    @property
    def dtype(self) -> torch.dtype:
        """Of a value."""
        return torch.int64

    def fault(self, value: Tensor) -> Tensor:
        """Bool of the shape of `value`: whether an entry is no choice."""
        return (value < 0) | (value >= self.n)


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
    def bounded(self) -> bool:
        """Whether all bounds are finite."""
        return all(math.isfinite(bound) for bounds in self._entries() for bound in bounds)

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


Space = Discrete | Box


def check_spaces(env: Any) -> None:
    """Raise `ModelError` where an environment declares something else than spaces."""
    name, acts, sees = type(env).__name__, env.action_space, env.observation_space
    if not isinstance(acts, Space):
        raise ModelError(f"{name} has action_space {acts!r}; expected dz.rl.Discrete(n) or dz.rl.Box(low, high, shape)")
    if not isinstance(sees, Box):
        raise ModelError(f"{name} has observation_space {sees!r}; expected dz.rl.Box(low, high, shape)")
