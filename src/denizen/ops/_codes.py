"""Masks from codes, and codes that count steps, in plain torch: the reference of `_cpu_codes`."""

import torch
from torch import Tensor


def in_range(codes: Tensor, low: int, high: int) -> Tensor:
    """Mask int8 of codes from `low` to `high`, both included; any shape."""
    hit = codes == low if low == high else (codes >= low) & (codes <= high)
    return hit.to(torch.int8)


def grow(codes: Tensor, event: Tensor, last: int) -> Tensor:
    """Codes one step on: 0 becomes 1 where `event` is not 0, others grow by one and stop at `last`.

    Args:
        codes: int8 or int16, any shape, from 0 to `last`.
        event: same shape.
        last: largest code.
    """
    started = codes > 0
    grown = codes + (started & (codes < last)).to(codes.dtype)
    return grown + (~started & (event != 0)).to(codes.dtype)
