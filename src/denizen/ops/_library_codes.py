"""Masks from codes, and codes that count steps, registered with torch; on CUDA plain torch, which fuses."""

import torch
from torch import Tensor

from denizen.ops import _codes
from denizen.ops._library import register, variant, vmap_rule

_NARROW = (torch.int8, torch.int16)


@register
def code_range(codes: Tensor, low: int, high: int) -> Tensor:
    """Mask int8 of codes from `low` to `high`."""
    if variant(codes.device) == "numba":
        from denizen.ops import _cpu_codes

        return _cpu_codes.in_range(codes, low, high)
    return _codes.in_range(codes, low, high)


@torch.library.register_fake("denizen::code_range")
def _(codes, low, high):
    return codes.new_empty(codes.shape, dtype=torch.int8)


@vmap_rule("code_range")
def _(info, in_dims, codes, low, high):
    return code_range(codes.movedim(in_dims[0], 0), low, high), 0


@register
def grow_codes(codes: Tensor, event: Tensor, last: int) -> Tensor:
    """Codes one step on; see `_codes.grow`."""
    if variant(codes.device) == "numba":
        from denizen.ops import _cpu_codes

        return _cpu_codes.grow(codes, event, last)
    return _codes.grow(codes, event, last)


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
    return code_range(codes, low, high) if _as_op(codes) else _codes.in_range(codes, low, high)


def grow(codes: Tensor, event: Tensor, last: int) -> Tensor:
    """Codes one step on: 0 becomes 1 where `event` is not 0, others grow by one and stop at `last`; any shape."""
    return grow_codes(codes, event, last) if _as_op(codes) else _codes.grow(codes, event, last)


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
