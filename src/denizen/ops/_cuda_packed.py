"""`_packed` on CUDA with Triton: one pass, which reads a byte an entry and writes what is left of it."""

import torch
import triton
import triton.language as tl

_BLOCK = 1024  # bytes that a program writes


@triton.jit
def _pack_kernel(codes, out, n, width, total, BITS: tl.constexpr, BLOCK: tl.constexpr):
    EACH: tl.constexpr = 8 // BITS
    byte = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, EACH)[None, :]
    place = (byte % width)[:, None] * EACH + k
    use = (byte < total)[:, None] & (place < n)
    code = tl.load(codes + (byte // width)[:, None] * n + place, mask=use, other=0).to(tl.int32)
    tl.store(out + byte, tl.sum(code << (BITS * k), 1).to(tl.uint8), mask=byte < total)


def pack(codes: torch.Tensor, bits: int, out: torch.Tensor) -> None:
    """`_packed.pack`."""
    codes = codes.contiguous()
    _pack_kernel[(triton.cdiv(out.numel(), _BLOCK),)](
        codes, out, codes.shape[-1], out.shape[-1], out.numel(), BITS=bits, BLOCK=_BLOCK
    )
