"""The relaxed form of a history: one float column for each age, so that growing older copies nothing.

Columns are `[agents]` each: never, then age 1 … length; what is left to 1 happened longer ago. A step makes two new
columns and hands the others on by reference, to autograd as well. Columns may be stored in float16 or bfloat16; they
are computed with in float32.

Legend: N agents, G groups, A ages of a table.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Columns = tuple[Tensor, ...]

_SELECTED = 8  # up to so many groups a sum for each and a choice is less than a gathered weight for each age


def of_codes(codes: Tensor, length: int) -> Columns:
    """Columns of ages that are known: `codes` integer `[agents]`, 0 for never."""
    return tuple((codes == age).to(torch.float32) for age in range(length + 1))


def of_shares(shares: Tensor) -> Columns:
    """Columns of stacked shares `[…, agents, length + 1]`: each age, then longer ago."""
    return (1 - shares.sum(dim=-1), *shares[..., :-1].unbind(-1))


def stacked(columns: Columns) -> Tensor:
    """float32 `[…, agents, length + 1]`: the share of each age, the last column longer ago."""
    never, *ages = (column.to(torch.float32) for column in columns)
    together = torch.stack(ages, dim=-1)
    return torch.cat([together, (1 - never - together.sum(dim=-1))[..., None]], dim=-1)


def record(columns: Columns, event: Tensor) -> Columns:
    """One step on: the share `event` of never becomes age 1, every age the next one."""
    never = columns[0].to(torch.float32)
    new = event * never  # keeps in the graph that nobody is caught twice
    return (never - new, new, *columns[1:-1])


def clear(columns: Columns, event: Tensor) -> Columns:
    """The share `event` of every age returns to never."""
    never = columns[0].to(torch.float32)
    return (never + event * (1 - never), *(column.to(torch.float32) * (1 - event) for column in columns[1:]))


def within(columns: Columns, first: int, last: int) -> Tensor:
    """float32 `[agents]`: the share of the ages `first` to `last`."""
    return _summed([column.to(torch.float32) for column in columns[first : last + 1]])


def weigh(columns: Columns, table: Tensor, group: Tensor | None) -> Tensor:
    """float32 `[agents]`: the sum over ages of share times table entry.

    Args:
        columns: never and ages.
        table: `[A]`, or `[G, A]` with `group`; entry k is for age k + 1.
        group: integer `[agents]`.
    """
    ages = [column.to(torch.float32) for column in columns[1 : table.shape[-1] + 1]]
    if not ages:
        return torch.zeros_like(columns[0], dtype=torch.float32)
    if group is None:
        return _combined(ages, table)
    if table.shape[0] > _SELECTED:
        return _summed([age * table[:, k][group.long()] for k, age in enumerate(ages)])
    out = _combined(ages, table[0])
    for row in range(1, table.shape[0]):
        out = torch.where(group == row, _combined(ages, table[row]), out)
    return out


def counts(columns: Columns, group: Tensor | None, num_groups: int) -> Tensor:
    """float32 `[G, length]`: the sum of each age's shares over the agents of each group."""
    ages = [column.to(torch.float32) for column in columns[1:]]
    if group is None:
        return torch.stack([age.sum() for age in ages])[None]
    rows = torch.arange(num_groups, dtype=group.dtype, device=group.device)
    member = (group == rows[:, None]).to(torch.float32)  # [G, N]
    return torch.stack([member @ age for age in ages], dim=-1)


def fault(columns: Columns) -> Tensor:
    """0-d bool: whether a share is out of range, those of longer ago included; rounding may exceed it."""
    wide = [column.to(torch.float32) for column in columns]
    parts = torch.stack([((part >= -1e-3) & (part <= 1 + 1e-3)).all() for part in (*wide, _summed(wide))])
    return ~parts.all()


def _combined(ages: Sequence[Tensor], row: Tensor) -> Tensor:
    """Sum of ages times the entries of a row; keeps nothing of their size for the backward pass but the columns."""
    return _summed([age * row[k] for k, age in enumerate(ages)])  # addcmul makes inductor store every row[k] * 1


def _summed(parts: Sequence[Tensor]) -> Tensor:
    out = parts[0]
    for part in parts[1:]:
        out = out + part
    return out
