"""Sums that do not depend on order, in plain torch and with gradients: of numbers on a grid, in float64."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from denizen._arguments import number

_BITS = 52


def exact(caller: str, values: Tensor, num: int, bound: float | None = None) -> Tensor:
    """Values rounded so that float64 adds up to `num` of them without rounding, hence the same in any order.

    Whole numbers stay as they are (sums below 2^53). Real ones become multiples of 2^-(52 - log2 num) of the bound, or
    of the largest value where there is none: 32 binary digits for a million. Gradients go through as if nothing had
    been rounded.

    Args:
        caller: for the message.
        values: any shape.
        num: static; how many are added at most.
        bound: largest |value| that can occur. Where one is larger, or not finite, everything becomes NaN.

    Returns:
        float64, shape of `values`.
    """
    wide = values.to(torch.float64)
    if not values.dtype.is_floating_point:
        return wide
    if bound is None:
        largest = wide.detach().abs().amax() if values.numel() else wide.new_zeros(())
        fraction = torch.frexp(largest)[0]  # 0 for 0, NaN for NaN
        unit = torch.where(largest > 0, largest / fraction, 1.0)  # the power of two above the largest, exactly
        unit = torch.where(largest < torch.inf, unit, torch.nan)
    else:
        static = 2.0 ** math.ceil(math.log2(number(caller, "max", bound, above=0)))
        unit = torch.where((wide.detach().abs() <= bound).all(), static, torch.nan)
    grain = unit * 2.0 ** (math.ceil(math.log2(num + 1)) - _BITS)
    rounded = torch.round(wide.detach() / grain) * grain
    return sloped(rounded, lambda: wide)


def sloped(exact: Tensor, smooth: Callable[[], Tensor]) -> Tensor:
    """A rounded value with the slope of what it was rounded from, where gradients are on.

    Whether they are wanted of this value cannot be asked: a world of a batch says no.
    """
    if not torch.is_grad_enabled():
        return exact
    value = smooth()
    return exact.detach() + (value - value.detach())
