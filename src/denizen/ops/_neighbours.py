"""Sums over neighbours in plain torch: the reference that the fast variants must equal bit for bit.

Legend: N agents, E edges, W worlds. A graph is held by target: `pointer` int64 `[N+1]` and `index` int32 `[E]`, where
`index[pointer[i]:pointer[i+1]]` are the senders of agent i in ascending order. That order is the canonical edge order.
"""

import torch
from torch import Tensor

FRACTION_BITS = 40  # of the largest declared value; leaves room for 2**22 neighbours at that value in int64


def edge_targets(pointer: Tensor, num_edges: int) -> Tensor:
    """Target of every edge in canonical order: int64 `[E]`."""
    degree = pointer[1:] - pointer[:-1]
    return torch.repeat_interleave(torch.arange(degree.numel(), device=pointer.device), degree, output_size=num_edges)


def sum_counts(values: Tensor, where: Tensor | None, pointer: Tensor, index: Tensor) -> Tensor:
    """Integer sums: int32 `[W, N]` for int8 values `[W, N]`, int64 for wider ones; zero where `where` is 0."""
    dtype = torch.int32 if values.dtype == torch.int8 else torch.int64
    out = torch.zeros(values.shape, dtype=dtype, device=values.device)
    out.index_add_(1, edge_targets(pointer, index.numel()), values[:, index.long()].to(dtype))
    return out if where is None else out * (where != 0)


def sum_fixed(
    values: Tensor, where: Tensor | None, weight: Tensor | None, pointer: Tensor, index: Tensor, bits: int, bound: float
) -> Tensor:
    """Sums of bounded real values in fixed point, hence exact and free of order.

    Args:
        values: `[W, N]`, taken as float32.
        where: int8 `[W, N]` or `[1, N]`; receivers with 0 get 0.
        weight: float32 `[E]`.
        pointer: int64 `[N+1]`.
        index: int32 `[E]`.
        bits: binary digits after the point.
        bound: largest |value * weight| allowed.

    Returns:
        float32 `[W, N]`; a world in which a message was NaN or beyond the bound is NaN throughout, so that the fault
        cannot pass for a number.
    """
    total, bad = fixed_totals(values, where, weight, pointer, index, bits, bound)
    return from_fixed(total, bad, bits)


def fixed_totals(
    values: Tensor, where: Tensor | None, weight: Tensor | None, pointer: Tensor, index: Tensor, bits: int, bound: float
) -> tuple[Tensor, Tensor]:
    """Sums in fixed point int64 `[W, N]`, and int32 `[W]`: 1 where a message was NaN or beyond the bound."""
    message = values.to(torch.float32)[:, index.long()]
    if weight is not None:  # a sender at 0 says nothing, so that not even a NaN weight tells push from pull
        message = torch.where(message == 0, message, message * weight)
    bad = ~(message.abs() <= bound)
    fixed = torch.round(torch.where(bad, torch.zeros_like(message), message) * 2.0**bits).to(torch.int64)
    total = torch.zeros(values.shape, dtype=torch.int64, device=values.device)
    total.index_add_(1, edge_targets(pointer, index.numel()), fixed)
    total = total if where is None else total * (where != 0)
    return total, bad.any(dim=1).to(torch.int32)


def from_fixed(total: Tensor, bad: Tensor, bits: int) -> Tensor:
    """float32 `[W, N]` from fixed point; NaN throughout a world with a bad message."""
    return torch.where(bad.unsqueeze(1) != 0, torch.nan, (total.to(torch.float64) * 2.0**-bits).to(torch.float32))


def pull(values: Tensor, weight: Tensor | None, pointer: Tensor, index: Tensor) -> Tensor:
    """Float32 sums `[W, N]` of any real values, added up in canonical edge order."""
    message = values.to(torch.float32)[:, index.long()]
    if weight is not None:
        message = message * weight
    # One after the other within a segment on every device; `index_add_` on CUDA would add in any order.
    return torch.segment_reduce(message.T.contiguous(), "sum", offsets=pointer, axis=0, unsafe=True).T.contiguous()
