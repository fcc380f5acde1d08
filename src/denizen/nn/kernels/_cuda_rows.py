"""The operations of `_rows` on CUDA with Triton."""

import torch
import triton
import triton.language as tl

_BLOCK = 1024
_ALONE = 8192  # rows up to which one program does all


@triton.jit
def _count_flags_kernel(flags, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(counts + tl.program_id(0), tl.sum(tl.load(flags + i, mask=i < n, other=0).to(tl.int32)))


@triton.jit
def _first_flagged_kernel(
    flags, counts, rows, slots, n, blocks, count, ALONE: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr
):
    program = tl.program_id(0)
    i = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    flag = tl.load(flags + i, mask=i < n, other=0).to(tl.int32)
    own = tl.cumsum(flag, 0) - flag
    if ALONE:
        total = tl.sum(flag)
        rank = own
    else:
        other = tl.arange(0, BLOCKS)
        found = tl.load(counts + other, mask=other < blocks, other=0)
        total = tl.sum(found)
        rank = own + tl.sum(tl.where(other < program, found, 0))
    place = tl.where(flag != 0, rank.to(tl.int64), total + i - rank)
    tl.store(rows + place, i, mask=(i < n) & (place < count))
    tl.store(slots + i, tl.where((flag != 0) & (rank < count), rank, -1), mask=i < n)


def first_flagged(flags: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`_rows.first_flagged`."""
    n, flags = flags.shape[0], flags.contiguous()
    rows = torch.empty(count, dtype=torch.int64, device=flags.device)
    slots = torch.empty(n, dtype=torch.int32, device=flags.device)
    if not n:
        return rows, slots
    alone = n <= _ALONE
    block = triton.next_power_of_2(n) if alone else _BLOCK
    blocks = triton.cdiv(n, block)
    counts = slots  # not read where one program does all
    if not alone:
        counts = torch.empty(blocks, dtype=torch.int32, device=flags.device)
        _count_flags_kernel[(blocks,)](flags, counts, n, BLOCK=block)
    _first_flagged_kernel[(blocks,)](
        flags,
        counts,
        rows,
        slots,
        n,
        blocks,
        count,
        ALONE=alone,
        BLOCKS=triton.next_power_of_2(blocks),
        BLOCK=block,
        num_warps=min(16, max(1, block // 128)),
    )
    return rows, slots


@triton.jit
def _backward_sums_kernel(values, factors, out, steps, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    later = tl.zeros((BLOCK,), values.dtype.element_ty)
    for k in range(steps):
        at = (steps - 1 - k).to(tl.int64) * n + i
        value = tl.load(values + at, mask=inside, other=0.0)
        later = value + tl.load(factors + at, mask=inside, other=0.0) * later
        tl.store(out + at, later, mask=inside)


def backward_sums(values: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """`_rows.backward_sums`."""
    values, factors = values.contiguous(), factors.contiguous()
    out = torch.empty_like(values)
    if out.numel():
        n = values[0].numel()
        _backward_sums_kernel[(triton.cdiv(n, 32),)](
            values, factors, out, values.shape[0], n, BLOCK=32, num_warps=1, enable_fp_fusion=False
        )
    return out
