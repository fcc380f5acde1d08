"""What rounding alone makes of equal numbers, so that nothing is divided by a spread that is none."""

from typing import TypeVar

import torch

FEW = 8  # roundings of a number of which no more is known: an expression of a few operations

Magnitude = TypeVar("Magnitude", torch.Tensor, float)


def rounding(magnitude: Magnitude, dtype: torch.dtype, count: int = FEW) -> Magnitude:
    """How far apart two equal numbers may come to lie by rounding: count * eps * magnitude. Less is no difference.

    Each of `count` operations rounds by at most eps / 2 of its result, each of two numbers is off by as much, and no
    result is larger than the magnitude (Higham, 2002, section 3.1, to first order).

    Args:
        magnitude: the largest of the absolute values; of sums, the largest sum of absolute values, since terms that
            cancel were rounded all the same.
        dtype: in which the numbers were computed.
        count: operations that led to each of them.
    """
    return magnitude * (count * torch.finfo(dtype).eps)
