"""Sums over neighbours on CUDA with Triton, bits as `_neighbours`: push from active senders or pull to receivers.

A program looks at a block of agents, notes those that are active (push) or eligible (pull) and reads their lists,
several agents and edges at once; no list of all of them is made and no number reaches the host. Which way is decided on
the device, from how many were active and eligible in a sample of blocks the time before. Integer sums have no order, so
neither atomics nor the way leave a trace. `pull` adds reals in canonical order, one lane an agent.

Worlds go in small groups whose scattered numbers stay in the L2 cache together. Within a group the same block of agents
is looked at for one world after the other, so that a list comes from memory once for all of them.
"""

import torch
import triton
import triton.language as tl

from denizen.ops._direction import SAMPLE, Traffic, way

_LANES, _EDGES = 8, 16  # agents and edges at once; one warp
_FEW = 300_000  # agents up to which smaller blocks, of which there are more, were measured to be faster
_CACHE = 24 * 2**20  # bytes of what a group of worlds scatters or gathers: about half of an H100's L2
# Worlds in a group: with more, values of few agents leave the L1 cache.
_TOGETHER = 8
_REAL_SWITCH = 0.25  # senders that cost as much as one receiver, in fixed point: measured on an H100


@triton.jit
def _whose(n, GROUP: tl.constexpr, SIZE: tl.constexpr):
    """(world, block of agents) of this program; a grid's second axis would end at 65,535 worlds."""
    blocks = tl.cdiv(n, SIZE)
    first = tl.program_id(0) // (blocks * GROUP) * GROUP
    place = tl.program_id(0) - first * blocks
    if GROUP == 1:
        world, block = first, place
    else:
        width = tl.minimum(tl.num_programs(0) // blocks - first, GROUP)  # the last group may be smaller
        world, block = first + place % width, place // width
    return world.to(tl.int64), block


@triton.jit
def _note(chosen, notes, SIZE: tl.constexpr):
    """Write the lanes of chosen agents to the front of `notes`; returns their number."""
    rank = tl.cumsum(chosen.to(tl.int32), 0)
    tl.store(notes + rank - 1, tl.arange(0, SIZE).to(tl.int16), mask=chosen)
    tl.debug_barrier()  # the notes are read by other threads of the program
    return tl.max(rank)


@triton.jit
def _goes_by_pull(seen, switch, WAY: tl.constexpr):
    """Whether pulling costs less: `switch` is what an eligible receiver costs against an active sender."""
    if WAY == 0:
        by_pull = False
    elif WAY == 1:
        by_pull = True
    else:
        by_pull = tl.load(seen) > switch * tl.load(seen + 1)
    return by_pull


@triton.jit
def _add_counts_kernel(
    values,
    where,
    where_stride,
    notes,
    in_ptr,
    in_idx,
    out_ptr,
    out_idx,
    total,
    clear,
    n,
    seen,
    seeing,
    switch,
    GROUP: tl.constexpr,
    WAY: tl.constexpr,
    EVERY: tl.constexpr,
    HAS_WHERE: tl.constexpr,
    HAS_CLEAR: tl.constexpr,
    BYTES: tl.constexpr,
    SIZE: tl.constexpr,
    LANES: tl.constexpr,
    EDGES: tl.constexpr,
):
    world, block = _whose(n, GROUP, SIZE)
    row, first = world * n, block.to(tl.int64) * SIZE
    j = first + tl.arange(0, SIZE)
    if HAS_CLEAR:
        tl.store(clear + row + j, tl.zeros((SIZE,), clear.dtype.element_ty), mask=j < n)
    by_pull = _goes_by_pull(seen + 4 * world, switch, WAY)
    chosen = j < n
    if by_pull:
        if HAS_WHERE:
            chosen = tl.load(where + world * where_stride + j, mask=j < n, other=0) != 0
    else:
        chosen = tl.load(values + row + j, mask=j < n, other=0) != 0
    if WAY == 2:  # noqa: SIM102  # the outer test is made when the kernel is compiled
        if block % EVERY == 0:  # a sample for the next time
            active = tl.load(values + row + j, mask=j < n, other=0) != 0
            eligible = j < n
            if HAS_WHERE:
                eligible = tl.load(where + world * where_stride + j, mask=j < n, other=0) != 0
            tl.atomic_add(seeing + 4 * world, tl.sum(active.to(tl.int32)), sem="relaxed")
            tl.atomic_add(seeing + 4 * world + 1, tl.sum(eligible.to(tl.int32)), sem="relaxed")
    if tl.max(chosen.to(tl.int32)) > 0:
        num = _note(chosen, notes + row + first, SIZE)
        pointer, index = out_ptr, out_idx
        if by_pull:
            pointer, index = in_ptr, in_idx
        for c in range(0, num, LANES):
            lane = c + tl.arange(0, LANES)
            agent = first + tl.load(notes + row + first + lane, mask=lane < num, other=0).to(tl.int64)
            start = tl.load(pointer + agent, mask=lane < num, other=0)
            stop = tl.load(pointer + agent + 1, mask=lane < num, other=0)
            pulled = tl.zeros((LANES,), tl.int64)
            for k in range(0, tl.max((stop - start).to(tl.int32)), EDGES):
                edge = start[:, None] + k + tl.arange(0, EDGES)[None, :]
                use = edge < stop[:, None]
                place = row + tl.load(index + edge, mask=use, other=0).to(tl.int64)
                if by_pull:
                    pulled += tl.sum(tl.load(values + place, mask=use, other=0).to(tl.int64), 1)
                elif BYTES:  # four counters to a word; none exceeds 255, so none runs into the next
                    words = total.to(tl.pointer_type(tl.int32))
                    tl.atomic_add(words + (place >> 2), 1 << (8 * (place & 3)).to(tl.int32), mask=use, sem="relaxed")
                else:
                    v = tl.load(values + row + agent, mask=lane < num, other=0).to(total.dtype.element_ty)
                    tl.atomic_add(total + place, tl.broadcast_to(v[:, None], (LANES, EDGES)), mask=use, sem="relaxed")
            if by_pull:
                tl.store(total + row + agent, pulled.to(total.dtype.element_ty), mask=lane < num)


@triton.jit
def _add_fixed_kernel(
    values,
    weight,
    notes,
    in_ptr,
    in_idx,
    out_ptr,
    out_idx,
    out_edge,
    total,
    clear,
    bad,
    n,
    seen,
    seeing,
    switch,
    scale,
    bound,
    GROUP: tl.constexpr,
    WAY: tl.constexpr,
    EVERY: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    HAS_CLEAR: tl.constexpr,
    SIZE: tl.constexpr,
    LANES: tl.constexpr,
    EDGES: tl.constexpr,
):
    world, block = _whose(n, GROUP, SIZE)
    row, first = world * n, block.to(tl.int64) * SIZE
    j = first + tl.arange(0, SIZE)
    if HAS_CLEAR:
        tl.store(clear + row + j, tl.zeros((SIZE,), clear.dtype.element_ty), mask=j < n)
    by_pull = _goes_by_pull(seen + 4 * world, switch, WAY)
    chosen = j < n  # all of them: whether a message is bad must not depend on who may receive it
    if not by_pull:
        chosen = tl.load(values + row + j, mask=j < n, other=0).to(tl.float32) != 0  # holds for NaN too
    if WAY == 2:  # noqa: SIM102  # the outer test is made when the kernel is compiled
        if block % EVERY == 0:  # a sample for the next time
            active = tl.load(values + row + j, mask=j < n, other=0).to(tl.float32) != 0
            tl.atomic_add(seeing + 4 * world, tl.sum(active.to(tl.int32)), sem="relaxed")
            tl.atomic_add(seeing + 4 * world + 1, tl.sum((j < n).to(tl.int32)), sem="relaxed")
    if tl.max(chosen.to(tl.int32)) > 0:
        num = _note(chosen, notes + row + first, SIZE)
        pointer, index = out_ptr, out_idx
        if by_pull:
            pointer, index = in_ptr, in_idx
        for c in range(0, num, LANES):
            lane = c + tl.arange(0, LANES)
            agent = first + tl.load(notes + row + first + lane, mask=lane < num, other=0).to(tl.int64)
            v = tl.load(values + row + agent, mask=lane < num, other=0).to(tl.float32)
            start = tl.load(pointer + agent, mask=lane < num, other=0)
            stop = tl.load(pointer + agent + 1, mask=lane < num, other=0)
            pulled = tl.zeros((LANES,), tl.int64)
            for k in range(0, tl.max((stop - start).to(tl.int32)), EDGES):
                edge = start[:, None] + k + tl.arange(0, EDGES)[None, :]
                use = edge < stop[:, None]
                place = row + tl.load(index + edge, mask=use, other=0).to(tl.int64)
                message = tl.broadcast_to(v[:, None], (LANES, EDGES))
                if by_pull:
                    message = tl.load(values + place, mask=use, other=0).to(tl.float32)
                if HAS_WEIGHT:
                    at = edge
                    if not by_pull:
                        at = tl.load(out_edge + edge, mask=use, other=0).to(tl.int64)
                    # A sender at 0 says nothing, not even by a NaN weight.
                    message = tl.where(message == 0, message, message * tl.load(weight + at, mask=use, other=0.0))
                good = tl.abs(message) <= bound
                if tl.max((use & ~good).to(tl.int32)) > 0:
                    tl.atomic_max(bad + world, 1)
                fixed = _round(tl.where(good, message, 0.0) * scale)
                if by_pull:
                    pulled += tl.sum(tl.where(use, fixed, 0), 1)
                else:
                    tl.atomic_add(total + place, fixed, mask=use & (fixed != 0), sem="relaxed")
            if by_pull:
                tl.store(total + row + agent, pulled, mask=lane < num)


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
    world, block = _whose(n, 1, BLOCK)
    i = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = (tl.load(total + world * n + i, mask=i < n, other=0).to(tl.float64) * unit).to(tl.float32)
    if HAS_WHERE:
        value = tl.where(tl.load(where + world * where_stride + i, mask=i < n, other=0) != 0, value, 0.0)
    value = tl.where(tl.load(bad + world) != 0, float("nan"), value)
    tl.store(out + world * n + i, value, mask=i < n)


@triton.jit
def _pull_kernel(
    values,
    weight,
    ptr,
    idx,
    edge,
    out,
    n,
    num_sources,
    GROUP: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    HAS_EDGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    world, block = _whose(n, GROUP, BLOCK)
    i = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
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


def _group(*scattered: torch.Tensor) -> int:
    """How many worlds go together, by the larger of what is scattered to and what is gathered from `[W, N]`."""
    return max(1, min(_CACHE // max(one[0].nbytes for one in scattered), len(scattered[0]), _TOGETHER))


def _launch(values: torch.Tensor) -> tuple[tuple[int], torch.Tensor, dict[str, int]]:
    """(grid, room for notes, constants) of a kernel that notes agents."""
    worlds, n = values.shape
    size = 128 if n <= _FEW else 256
    notes = torch.empty(worlds, n, dtype=torch.int16, device=values.device)
    return (triton.cdiv(n, size) * worlds,), notes, {"SIZE": size, "LANES": _LANES, "EDGES": _EDGES, "num_warps": 1}


def add_counts(
    total: torch.Tensor,
    clear: torch.Tensor | None,
    values: torch.Tensor,
    where: torch.Tensor | None,
    traffic: Traffic | None,
    in_ptr: torch.Tensor,
    in_idx: torch.Tensor,
    out_ptr: torch.Tensor,
    out_idx: torch.Tensor,
) -> None:
    """`_neighbours.add_counts`; a uint8 total is pushed to in words of four."""
    if not total.numel():
        return
    values, where = values.contiguous(), None if where is None else where.contiguous()
    grid, notes, constants = _launch(values)
    which, switch = way(traffic)
    seen, seeing = (total, total) if traffic is None else traffic[:2]  # an address for what is not used
    stride = where.shape[1] if where is not None and where.shape[0] > 1 else 0
    _add_counts_kernel[grid](
        values,
        where,
        stride,
        notes,
        in_ptr,
        in_idx,
        out_ptr,
        out_idx,
        total,
        clear,
        values.shape[1],
        seen,
        seeing,
        switch,
        GROUP=_group(values, total),
        WAY=which,
        EVERY=SAMPLE,
        HAS_WHERE=where is not None,
        HAS_CLEAR=clear is not None,
        BYTES=total.dtype == torch.uint8,
        **constants,
    )


def add_fixed(
    total: torch.Tensor,
    clear: torch.Tensor | None,
    bad: torch.Tensor,
    values: torch.Tensor,
    weight: torch.Tensor | None,
    traffic: Traffic | None,
    in_ptr: torch.Tensor,
    in_idx: torch.Tensor,
    out_ptr: torch.Tensor,
    out_idx: torch.Tensor,
    out_edge: torch.Tensor,
    bits: int,
    bound: float,
) -> None:
    """`_neighbours.add_fixed`."""
    if total.numel():
        values = values.contiguous()
        grid, notes, constants = _launch(values)
        which, switch = way(traffic)
        seen, seeing = (total, total) if traffic is None else traffic[:2]  # an address for what is not used
        _add_fixed_kernel[grid](
            values,
            weight,
            notes,
            in_ptr,
            in_idx,
            out_ptr,
            out_idx,
            out_edge,
            total,
            clear,
            bad,
            values.shape[1],
            seen,
            seeing,
            switch,
            2.0**bits,
            bound,
            GROUP=_group(values, total),
            WAY=which,
            EVERY=SAMPLE,
            HAS_WEIGHT=weight is not None,
            HAS_CLEAR=clear is not None,
            enable_fp_fusion=False,
            **constants,
        )


def sum_counts(
    values: torch.Tensor,
    where: torch.Tensor | None,
    in_ptr: torch.Tensor,
    in_idx: torch.Tensor,
    out_ptr: torch.Tensor,
    out_idx: torch.Tensor,
) -> torch.Tensor:
    """`_neighbours.sum_counts`."""
    dtype = torch.int32 if values.dtype == torch.int8 else torch.int64
    total = torch.zeros(values.shape, dtype=dtype, device=values.device)
    add_counts(total, None, values, where, None, in_ptr, in_idx, out_ptr, out_idx)
    return total if where is None else total.mul_(where != 0)


def _sampled(values: torch.Tensor) -> Traffic | None:
    """How many of every so manieth agent are active; None for few agents, where looking costs more than it saves."""
    if values.shape[1] <= _FEW:
        return None
    some = values[:, ::SAMPLE]
    seen, seeing = torch.zeros(2, values.shape[0], 4, dtype=torch.int32, device=values.device)
    seen[:, 0], seen[:, 1] = (some != 0).sum(dim=1), some.shape[1]
    return Traffic(seen, seeing, _REAL_SWITCH)


def sum_fixed(
    values: torch.Tensor,
    where: torch.Tensor | None,
    weight: torch.Tensor | None,
    in_ptr: torch.Tensor,
    in_idx: torch.Tensor,
    out_ptr: torch.Tensor,
    out_idx: torch.Tensor,
    out_edge: torch.Tensor,
    bits: int,
    bound: float,
) -> torch.Tensor:
    """`_neighbours.sum_fixed`."""
    total = torch.zeros(values.shape, dtype=torch.int64, device=values.device)
    bad = torch.zeros(values.shape[0], dtype=torch.int32, device=values.device)
    traffic = _sampled(values)
    add_fixed(total, None, bad, values, weight, traffic, in_ptr, in_idx, out_ptr, out_idx, out_edge, bits, bound)
    out = torch.empty(values.shape, dtype=torch.float32, device=values.device)
    worlds, n = values.shape
    if out.numel():
        where = None if where is None else where.contiguous()
        stride = n if where is not None and where.shape[0] > 1 else 0
        _from_fixed_kernel[(triton.cdiv(n, 1024) * worlds,)](
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
        _pull_kernel[(triton.cdiv(n, 256) * worlds,)](
            values,
            weight,
            pointer,
            index,
            edge,
            out,
            n,
            n,
            GROUP=_group(values),
            HAS_WEIGHT=weight is not None,
            HAS_EDGE=edge.numel() > 0,
            BLOCK=256,
            enable_fp_fusion=False,
        )
    return out
