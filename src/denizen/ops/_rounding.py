"""Rounding: to 16 bits in a way that compiled code keeps, and what it alone makes of equal numbers."""

from typing import TypeVar

import torch
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)
FEW = 8  # roundings of a number of which no more is known: an expression of a few operations

Magnitude = TypeVar("Magnitude", Tensor, float)


def rounded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in another dtype, where it is computed with afterwards as well as stored.

    Inductor drops what a cast to 16 bits rounds off where the result is widened again. Then series would see other
    numbers than a state stores, captured steps others than the first one of a chunk, and a policy would judge another
    action than is kept. Whole numbers have no gradient: where gradients are recorded it is the plain cast.
    """
    if dtype in HALVES and tensor.dtype == torch.float32 and not torch.is_grad_enabled():
        tensor = on_grid(tensor, dtype)
    return tensor.to(dtype)


def on_grid(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """What ``tensor.to(dtype).to(torch.float32)`` is, by arithmetic on the bits, which no compiler takes for nothing.

    Args:
        tensor: float32, any shape.
        dtype: float16 or bfloat16.
    """
    functorch = torch._C._functorch
    if not torch.compiler.is_compiling() and functorch.is_batchedtensor(tensor):
        # Entry by entry, so the worlds of vmap are entries like others; torch 2.11 cannot look at bits within vmap.
        level, axis = functorch.maybe_get_level(tensor), functorch.maybe_get_bdim(tensor)
        return functorch._add_batch_dim(on_grid(functorch.get_unwrapped(tensor), dtype), axis, level)
    dropped = 16 if dtype == torch.bfloat16 else 13  # bits of the fraction
    bits = tensor.view(torch.int32)
    even = bits + ((1 << (dropped - 1)) - 1) + ((bits >> dropped) & 1)
    near = (even & -(1 << dropped)).view(torch.float32)
    if dtype == torch.float16:  # fewer exponents: equal steps below the smallest normal number, infinity above the last
        near = torch.where(tensor.abs() < 2.0**-14, (tensor * 2.0**24).round() * 2.0**-24, near)
        near = torch.where(near.abs() > torch.finfo(dtype).max, near * torch.inf, near)
    return torch.where(tensor.isnan(), tensor, near)


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
