"""`_moves.move_rows` on CUDA with Triton: one launch, which copies the rows that move and looks at the others."""

import torch
import triton
import triton.language as tl


@triton.jit
def _move_rows_kernel(buffer, rows, num, entries, by_row, by_entry, ROWS: tl.constexpr, ENTRIES: tl.constexpr):
    blocks = tl.cdiv(entries, ENTRIES)
    row = (tl.program_id(0) // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    entry = (tl.program_id(0) % blocks).to(tl.int64) * ENTRIES + tl.arange(0, ENTRIES)
    origin = tl.load(rows + row, mask=row < num, other=0)
    moves = (row < num) & (origin != row)
    if tl.sum(moves.to(tl.int32), 0) > 0:  # most often nothing moves
        here = moves[:, None] & (entry < entries)[None, :]
        place = entry[None, :] * by_entry
        value = tl.load(buffer + origin[:, None] * by_row + place, mask=here)
        tl.store(buffer + row[:, None] * by_row + place, value, mask=here)


def move_rows(buffer: torch.Tensor, rows: torch.Tensor) -> None:
    """`_moves.move_rows`; buffer `[W, entries]`."""
    num, entries = buffer.shape
    by_row, by_entry = buffer.stride()
    tall, wide = (1, 4096) if by_entry == 1 else (128, 32)  # neighbours in memory side by side
    grid = (triton.cdiv(num, tall) * triton.cdiv(entries, wide),)
    _move_rows_kernel[grid](buffer, rows, num, entries, by_row, by_entry, ROWS=tall, ENTRIES=wide)
