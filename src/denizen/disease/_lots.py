"""Who comes first: by priority, then by lot, whatever the order in which agents lie."""

import torch
from torch import Tensor

_LAST = 2**63 - 1
_LOTS = 2**31
_TIES = 8  # of one lot at the boundary; among 100 million agents nine share one in a step of 1e16


def first(
    able: Tensor, priority: Tensor | None, ahead: Tensor | None, lot: Tensor, ids: Tensor, amount: Tensor, most: int
) -> Tensor:
    """The first `amount` of the able: those ahead, then by priority, then by lot, then by identity.

    What is compared is one number each: 32 bits of priority above 31 bits of lot. The largest of the `amount` smallest
    is found without sorting everybody.

    Args:
        able: mask int8 `[agents]`.
        priority: numbers `[agents]`, high ones first; None where all are alike.
        ahead: mask `[agents]` of those who come before the others; None for nobody.
        lot: int64 `[agents]` from 0 to 2**31 - 1.
        ids: int64 `[agents]`.
        amount: int64 0-d, at most `most`.
        most: how many there may be, 1 at least.

    Returns:
        mask int8 `[agents]`.
    """
    key = lot if priority is None else (_LOTS - 1 - _ordered(priority)) * _LOTS + lot
    if ahead is not None:
        key = torch.where(ahead != 0, key - _LAST - 1, key)
    key = torch.where(able != 0, key, _LAST)
    smallest = torch.topk(key, min(most, key.shape[0]), largest=False).values
    last = smallest.index_select(0, (amount - 1).clamp(0, smallest.shape[0] - 1)[None])
    before, tied = (key < last).to(torch.int8), (key == last).to(torch.int8)
    left = (amount - before.sum()).clamp(min=0)
    names = torch.topk(torch.where(tied != 0, ids, _LAST), min(_TIES, key.shape[0]), largest=False).values
    name = names.index_select(0, (left - 1).clamp(0, names.shape[0] - 1)[None])
    return (before + tied * (ids <= name)) * able * (amount > 0)


def first_shares(able: Tensor, priority: Tensor | None, lot: Tensor, amount: Tensor) -> Tensor:
    """The same of shares, float32 `[agents]`: as much of each in turn as is left."""
    order = torch.argsort(lot, stable=True)
    if priority is not None:
        order = order[torch.argsort(priority[order], descending=True, stable=True)]
    queue = able[order].to(torch.float64)
    left = (amount - (queue.cumsum(0) - queue)).clamp(min=0)
    return torch.zeros_like(queue).scatter(0, order, torch.minimum(left, queue)).to(able.dtype)


def _ordered(priority: Tensor) -> Tensor:
    """Whole numbers in the order of the priorities, from -2**31 to 2**31 - 1: int64."""
    if not priority.dtype.is_floating_point:
        return priority.to(torch.int64).clamp(-_LOTS, _LOTS - 1)
    bits = (priority.to(torch.float32) + 0.0).view(torch.int32).to(torch.int64)  # + 0.0: -0.0 is no less than 0.0
    return torch.where(bits < 0, -bits - _LOTS - 1, bits)  # IEEE 754 orders floats of one sign as their bits
