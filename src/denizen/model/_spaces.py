"""Spaces: what actions and observations of an `Env` look like."""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from denizen.errors import InputError, ModelError


@dataclasses.dataclass(frozen=True)
class Discrete:
    """One of `n` choices, numbered from 0: int64 of shape ().

    Attributes:
        n: number of choices, at least 1.
    """

    n: int

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or isinstance(self.n, bool) or self.n < 1:
            raise InputError(f"Discrete(n={self.n!r}): expected a whole number, at least 1")

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


@dataclasses.dataclass(frozen=True)
class Box:
    """Numbers within bounds.

    Attributes:
        low: lower bound, inclusive; may be -inf.
        high: upper bound, inclusive; may be inf.
        shape: of one value.
        dtype: of one value.
    """

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InputError(f"Box(low={self.low!r}, high={self.high!r}): expected low below high")
        if any(not isinstance(size, int) or size < 1 for size in self.shape):
            raise InputError(f"Box(shape={self.shape!r}): expected sizes of at least 1, for example (4,)")

    @property
    def bounded(self) -> bool:
        """Whether both bounds are finite."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def fault(self, value: Tensor) -> Tensor:
        """Bool of the shape of `value`: whether an entry lies outside, NaN included."""
        return ~((value >= self.low) & (value <= self.high))


Space = Discrete | Box


def check_spaces(env: Any) -> None:
    """Raise `ModelError` where an environment declares something else than spaces."""
    name, acts, sees = type(env).__name__, env.action_space, env.observation_space
    if not isinstance(acts, Space):
        raise ModelError(f"{name} has action_space {acts!r}; expected dz.rl.Discrete(n) or dz.rl.Box(low, high, shape)")
    if not isinstance(sees, Box):
        raise ModelError(f"{name} has observation_space {sees!r}; expected dz.rl.Box(low, high, shape)")
