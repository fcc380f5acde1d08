"""`_codes.pack` on CUDA with Triton: one pass, which reads a byte an entry and writes what is left of it."""

import torch
import triton
import triton.language as tl

_BLOCK = 512  # bytes that a program writes


@triton.jit(do_not_specialize_on_alignment=["out"])  # another kernel could not be loaded while a graph is recorded
def _pack_kernel(codes, out, n, width, BITS: tl.constexpr, BLOCK: tl.constexpr):
    EACH: tl.constexpr = 8 // BITS
    blocks = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    byte = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, EACH)[None, :]
    place = byte[:, None] * EACH + k
    code = tl.load(codes + row * n + place, mask=place < n, other=0).to(tl.int32)
    tl.store(out + row * width + byte, tl.sum(code << (BITS * k), 1).to(tl.uint8), mask=byte < width)


def pack(codes: torch.Tensor, bits: int, out: torch.Tensor) -> None:
    """`_codes.pack`."""
    codes, n, width = codes.contiguous(), codes.shape[-1], out.shape[-1]
    rows = codes.numel() // n
    _pack_kernel[(triton.cdiv(width, _BLOCK) * rows,)](codes, out, n, width, BITS=bits, BLOCK=_BLOCK)
