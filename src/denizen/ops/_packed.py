"""Small codes packed several to a byte: for what leaves the device; plain torch, the reference of `_cuda_packed`."""

import torch
from torch import Tensor

from denizen.ops._library import variant

# By bits of an entry: entries that fill a byte are looked at as one whole number, which times the factor has all their
# bits side by side in its highest byte, those of the first entry lowest.
_GATHER = {
    1: (torch.int64, 0x0102040810204080),
    2: (torch.int32, 0x01041040),
    4: (torch.int16, 0x0110),
}


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
        from denizen.ops import _cuda_packed

        _cuda_packed.pack(codes, bits, out)
        return
    dtype, factor = _GATHER[bits]
    rest = -codes.shape[-1] % dtype.itemsize
    whole = (torch.nn.functional.pad(codes, (0, rest)) if rest else codes).contiguous()
    if whole.storage_offset() % dtype.itemsize:
        whole = whole.clone()
    out.copy_((whole.view(dtype) * factor).view(torch.uint8)[..., dtype.itemsize - 1 :: dtype.itemsize])
