"""Operations over the rows of a batch that learning needs: which rows come first, and sums that run backwards in time.

The plain torch forms are the reference; `_cuda_rows` gives their bits on CUDA, in one or two launches.
"""

import torch
from torch import Tensor

from denizen.ops import register, variant


@register
def first_flagged(flags: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Rows that carry a flag, by position, before those that carry none.

    Args:
        flags: bool `[rows]`.
        count: how many rows to take, at most all.

    Returns:
        int64 `[count]`: distinct rows, flagged ones first; int32 `[rows]`: the place of each flagged row among them, -1
        for others and for flagged rows beyond the count.
    """
    if variant(flags.device) == "triton":
        from denizen.nn.kernels import _cuda_rows

        return _cuda_rows.first_flagged(flags, count)
    ones = flags.to(torch.int64)
    rank = ones.cumsum(0) - ones
    numbers = torch.arange(flags.shape[0], device=flags.device)
    place = torch.where(flags, rank, ones.sum() + numbers - rank)
    rows = torch.zeros_like(numbers).scatter(0, place, numbers)[:count].clone()
    return rows, torch.where(flags & (rank < count), rank, -1).to(torch.int32)


@torch.library.register_fake("denizen::first_flagged")
def _(flags: Tensor, count: int) -> tuple[Tensor, Tensor]:
    return flags.new_empty(count, dtype=torch.int64), flags.new_empty(flags.shape, dtype=torch.int32)


@register
def backward_sums(values: Tensor, factors: Tensor) -> Tensor:
    """Y_t = values_t + factors_t Y_{t+1} with nothing after the last row: `[steps, …]`, like both arguments.

    Both are float32, or both float64; each product and each sum is rounded.
    """
    if variant(values.device) == "triton":
        from denizen.nn.kernels import _cuda_rows

        return _cuda_rows.backward_sums(values, factors)
    later = torch.zeros_like(values[0])
    rows = []
    for t in range(values.shape[0] - 1, -1, -1):
        later = values[t] + factors[t] * later
        rows.append(later)
    return torch.stack(rows[::-1])


@torch.library.register_fake("denizen::backward_sums")
def _(values: Tensor, factors: Tensor) -> Tensor:
    return values.new_empty(values.shape)
