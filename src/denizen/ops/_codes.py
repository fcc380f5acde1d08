"""Narrow codes: masks of them, codes that count steps, and small codes packed several to a byte.

Masks and counts are compiled by numba on the CPU; on CUDA they are plain torch, which fuses.
"""

import torch
from torch import Tensor

from denizen.ops._library import register, variant, vmap_rule

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
