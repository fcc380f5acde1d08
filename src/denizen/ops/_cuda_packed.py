"""`_packed` on CUDA with Triton: one launch for all parts, which are found by a table of their addresses."""

from collections.abc import Callable, Sequence

import torch
import triton
import triton.language as tl

_BLOCK = 512  # bytes that a program writes


@triton.jit
def _pack_kernel(codes, table, out, rows, n, width, BITS: tl.constexpr, HAS_TABLE: tl.constexpr, BLOCK: tl.constexpr):
    EACH: tl.constexpr = 8 // BITS
    blocks = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)  # of all parts, one after the other
    first = codes + row * n
    if HAS_TABLE:
        first = tl.load(table + row // rows).to(tl.pointer_type(tl.int8)) + row % rows * n
    byte = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, EACH)[None, :]
    place = byte[:, None] * EACH + k
    code = tl.load(first + place, mask=place < n, other=0).to(tl.int32)
    tl.store(out + row * width + byte, tl.sum(code << (BITS * k), 1).to(tl.uint8), mask=byte < width)


def pack(parts: Sequence[torch.Tensor], bits: int, out: torch.Tensor) -> Callable[[], None] | None:
    """`_packed.pack`."""
    parts = [part.contiguous() for part in parts]
    n, width = parts[0].shape[-1], out.shape[-1]
    rows = parts[0].numel() // n
    several = len(parts) > 1
    table = torch.empty(len(parts) if several else 0, dtype=torch.int64, device=out.device)

    def fill() -> None:
        table.copy_(torch.tensor(addresses))

    addresses = [part.data_ptr() for part in parts] if several else []
    # A graph that is being recorded takes no numbers from the host, and need not: its addresses stay.
    recorded = out.is_cuda and torch.cuda.is_current_stream_capturing()
    if not recorded:
        fill()
    _pack_kernel[(triton.cdiv(width, _BLOCK) * rows * len(parts),)](
        parts[0], table, out, rows, n, width, BITS=bits, HAS_TABLE=several, BLOCK=_BLOCK
    )
    return fill if recorded and several else None
