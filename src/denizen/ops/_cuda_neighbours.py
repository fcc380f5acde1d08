"""Sums over neighbours on CUDA with Triton: push from active senders with integer atomics; the bits of `_neighbours`.

A program looks at a block of senders and reads the lists of those that are active, several edges at once; blocks without
an active sender end at once. Integer sums have no order, so atomics leave no trace. `pull` adds in canonical order, one
lane an agent.
"""

import torch
import triton
import triton.language as tl

from denizen.ops._neighbours import from_fixed

_SENDERS, _EDGES, _WARPS = 64, 16, 2


@triton.jit
def _add_counts_kernel(
    values, where, out_ptr, out_idx, total, n, where_stride, HAS_WHERE: tl.constexpr, BYTES: tl.constexpr,
    SENDERS: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    world = tl.program_id(1).to(tl.int64)
    j = tl.program_id(0).to(tl.int64) * SENDERS + tl.arange(0, SENDERS)
    v = tl.load(values + world * n + j, mask=j < n, other=0)
    active = v != 0
    if tl.max(active.to(tl.int32)) > 0:
        start = tl.load(out_ptr + j, mask=active, other=0)
        stop = tl.load(out_ptr + j + 1, mask=active, other=0)
        for k in range(0, tl.max(stop - start), EDGES):
            edge = start[:, None] + k + tl.arange(0, EDGES)[None, :]
            use = edge < stop[:, None]
            target = tl.load(out_idx + edge, mask=use, other=0).to(tl.int64)
            if HAS_WHERE:
                use = use & (tl.load(where + world * where_stride + target, mask=use, other=0) != 0)
            place = world * n + target
            if BYTES:  # four counters to a word; none exceeds 255, so none runs into the next
                words = total.to(tl.pointer_type(tl.int32))
                tl.atomic_add(words + (place >> 2), 1 << (8 * (place & 3)).to(tl.int32), mask=use, sem="relaxed")
            else:
                amount = tl.broadcast_to(v.to(total.dtype.element_ty)[:, None], (SENDERS, EDGES))
                tl.atomic_add(total + place, amount, mask=use, sem="relaxed")


@triton.jit
def _add_fixed_kernel(
    values, where, weight, out_ptr, out_idx, out_edge, total, bad, n, where_stride, scale, bound,
    HAS_WHERE: tl.constexpr, HAS_WEIGHT: tl.constexpr, SENDERS: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    world = tl.program_id(1).to(tl.int64)
    j = tl.program_id(0).to(tl.int64) * SENDERS + tl.arange(0, SENDERS)
    v = tl.load(values + world * n + j, mask=j < n, other=0).to(tl.float32)
    active = v != 0  # holds for NaN too
    if tl.max(active.to(tl.int32)) > 0:
        start = tl.load(out_ptr + j, mask=active, other=0)
        stop = tl.load(out_ptr + j + 1, mask=active, other=0)
        for k in range(0, tl.max(stop - start), EDGES):
            edge = start[:, None] + k + tl.arange(0, EDGES)[None, :]
            use = edge < stop[:, None]
            message = tl.broadcast_to(v[:, None], (SENDERS, EDGES))
            if HAS_WEIGHT:
                message = message * tl.load(weight + tl.load(out_edge + edge, mask=use, other=0), mask=use, other=0.0)
            good = tl.abs(message) <= bound
            if tl.max((use & ~good).to(tl.int32)) > 0:
                tl.atomic_max(bad + world, 1)
            fixed = _round(tl.where(good, message, 0.0) * scale)
            target = tl.load(out_idx + edge, mask=use, other=0).to(tl.int64)
            if HAS_WHERE:
                use = use & (tl.load(where + world * where_stride + target, mask=use, other=0) != 0)
            tl.atomic_add(total + world * n + target, fixed, mask=use & (fixed != 0), sem="relaxed")


@triton.jit
def _round(x):
    """Nearest whole number, ties to even, as int64."""
    down = tl.floor(x)
    rest = x - down
    whole = down.to(tl.int64)
    up = (rest > 0.5) | ((rest == 0.5) & ((whole & 1) == 1))
    return whole + up.to(tl.int64)


@triton.jit
def _pull_kernel(
    values, weight, ptr, idx, edge, out, n, num_sources, HAS_WEIGHT: tl.constexpr, HAS_EDGE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    world = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    start = tl.load(ptr + i, mask=inside, other=0)
    stop = tl.load(ptr + i + 1, mask=inside, other=0)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(tl.max(stop - start)):
        e = start + k
        use = e < stop
        source = tl.load(idx + e, mask=use, other=0).to(tl.int64)
        x = tl.load(values + world * num_sources + source, mask=use, other=0.0)
        if HAS_WEIGHT:
            at = tl.load(edge + e, mask=use, other=0).to(tl.int64) if HAS_EDGE else e
            x = x * tl.load(weight + at, mask=use, other=0.0)
        total = tl.where(use, total + x, total)
    tl.store(out + world * n + i, total, mask=inside)


def _stride(where: torch.Tensor | None) -> int:
    return where.shape[1] if where is not None and where.shape[0] > 1 else 0


def add_counts(
    total: torch.Tensor, values: torch.Tensor, where: torch.Tensor | None, out_ptr: torch.Tensor, out_idx: torch.Tensor
) -> None:
    """`_accumulate.add_counts`; a uint8 total is written to in words of four."""
    worlds, n = values.shape
    if total.numel():
        values, where = values.contiguous(), None if where is None else where.contiguous()
        _add_counts_kernel[(triton.cdiv(n, _SENDERS), worlds)](
            values, where, out_ptr, out_idx, total, n, _stride(where), HAS_WHERE=where is not None,
            BYTES=total.dtype == torch.uint8, SENDERS=_SENDERS, EDGES=_EDGES, num_warps=_WARPS,
        )  # fmt: skip


def add_fixed(
    total: torch.Tensor, bad: torch.Tensor, values: torch.Tensor, where: torch.Tensor | None,
    weight: torch.Tensor | None, out_ptr: torch.Tensor, out_idx: torch.Tensor, out_edge: torch.Tensor, bits: int,
    bound: float,
) -> None:  # fmt: skip
    """`_accumulate.add_fixed`."""
    worlds, n = values.shape
    if total.numel():
        values, where = values.contiguous(), None if where is None else where.contiguous()
        _add_fixed_kernel[(triton.cdiv(n, _SENDERS), worlds)](
            values, where, weight, out_ptr, out_idx, out_edge, total, bad, n, _stride(where), 2.0**bits, bound,
            HAS_WHERE=where is not None, HAS_WEIGHT=weight is not None, SENDERS=_SENDERS, EDGES=_EDGES,
            num_warps=_WARPS, enable_fp_fusion=False,
        )  # fmt: skip


def sum_counts(
    values: torch.Tensor, where: torch.Tensor | None, out_ptr: torch.Tensor, out_idx: torch.Tensor
) -> torch.Tensor:
    """`_neighbours.sum_counts`."""
    dtype = torch.int32 if values.dtype == torch.int8 else torch.int64
    total = torch.zeros(values.shape, dtype=dtype, device=values.device)
    add_counts(total, values, where, out_ptr, out_idx)
    return total


def sum_fixed(
    values: torch.Tensor, where: torch.Tensor | None, weight: torch.Tensor | None, out_ptr: torch.Tensor,
    out_idx: torch.Tensor, out_edge: torch.Tensor, bits: int, bound: float,
) -> torch.Tensor:  # fmt: skip
    """`_neighbours.sum_fixed`."""
    total = torch.zeros(values.shape, dtype=torch.int64, device=values.device)
    bad = torch.zeros(values.shape[0], dtype=torch.int32, device=values.device)
    add_fixed(total, bad, values, where, weight, out_ptr, out_idx, out_edge, bits, bound)
    return from_fixed(total, bad, bits)


def pull(
    values: torch.Tensor, weight: torch.Tensor | None, pointer: torch.Tensor, index: torch.Tensor, edge: torch.Tensor
) -> torch.Tensor:
    """`_neighbours.pull`; `edge` maps positions to canonical edges, empty where they are the same."""
    values = values.to(torch.float32).contiguous()
    worlds, n = values.shape
    out = torch.empty(values.shape, dtype=torch.float32, device=values.device)
    if out.numel():
        _pull_kernel[(triton.cdiv(n, 256), worlds)](
            values, weight, pointer, index, edge, out, n, n, HAS_WEIGHT=weight is not None, HAS_EDGE=edge.numel() > 0,
            BLOCK=256, enable_fp_fusion=False,
        )  # fmt: skip
    return out
