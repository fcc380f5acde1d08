"""`_appending.append_events` on CUDA with Triton: one launch, which reads a byte of each agent.

A program counts those of its block to whom it happened, takes as many rows, and writes them.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from denizen.ops._appending import MOST_COLUMNS

_SIZE = 1024


@triton.jit
def _copied(column, out, source, target, fits, ids, IS_BY: tl.constexpr, HAS_IDS: tl.constexpr):
    """Write the entries of a column at `source` to the rows at `target`; `ids` are those of this world."""
    value = tl.load(column + source, mask=fits, other=0)
    if IS_BY:
        value = value.to(tl.int64)
        if HAS_IDS:
            value = tl.where(value >= 0, tl.load(ids + value, mask=fits & (value >= 0), other=0), -1)
    tl.store(out + target, value, mask=fits)


@triton.jit
def _append_events_kernel(
    count,
    mask,
    ids,
    id_stride,
    step,
    out_id,
    out_step,
    c0,
    c1,
    c2,
    c3,
    c4,
    c5,
    o0,
    o1,
    o2,
    o3,
    o4,
    o5,
    n,
    capacity,
    NUM: tl.constexpr,
    BY: tl.constexpr,
    HAS_IDS: tl.constexpr,
    SIZE: tl.constexpr,
):
    blocks = tl.cdiv(n, SIZE)
    world = (tl.program_id(0) // blocks).to(tl.int64)
    i = (tl.program_id(0) % blocks).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    source = world * n + i
    happened = (tl.load(mask + source, mask=i < n, other=0) != 0).to(tl.int32)
    num = tl.sum(happened)
    if num > 0:
        place = tl.atomic_add(count + world, num.to(tl.int64), sem="relaxed") + tl.cumsum(happened, 0) - 1
        fits = (happened != 0) & (place < capacity)
        target = world * capacity + place
        own = ids + world * id_stride
        who = i
        if HAS_IDS:
            who = tl.load(own + i, mask=fits, other=0)
        tl.store(out_id + target, who, mask=fits)
        tl.store(out_step + target, i * 0 + tl.load(step), mask=fits)
        if NUM > 0:
            _copied(c0, o0, source, target, fits, own, BY == 0, HAS_IDS)
        if NUM > 1:
            _copied(c1, o1, source, target, fits, own, BY == 1, HAS_IDS)
        if NUM > 2:
            _copied(c2, o2, source, target, fits, own, BY == 2, HAS_IDS)
        if NUM > 3:
            _copied(c3, o3, source, target, fits, own, BY == 3, HAS_IDS)
        if NUM > 4:
            _copied(c4, o4, source, target, fits, own, BY == 4, HAS_IDS)
        if NUM > 5:
            _copied(c5, o5, source, target, fits, own, BY == 5, HAS_IDS)


def append_events(
    count: torch.Tensor,
    rows: Sequence[torch.Tensor],
    mask: torch.Tensor,
    ids: torch.Tensor,
    step: torch.Tensor,
    columns: Sequence[torch.Tensor],
    by: int,
) -> None:
    """`_appending.append_events`."""
    worlds, n = mask.shape
    spare = [mask] * (MOST_COLUMNS - len(columns))  # an address for what is not used
    _append_events_kernel[(triton.cdiv(n, _SIZE) * worlds,)](
        count,
        mask.contiguous(),
        ids.contiguous() if ids.numel() else count,
        ids.shape[1] if ids.numel() and ids.shape[0] > 1 else 0,
        step,
        *rows[:2],
        *[_bytes(column.contiguous()) for column in columns],
        *spare,
        *[_bytes(row) for row in rows[2:]],
        *spare,
        n,
        rows[0].shape[1],
        NUM=len(columns),
        BY=by,
        HAS_IDS=ids.numel() > 0,
        SIZE=_SIZE,
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor
