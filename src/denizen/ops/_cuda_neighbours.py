"""Sums over neighbours on CUDA with Triton: push from active senders with integer atomics; the bits of `_neighbours`.

A program looks at a block of senders, notes those that are active and reads their lists, several senders and edges at
once; no list of all active senders is made and no number reaches the host. Integer sums have no order, so atomics leave
no trace. `pull` adds in canonical order, one lane an agent.
"""

import torch
import triton
import triton.language as tl

_LANES, _EDGES = 8, 16  # senders and edges at once; one warp
_FEW = 300_000  # agents up to which smaller blocks, of which there are more, were measured to be faster


@triton.jit
def _note_active(active, notes, SENDERS: tl.constexpr):
    """Write the lanes of active senders to the front of `notes`; returns their number."""
    rank = tl.cumsum(active.to(tl.int32), 0)
    tl.store(notes + rank - 1, tl.arange(0, SENDERS).to(tl.int16), mask=active)
    tl.debug_barrier()  # the notes are read by other threads of the program
    return tl.max(rank)


@triton.jit
def _add_counts_kernel(
    values, notes, out_ptr, out_idx, total, n, BYTES: tl.constexpr, SENDERS: tl.constexpr, LANES: tl.constexpr,
    EDGES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1).to(tl.int64) * n
    first = tl.program_id(0).to(tl.int64) * SENDERS
    j = first + tl.arange(0, SENDERS)
    active = tl.load(values + row + j, mask=j < n, other=0) != 0
    if tl.max(active.to(tl.int32)) > 0:
        num = _note_active(active, notes + row + first, SENDERS)
        for c in range(0, num, LANES):
            lane = c + tl.arange(0, LANES)
            sender = first + tl.load(notes + row + first + lane, mask=lane < num, other=0).to(tl.int64)
            start = tl.load(out_ptr + sender, mask=lane < num, other=0)
            stop = tl.load(out_ptr + sender + 1, mask=lane < num, other=0)
            for k in range(0, tl.max((stop - start).to(tl.int32)), EDGES):
                edge = start[:, None] + k + tl.arange(0, EDGES)[None, :]
                use = edge < stop[:, None]
                place = row + tl.load(out_idx + edge, mask=use, other=0).to(tl.int64)
                if BYTES:  # four counters to a word; none exceeds 255, so none runs into the next
                    words = total.to(tl.pointer_type(tl.int32))
                    tl.atomic_add(words + (place >> 2), 1 << (8 * (place & 3)).to(tl.int32), mask=use, sem="relaxed")
                else:
                    v = tl.load(values + row + sender, mask=lane < num, other=0).to(total.dtype.element_ty)
                    tl.atomic_add(total + place, tl.broadcast_to(v[:, None], (LANES, EDGES)), mask=use, sem="relaxed")


@triton.jit
def _add_fixed_kernel(
    values, weight, notes, out_ptr, out_idx, out_edge, total, bad, n, scale, bound, HAS_WEIGHT: tl.constexpr,
    SENDERS: tl.constexpr, LANES: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1).to(tl.int64) * n
    first = tl.program_id(0).to(tl.int64) * SENDERS
    j = first + tl.arange(0, SENDERS)
    active = tl.load(values + row + j, mask=j < n, other=0).to(tl.float32) != 0  # holds for NaN too
    if tl.max(active.to(tl.int32)) > 0:
        num = _note_active(active, notes + row + first, SENDERS)
        for c in range(0, num, LANES):
            lane = c + tl.arange(0, LANES)
            sender = first + tl.load(notes + row + first + lane, mask=lane < num, other=0).to(tl.int64)
            v = tl.load(values + row + sender, mask=lane < num, other=0).to(tl.float32)
            start = tl.load(out_ptr + sender, mask=lane < num, other=0)
            stop = tl.load(out_ptr + sender + 1, mask=lane < num, other=0)
            for k in range(0, tl.max((stop - start).to(tl.int32)), EDGES):
                edge = start[:, None] + k + tl.arange(0, EDGES)[None, :]
                use = edge < stop[:, None]
                message = tl.broadcast_to(v[:, None], (LANES, EDGES))
                if HAS_WEIGHT:
                    at = tl.load(out_edge + edge, mask=use, other=0)
                    message = message * tl.load(weight + at, mask=use, other=0.0)
                good = tl.abs(message) <= bound
                if tl.max((use & ~good).to(tl.int32)) > 0:
                    tl.atomic_max(bad + tl.program_id(1), 1)
                fixed = _round(tl.where(good, message, 0.0) * scale)
                place = row + tl.load(out_idx + edge, mask=use, other=0).to(tl.int64)
                tl.atomic_add(total + place, fixed, mask=use & (fixed != 0), sem="relaxed")


