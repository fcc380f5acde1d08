"""Look-ups by small integer codes and histograms of them, in plain torch: the reference of `_cpu_tables`.

Legend: W worlds, N agents, G groups, K codes.
"""

import torch
from torch import Tensor


def positions(codes: Tensor, group: Tensor | None, num_codes: int) -> Tensor:
    """Index into a flattened `[G, K]` table for each agent: int64 `[W, N]`."""
    where = codes.long()
    return where if group is None else where + group.long() * num_codes


def lookup(table: Tensor, codes: Tensor, group: Tensor | None) -> Tensor:
    """`table[w, group[i], codes[w, i]]`: float32 `[W, N]`.

    Args:
        table: float32 `[W or 1, G, K]`.
        codes: int8, uint8 or int16 `[W or 1, N]`, each below K.
        group: int8 or uint8 `[1, N]`, or None where G is 1.
    """
    worlds = max(table.shape[0], codes.shape[0])
    where = positions(codes, group, table.shape[2]).expand(worlds, -1)
    return table.flatten(1).expand(worlds, -1).gather(1, where)


FEW = 8  # entries among which choosing costs less than reading from a place of its own for each agent


def lookup_narrow(table: Tensor, codes: Tensor, group: Tensor | None) -> Tensor:
    """`lookup` in a form that compiles to little: 32-bit places, without the test that would end the process.

    A place beyond the table gives NaN, which the next event refuses. Not for use under vmap, which puts the test back.
    """
    worlds, size = max(table.shape[0], codes.shape[0]), table.shape[1] * table.shape[2]
    where = codes.to(torch.int32)
    where = where if group is None else where + group.to(torch.int32) * table.shape[2]
    rows = table.flatten(1)
    if size <= FEW:
        out = rows.new_full((worlds, where.shape[1]), torch.nan)
        for place in range(size):
            out = torch.where(where == place, rows[:, place : place + 1], out)
        return out
    inside = (where >= 0) & (where < size)
    place = where.clamp(0, max(size - 1, 0))
    if table.shape[0] > 1:
        place = place + size * torch.arange(worlds, dtype=torch.int32, device=codes.device)[:, None]
    return torch.where(inside, torch.ops.aten._unsafe_index(rows.flatten(), [place]), torch.nan)


def histogram(codes: Tensor, group: Tensor | None, num_groups: int, num_codes: int) -> Tensor:
    """Number of agents with each code in each group: int64 `[W, G, K]`."""
    where = positions(codes, group, num_codes)
    counts = torch.zeros(codes.shape[0], num_groups * num_codes, dtype=torch.int64, device=codes.device)
    counts.scatter_add_(1, where, torch.ones_like(where))
    return counts.unflatten(1, (num_groups, num_codes))
