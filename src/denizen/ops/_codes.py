"""Narrow codes: masks of them, codes that count steps, small codes packed several to a byte, tables by code, counts.

Masks and steps are compiled by numba on the CPU; on CUDA they are plain torch, which fuses.
Legend of tables: W worlds, N agents, G groups, K codes.
"""

from typing import Any

import torch
from torch import Tensor

from denizen.errors import ModelError
from denizen.ops._library import fold_worlds, register, reverse_only, unfold_worlds, variant, vmap_rule

_NARROW = (torch.int8, torch.int16)
# By bits of an entry: entries that fill a byte are looked at as one whole number, which times the factor has all their
# bits side by side in its highest byte, those of the first entry lowest.
_GATHER = {
    1: (torch.int64, 0x0102040810204080),
    2: (torch.int32, 0x01041040),
    4: (torch.int16, 0x0110),
}


def _in_range(codes: Tensor, low: int, high: int) -> Tensor:
    """Mask int8 of codes from `low` to `high`, both included; any shape."""
    hit = codes == low if low == high else (codes >= low) & (codes <= high)
    return hit.to(torch.int8)


def _grow(codes: Tensor, event: Tensor, last: int) -> Tensor:
    """Codes one step on: 0 becomes 1 where `event` is not 0, others grow by one and stop at `last`.

    Args:
        codes: int8 or int16, any shape, from 0 to `last`.
        event: same shape.
        last: largest code.
    """
    started = codes > 0
    grown = codes + (started & (codes < last)).to(codes.dtype)
    return grown + (~started & (event != 0)).to(codes.dtype)


# --- registered with torch -------------------------------------------------------------------------------------------


@register
def code_range(codes: Tensor, low: int, high: int) -> Tensor:
    """Mask int8 of codes from `low` to `high`."""
    if variant(codes.device) == "numba":
        from denizen.ops import _cpu_codes

        return _cpu_codes.in_range(codes, low, high)
    return _in_range(codes, low, high)


@torch.library.register_fake("denizen::code_range")
def _(codes, low, high):
    return codes.new_empty(codes.shape, dtype=torch.int8)


@vmap_rule("code_range")
def _(info, in_dims, codes, low, high):
    return code_range(codes.movedim(in_dims[0], 0), low, high), 0


@register
def grow_codes(codes: Tensor, event: Tensor, last: int) -> Tensor:
    """Codes one step on; see `_grow`."""
    if variant(codes.device) == "numba":
        from denizen.ops import _cpu_codes

        return _cpu_codes.grow(codes, event, last)
    return _grow(codes, event, last)


@torch.library.register_fake("denizen::grow_codes")
def _(codes, event, last):
    return codes.new_empty(codes.shape)


@vmap_rule("grow_codes")
def _(info, in_dims, codes, event, last):
    batched = [
        t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
        for t, dim in zip((codes, event), in_dims, strict=False)
    ]
    return grow_codes(*batched, last), 0


def in_range(codes: Tensor, low: int, high: int) -> Tensor:
    """Mask int8 of narrow codes from `low` to `high`, both included; any shape."""
    return code_range(codes, low, high) if _as_op(codes) else _in_range(codes, low, high)


def grow(codes: Tensor, event: Tensor, last: int) -> Tensor:
    """Codes one step on: 0 becomes 1 where `event` is not 0, others grow by one and stop at `last`; any shape."""
    return grow_codes(codes, event, last) if _as_op(codes) else _grow(codes, event, last)


def _as_op(codes: Tensor) -> bool:
    return codes.device.type == "cpu" and codes.dtype in _NARROW


@register
def wrap(values: Tensor, dtype: torch.dtype) -> Tensor:
    """int32 values as narrow integers would hold them; inside compiled kernels a wall that keeps them 32 bits wide."""
    return values.to(dtype).to(torch.int32, copy=True)


@torch.library.register_fake("denizen::wrap")
def _(values, dtype):
    return values.new_empty(values.shape, dtype=torch.int32)


@vmap_rule("wrap")
def _(info, in_dims, values, dtype):
    return wrap(values, dtype), in_dims[0]


# --- for what leaves the device --------------------------------------------------------------------------------------


def pack(codes: Tensor, bits: int, out: Tensor) -> None:
    """Entries of the last axis side by side: bits `bits` k, … of byte j are those of entry (8 / `bits`) j + k.

    Args:
        codes: int8 `[…, n]`, from 0 to 2**bits - 1; others spoil those that share their byte.
        bits: 1, 2 or 4.
        out: uint8 `[…, ceil(n * bits / 8)]`, contiguous: where to write.
    """
    if not codes.numel():
        return
    if variant(codes.device) == "triton":
        from denizen.ops import _cuda_codes

        _cuda_codes.pack(codes, bits, out)
        return
    dtype, factor = _GATHER[bits]
    rest = -codes.shape[-1] % dtype.itemsize
    whole = (torch.nn.functional.pad(codes, (0, rest)) if rest else codes).contiguous()
    if whole.storage_offset() % dtype.itemsize:
        whole = whole.clone()
    out.copy_((whole.view(dtype) * factor).view(torch.uint8)[..., dtype.itemsize - 1 :: dtype.itemsize])


# --- tables -----------------------------------------------------------------------------------------------------------


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
        from denizen.ops import _cpu_codes

        return _cpu_codes.lookup(table, codes, group)
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
        from denizen.ops import _cpu_codes

        return _cpu_codes.histogram(codes, group, num_groups, num_codes)
    if variant(codes.device) == "triton":
        from denizen.ops import _cuda_codes

        return _cuda_codes.histogram(codes, group, num_groups, num_codes)
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
        from denizen.ops import _cuda_codes

        _cuda_codes.add_histogram(counts, codes, group)
    else:
        counts.add_(_histogram(codes, group, counts.shape[1], counts.shape[2]))
