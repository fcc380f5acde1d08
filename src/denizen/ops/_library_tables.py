"""Look-ups and histograms, registered with torch; see `_library` for the conventions."""

from typing import Any

import torch
from torch import Tensor

from denizen.errors import ModelError
from denizen.ops import _tables
from denizen.ops._library import _front, _unfold, register, variant, vmap_rule


def _whole(tensor: Any, dim: int | None) -> Any:
    """Fold a vmapped axis in; an unbatched tensor keeps its leading axis of 1 and is shared between worlds."""
    return tensor if dim is None else tensor.movedim(dim, 0).flatten(0, 1)


def _check_range(name: str, codes: Tensor, limit: int) -> None:
    """Refuse codes outside 0 … limit - 1 on the CPU, where kernels would reach beyond the table (2.5 µs for 37,518)."""
    if codes.device.type == "cpu" and codes.numel():
        low, high = (int(end) for end in torch.aminmax(codes))
        if low < 0 or high >= limit:
            raise ModelError(f"{name} from {low} to {high} for a table of {limit}: expected 0 to {limit - 1}")


@register
def lookup(table: Tensor, codes: Tensor, group: Tensor | None) -> Tensor:
    """float32 `[W, N]` from a table `[W or 1, G, K]`, codes `[W or 1, N]` and groups `[1, N]`; see `_tables.lookup`."""
    _check_range("look-up: codes", codes, table.shape[2])
    if group is not None:
        _check_range("look-up: groups", group, table.shape[1])
    if variant(codes.device) == "numba":
        from denizen.ops import _cpu_tables

        return _cpu_tables.lookup(table, codes, group)
    if codes.is_cuda:
        return _tables.lookup_narrow(table, codes, group)
    return _tables.lookup(table, codes, group)


@torch.library.register_fake("denizen::lookup")
def _(table, codes, group):
    return table.new_empty(max(table.shape[0], codes.shape[0]), codes.shape[1], dtype=torch.float32)


@vmap_rule("lookup")
def _(info, in_dims, table, codes, group):
    table, codes = _whole(table, in_dims[0]), _whole(codes, in_dims[1])
    if in_dims[2] is not None:  # groups that differ between worlds become part of the codes
        codes, group = _tables.positions(codes, _whole(group, in_dims[2]), table.shape[2]), None
        table = table.flatten(1)[:, None]
    return _unfold(lookup(table, codes, group), info.batch_size), 0


def _lookup_context(ctx, inputs, output):
    table, codes, group = inputs
    ctx.shape = table.shape
    ctx.save_for_backward(codes, group)


def _lookup_backward(ctx, grad):
    codes, group = ctx.saved_tensors
    worlds, groups, num_codes = ctx.shape
    where = _tables.positions(codes, group, num_codes).expand(grad.shape[0], -1)
    total = torch.zeros(grad.shape[0], groups * num_codes, dtype=grad.dtype, device=grad.device)
    total = total.scatter_add(1, where, grad).unflatten(1, (groups, num_codes))
    return total if worlds == grad.shape[0] else total.sum(dim=0, keepdim=True), None, None


torch.library.register_autograd("denizen::lookup", _lookup_backward, setup_context=_lookup_context)


@register
def histogram(codes: Tensor, group: Tensor | None, num_groups: int, num_codes: int) -> Tensor:
    """int64 `[W, G, K]` counts of codes; see `_tables.histogram`."""
    _check_range("histogram: codes", codes, num_codes)
    if group is not None:
        _check_range("histogram: groups", group, num_groups)
    if variant(codes.device) == "numba":
        from denizen.ops import _cpu_tables

        return _cpu_tables.histogram(codes, group, num_groups, num_codes)
    if variant(codes.device) == "triton":
        from denizen.ops import _cuda_tables

        return _cuda_tables.histogram(codes, group, num_groups, num_codes)
    return _tables.histogram(codes, group, num_groups, num_codes)


@torch.library.register_fake("denizen::histogram")
def _(codes, group, num_groups, num_codes):
    return codes.new_empty(codes.shape[0], num_groups, num_codes, dtype=torch.int64)


@vmap_rule("histogram")
def _(info, in_dims, codes, group, num_groups, num_codes):
    batch, shape = info.batch_size, (num_groups, num_codes)
    codes = _front(codes, in_dims[0], batch)
    if in_dims[1] is not None:
        codes, group = _tables.positions(codes, _whole(group, in_dims[1]), num_codes), None
        num_groups, num_codes = 1, num_groups * num_codes
    return _unfold(histogram(codes, group, num_groups, num_codes).reshape(-1, *shape), batch), 0