@triton.jit
def _round(x):
    """Nearest whole number, ties to even, as int64."""
    down = tl.floor(x)
    rest = x - down
    whole = down.to(tl.int64)
    up = (rest > 0.5) | ((rest == 0.5) & ((whole & 1) == 1))
    return whole + up.to(tl.int64)


@triton.jit
def _from_fixed_kernel(total, where, bad, out, n, where_stride, unit, HAS_WHERE: tl.constexpr, BLOCK: tl.constexpr):
    world = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = (tl.load(total + world * n + i, mask=i < n, other=0).to(tl.float64) * unit).to(tl.float32)
    if HAS_WHERE:
        value = tl.where(tl.load(where + world * where_stride + i, mask=i < n, other=0) != 0, value, 0.0)
    value = tl.where(tl.load(bad + world) != 0, float("nan"), value)
    tl.store(out + world * n + i, value, mask=i < n)


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


def _launch(values: torch.Tensor) -> tuple[tuple[int, int], torch.Tensor, dict[str, int]]:
    """(grid, room for notes, constants) of a push."""
    worlds, n = values.shape
    senders = 128 if n <= _FEW else 256
    notes = torch.empty(worlds, n, dtype=torch.int16, device=values.device)
    constants = {"SENDERS": senders, "LANES": _LANES, "EDGES": _EDGES, "num_warps": 1}
    return (triton.cdiv(n, senders), worlds), notes, constants


def add_counts(total: torch.Tensor, values: torch.Tensor, out_ptr: torch.Tensor, out_idx: torch.Tensor) -> None:
    """`_accumulate.add_counts`; a uint8 total is written to in words of four."""
    if total.numel():
        values = values.contiguous()
        grid, notes, constants = _launch(values)
        _add_counts_kernel[grid](
            values, notes, out_ptr, out_idx, total, values.shape[1], BYTES=total.dtype == torch.uint8, **constants
        )


def add_fixed(
    total: torch.Tensor, bad: torch.Tensor, values: torch.Tensor, weight: torch.Tensor | None, out_ptr: torch.Tensor,
    out_idx: torch.Tensor, out_edge: torch.Tensor, bits: int, bound: float,
) -> None:  # fmt: skip
    """`_accumulate.add_fixed`."""
    if total.numel():
        values = values.contiguous()
        grid, notes, constants = _launch(values)
        _add_fixed_kernel[grid](
            values, weight, notes, out_ptr, out_idx, out_edge, total, bad, values.shape[1], 2.0**bits, bound,
            HAS_WEIGHT=weight is not None, enable_fp_fusion=False, **constants,
        )  # fmt: skip


def sum_counts(
    values: torch.Tensor, where: torch.Tensor | None, out_ptr: torch.Tensor, out_idx: torch.Tensor
) -> torch.Tensor:
    """`_neighbours.sum_counts`."""
    dtype = torch.int32 if values.dtype == torch.int8 else torch.int64
    total = torch.zeros(values.shape, dtype=dtype, device=values.device)
    add_counts(total, values, out_ptr, out_idx)
    return total if where is None else total.mul_(where != 0)


def sum_fixed(
    values: torch.Tensor, where: torch.Tensor | None, weight: torch.Tensor | None, out_ptr: torch.Tensor,
    out_idx: torch.Tensor, out_edge: torch.Tensor, bits: int, bound: float,
) -> torch.Tensor:  # fmt: skip
    """`_neighbours.sum_fixed`."""
    total = torch.zeros(values.shape, dtype=torch.int64, device=values.device)
    bad = torch.zeros(values.shape[0], dtype=torch.int32, device=values.device)
    add_fixed(total, bad, values, weight, out_ptr, out_idx, out_edge, bits, bound)
    out = torch.empty(values.shape, dtype=torch.float32, device=values.device)
    worlds, n = values.shape
    if out.numel():
        where = None if where is None else where.contiguous()
        stride = n if where is not None and where.shape[0] > 1 else 0
        _from_fixed_kernel[(triton.cdiv(n, 1024), worlds)](
            total, where, bad, out, n, stride, 2.0**-bits, HAS_WHERE=where is not None, BLOCK=1024
        )
    return out


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
