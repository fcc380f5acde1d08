"""Look-ups by small integer codes and histograms of them.

Legend: W worlds, N agents, G groups, K codes.
"""

from typing import Any

import torch
from torch import Tensor

from denizen.errors import ModelError
from denizen.ops._library import fold_worlds, register, reverse_only, unfold_worlds, variant, vmap_rule

FEW = 8  # entries among which choosing costs less than reading from a place of its own for each agent


def positions(codes: Tensor, group: Tensor | None, num_codes: int) -> Tensor:
    """Index into a flattened `[G, K]` table for each agent: int64 `[W, N]`."""
    where = codes.long()
    return where if group is None else where + group.long() * num_codes


def _lookup(table: Tensor, codes: Tensor, group: Tensor | None) -> Tensor:
    """`table[w, group[i], codes[w, i]]`: float32 `[W, N]`.

    Args:
        table: float32 `[W or 1, G, K]`.
        codes: int8, uint8 or int16 `[W or 1, N]`, each below K.
        group: int8 or uint8 `[1, N]`, or None where G is 1.
    """
    worlds = max(table.shape[0], codes.shape[0])
    where = positions(codes, group, table.shape[2]).expand(worlds, -1)
    return table.flatten(1).expand(worlds, -1).gather(1, where)


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


def _histogram(codes: Tensor, group: Tensor | None, num_groups: int, num_codes: int) -> Tensor:
    """Number of agents with each code in each group: int64 `[W, G, K]`."""
    where = positions(codes, group, num_codes)
    counts = torch.zeros(codes.shape[0], num_groups * num_codes, dtype=torch.int64, device=codes.device)
    counts.scatter_add_(1, where, torch.ones_like(where))
    return counts.unflatten(1, (num_groups, num_codes))


# --- registered with torch -------------------------------------------------------------------------------------------


def _whole(tensor: Any, dim: int | None) -> Any:
    """Fold a vmapped axis in; an unbatched tensor keeps its leading axis of 1 and is shared between worlds."""
    return tensor if dim is None else tensor.movedim(dim, 0).flatten(0, 1)


def _check_range(name: str, codes: Tensor, limit: int) -> None:
    """Refuse codes outside 0 … limit - 1 on the CPU, where kernels would reach beyond the table."""
    if codes.device.type == "cpu" and codes.numel():
        low, high = (int(end) for end in torch.aminmax(codes))
        if low < 0 or high >= limit:
            raise ModelError(f"{name} from {low} to {high} for a table of {limit}: expected 0 to {limit - 1}")


@reverse_only
@register
def lookup(table: Tensor, codes: Tensor, group: Tensor | None) -> Tensor:
    """float32 `[W, N]` from a table `[W or 1, G, K]`, codes `[W or 1, N]` and groups `[1, N]`; see `_lookup`."""
    _check_range("look-up: codes", codes, table.shape[2])
    if group is not None:
        _check_range("look-up: groups", group, table.shape[1])
    if variant(codes.device) == "numba":
        from denizen.ops import _cpu_tables

        return _cpu_tables.lookup(table, codes, group)
    if codes.is_cuda:
        return lookup_narrow(table, codes, group)
    return _lookup(table, codes, group)


@torch.library.register_fake("denizen::lookup")
def _(table, codes, group):
    return table.new_empty(max(table.shape[0], codes.shape[0]), codes.shape[1], dtype=torch.float32)


@vmap_rule("lookup")
def _(info, in_dims, table, codes, group):
    table, codes = _whole(table, in_dims[0]), _whole(codes, in_dims[1])
    if in_dims[2] is not None:  # groups that differ between worlds become part of the codes
        codes, group = positions(codes, _whole(group, in_dims[2]), table.shape[2]), None
        table = table.flatten(1)[:, None]
    return unfold_worlds(lookup(table, codes, group), info.batch_size), 0


def _lookup_context(ctx, inputs, output):
    table, codes, group = inputs
    ctx.shape = table.shape
    ctx.save_for_backward(codes, group)


def _lookup_backward(ctx, grad):
    codes, group = ctx.saved_tensors
    worlds, groups, num_codes = ctx.shape
    where = positions(codes, group, num_codes).expand(grad.shape[0], -1)
    total = torch.zeros(grad.shape[0], groups * num_codes, dtype=grad.dtype, device=grad.device)
    total = total.scatter_add(1, where, grad).unflatten(1, (groups, num_codes))
    return total if worlds == grad.shape[0] else total.sum(dim=0, keepdim=True), None, None


torch.library.register_autograd("denizen::lookup", _lookup_backward, setup_context=_lookup_context)


@register
def histogram(codes: Tensor, group: Tensor | None, num_groups: int, num_codes: int) -> Tensor:
    """int64 `[W, G, K]` counts of codes; see `_histogram`."""
    _check_range("histogram: codes", codes, num_codes)
    if group is not None:
        _check_range("histogram: groups", group, num_groups)
    if variant(codes.device) == "numba":
        from denizen.ops import _cpu_tables

        return _cpu_tables.histogram(codes, group, num_groups, num_codes)
    if variant(codes.device) == "triton":
        from denizen.ops import _cuda_tables

        return _cuda_tables.histogram(codes, group, num_groups, num_codes)
    return _histogram(codes, group, num_groups, num_codes)


@torch.library.register_fake("denizen::histogram")
def _(codes, group, num_groups, num_codes):
    return codes.new_empty(codes.shape[0], num_groups, num_codes, dtype=torch.int64)


@vmap_rule("histogram")
def _(info, in_dims, codes, group, num_groups, num_codes):
    batch, shape = info.batch_size, (num_groups, num_codes)
    codes = fold_worlds(codes, in_dims[0], batch)
    if in_dims[1] is not None:
        codes, group = positions(codes, _whole(group, in_dims[1]), num_codes), None
        num_groups, num_codes = 1, num_groups * num_codes
    return unfold_worlds(histogram(codes, group, num_groups, num_codes).reshape(-1, *shape), batch), 0


def add_histogram(counts: Tensor, codes: Tensor, group: Tensor | None) -> None:
    """Add the number of agents with each code in each group.

    Args:
        counts: int32 `[W, G, K]`.
        codes: int8, uint8 or int16 `[W, N]`, each below K.
        group: int8 or uint8 `[1, N]`, or None where G is 1.
    """
    if variant(counts.device) == "triton":
        from denizen.ops import _cuda_tables

        _cuda_tables.add_histogram(counts, codes, group)
    else:
        counts.add_(_histogram(codes, group, counts.shape[1], counts.shape[2]))
