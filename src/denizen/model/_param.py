"""Parameters of models: bounds, unit, shape, and whether calibration may change them."""

import dataclasses
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen.errors import InputError


@dataclasses.dataclass(frozen=True)
class Param:
    """What `dz.param` declares.

    Attributes:
        low: lower bound, inclusive, or None.
        high: upper bound, inclusive, or None.
        unit: unit, for people.
        learnable: whether calibration may change the value.
        about: one sentence, for people.
        shape: shape of the default.
        any_length: name of what a vector of any length has one entry for, or empty where the shape is fixed.
    """

    low: float | None
    high: float | None
    unit: str
    learnable: bool
    about: str
    shape: tuple[int, ...]
    any_length: str

    def read(self, value: Any, where: str) -> Tensor:
        """The value as a float32 tensor, shape and bounds checked; raises `InputError`."""
        if isinstance(value, bool) or not isinstance(value, Real | list | tuple | np.ndarray | Tensor):
            raise InputError(f"{where} = {value!r}: expected a number, a list of numbers or a tensor")
        if isinstance(value, np.ndarray | Tensor) and "complex" in str(value.dtype):
            raise InputError(f"{where} = {value!r}: expected real numbers")
        try:
            tensor = tensor_of(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{where} = {value!r}: expected a number or a list of numbers") from error
        shape = tuple(tensor.shape)
        fits = len(shape) == 1 and shape[0] > 0 if self.any_length else shape == self.shape
        if not fits:
            wanted = f"one number for each of the {self.any_length}" if self.any_length else f"shape {self.shape}"
            raise InputError(f"{where} has shape {shape}, expected {wanted}")
        self.check(tensor, where)
        return tensor

    def check(self, value: Tensor, where: str) -> None:
        """Raise `InputError` where a value is NaN, infinite or out of bounds (reads the value on the host)."""
        data = value.detach()
        if not bool(torch.isfinite(data).all()):
            raise InputError(f"{where} = {short(data)}: expected finite numbers")
        low_bad = self.low is not None and bool((data < self.low).any())
        high_bad = self.high is not None and bool((data > self.high).any())
        if low_bad or high_bad:
            raise InputError(f"{where} = {short(data)}: expected {self.bounds()}{self.unit and ' ' + self.unit}")

    def inside(self, value: Tensor) -> Tensor:
        """Whether all values are finite and within the bounds, bool 0-d; nothing is read."""
        value = value.detach()
        good = torch.isfinite(value)
        if self.low is not None:
            good = good & (value >= self.low)
        if self.high is not None:
            good = good & (value <= self.high)
        return good.all()

    def keeps(self, factor: float) -> bool:
        """Whether whatever is within the bounds stays so times a factor."""
        kept = self.low is None or factor * self.low >= self.low, self.high is None or factor * self.high <= self.high
        return all(kept) and (factor >= 0 or self.low is self.high is None)

    def bounds(self) -> str:
        """The bounds in words."""
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        if self.low is not None:
            return f"at least {self.low:g}"
        return f"at most {self.high:g}" if self.high is not None else "any"


def short(value: Tensor) -> str:
    """A tensor's values in a few characters."""
    return f"{value.item():g}" if value.numel() == 1 else str(value.flatten()[:8].tolist())


def tensor_of(value: Any) -> Tensor:
    """A float32 tensor of a number, a sequence or a tensor."""
    return torch.as_tensor(value, dtype=torch.float32)


def param(
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    unit: str = "",
    learnable: bool = True,
    about: str = "",
    any_length: str = "",
) -> Any:
    """A parameter of a model: a float32 tensor, a number or a vector.

    Args:
        default: number or sequence of numbers; fixes the shape.
        low: lower bound, inclusive; a value below it is an error.
        high: upper bound, inclusive.
        unit: unit, for people.
        learnable: whether calibration may change it.
        about: one sentence for `denizen models`.
        any_length: for a vector that may be longer or shorter than the default: what it has one entry for.
    """
    for name, bound in (("low", low), ("high", high)):
        if bound is not None and (not isinstance(bound, Real) or isinstance(bound, bool) or bound != bound):
            raise InputError(f"param: {name}={bound!r}, expected a number or None")
    if low is not None and high is not None and low > high:
        raise InputError(f"param: low={low!r} lies above high={high!r}")
    try:
        shape = tuple(tensor_of(default).shape)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"param: default={default!r}, expected a number or a list of numbers") from error
    spec = Param(low, high, unit, learnable, about, shape, any_length)
    spec.read(default, "param: default")
    return dataclasses.field(default_factory=lambda: tensor_of(default), metadata={"param": spec})
