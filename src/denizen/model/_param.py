"""Parameters of models: bounds, unit, shape, and whether calibration may change them."""

import dataclasses
import re
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen import _units
from denizen.errors import InputError, ModelError


@dataclasses.dataclass(frozen=True)
class Param:
    """What `dz.param` declares.

    Attributes:
        low: lower bound, inclusive, or None.
        high: upper bound, inclusive, or None.
        unit: unit of the numbers; times in it are the model's `time_unit`.
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
        """The value as a float32 tensor, shape and bounds checked; raises `InputError`.

        Args:
            value: numbers, or a quantity, such as ``"0.3/week"`` or one of `pint`, which is converted to `unit`.
            where: begins messages.
        """
        value = self.number(value, where)
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

    def number(self, value: Any, where: str) -> Any:
        """A quantity in the parameter's unit; whatever brings no unit as it is."""
        if not _units.is_quantity(value):
            return value
        try:
            return _units.number(value, self.unit)
        except ValueError as error:
            such = f", or a quantity to convert to {self.unit!r}" if _units.read(self.unit or "?") else ""
            raise InputError(f"{where} = {str(value)!r}: {error}; expected a number{such}") from None

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


def check_units(owner: str, params: Mapping[str, Param], time_unit: str) -> None:
    """Raise `ModelError` where a parameter's unit has another unit of time than its model."""
    own = _units.in_days(time_unit)
    for name, spec in params.items() if own is not None else ():
        for given in _units.times(spec.unit):
            if _units.in_days(given) != own:
                unit = re.sub(rf"\b{given}\b", time_unit, spec.unit)
                raise ModelError(
                    f"{owner}.{name}: unit={spec.unit!r}, and the model's time_unit is {time_unit!r}: a step takes its "
                    f"numbers as they are; write unit={unit!r}, and values in other units as texts, such as "
                    f"'2 {given}s' or '0.3/{given}', which are converted"
                )


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
        default: number or sequence of numbers, which fixes the shape; or a quantity, such as ``"0.3/week"``.
        low: lower bound, inclusive; a value below it is an error.
        high: upper bound, inclusive.
        unit: of the numbers, such as ``"1/contact/day"`` or ``"day"``. Times in it have to be the model's `time_unit`.
            Values may be given as quantities in other units, and are converted to it. Words that are no unit, such as
            ``"years of age"``, are for people alone.
        learnable: whether calibration may change it.
        about: one sentence for `denizen models`.
        any_length: for a vector that may be longer or shorter than the default: what it has one entry for.
    """
    for name, bound in (("low", low), ("high", high)):
        if bound is not None and (not isinstance(bound, Real) or isinstance(bound, bool) or bound != bound):
            raise InputError(f"param: {name}={bound!r}, expected a number or None")
    if low is not None and high is not None and low > high:
        raise InputError(f"param: low={low!r} lies above high={high!r}")
    default = Param(None, None, unit, learnable, about, (), "").number(default, "param: default")
    try:
        shape = tuple(tensor_of(default).shape)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"param: default={default!r}, expected a number or a list of numbers") from error
    spec = Param(low, high, unit, learnable, about, shape, any_length)
    spec.read(default, "param: default")
    return dataclasses.field(default_factory=lambda: tensor_of(default), metadata={"param": spec})
