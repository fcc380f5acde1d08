"""`_appending.append_events` on CUDA with Triton: one launch, which reads a byte of each agent.

A program counts those of its block to whom it happened, takes as many rows, and writes them.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from denizen.ops._appending import MOST_COLUMNS, Race
from denizen.ops._cuda_attribution import _race
from denizen.ops._cuda_neighbours import _EDGES, _LANES, _launch, _note

_SIZE = 1024
_SHARES = 4  # programs that run the races of a block: each has to wait for memory several times


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
    out_place,
    spans,
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
    RACES: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Rows of a block; with RACES also the places of their agents, and where the rows of the block are."""
    blocks = tl.cdiv(n, SIZE)
    world = (tl.program_id(0) // blocks).to(tl.int64)
    i = (tl.program_id(0) % blocks).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    source = world * n + i
    happened = (tl.load(mask + source, mask=i < n, other=0) != 0).to(tl.int32)
    num = tl.sum(happened)
    if RACES:
        tl.store(spans + 2 * tl.program_id(0) + 1, num.to(tl.int64))
    if num > 0:
        begin = tl.atomic_add(count + world, num.to(tl.int64), sem="relaxed")
        place = begin + tl.cumsum(happened, 0) - 1
        fits = (happened != 0) & (place < capacity)
        target = world * capacity + place
        own = ids + world * id_stride
        who = i
        if HAS_IDS:
            who = tl.load(own + i, mask=fits, other=0)
        tl.store(out_id + target, who, mask=fits)
        tl.store(out_step + target, i * 0 + tl.load(step), mask=fits)
        if RACES:
            tl.store(spans + 2 * tl.program_id(0), begin)
            tl.store(out_place + target, i.to(tl.int32), mask=fits)
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


@triton.jit(do_not_specialize=["stream"])
def _race_rows_kernel(
    spans,
    out_place,
    values,
    where,
    factor,
    factor_stride,
    weight,
    ptr,
    idx,
    ids,
    id_stride,
    key,
    step_ptr,
    stream,
    by_row,
    layer_row,
    time_row,
    n,
    capacity,
    NUMBER: tl.constexpr,
    KEEPS_TIME: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    HAS_IDS: tl.constexpr,
    SIZE: tl.constexpr,
    SHARES: tl.constexpr,
    LANES: tl.constexpr,
    EDGES: tl.constexpr,
):
    """The races of graph NUMBER for the rows that a block of agents has just got, which SHARES programs share."""
    block = tl.program_id(0) // SHARES
    num = tl.load(spans + 2 * block + 1)
    if num > 0:
        blocks = tl.cdiv(n, SIZE)
        world = (block // blocks).to(tl.int64)
        begin = tl.load(spans + 2 * block)
        end = tl.minimum(begin + num, capacity)
        k0, k1 = tl.load(key + 2 * world).to(tl.uint32), tl.load(key + 2 * world + 1).to(tl.uint32)
        by = tl.load(factor + world * factor_stride + NUMBER).to(tl.float64)
        step = tl.load(step_ptr).to(tl.uint32)
        for c in range(tl.program_id(0) % SHARES * LANES, num.to(tl.int32), SHARES * LANES):
            line = begin + c + tl.arange(0, LANES)
            there = line < end
            line += world * capacity
            agent = tl.load(out_place + line, mask=there, other=0).to(tl.int64)
            reached = there & (tl.load(where + world * n + agent, mask=there, other=0) != 0)
            best, whose, place = _race(
                values,
                weight,
                ptr,
                idx,
                ids,
                agent,
                reached,
                world * n,
                world * id_stride,
                by,
                k0,
                k1,
                step,
                stream.to(tl.uint32),
                HAS_WEIGHT,
                HAS_IDS,
                LANES,
                EDGES,
            )
            found = reached & (place >= 0)
            best = tl.where(found, best, float("inf"))
            if NUMBER > 0:
                there = there & (best < tl.load(time_row + line, mask=there, other=0.0))
            tl.store(by_row + line, tl.where(found, whose, -1), mask=there)
            tl.store(layer_row + line, tl.where(found, NUMBER, -1).to(tl.int8), mask=there)
            if KEEPS_TIME:
                tl.store(time_row + line, best, mask=there)


@triton.jit(do_not_specialize=["stream"])
def _append_raced_kernel(
    count,
    mask,
    notes,
    out_id,
    out_step,
    by_row,
    layer_row,
    values,
    where,
    factor,
    factor_stride,
    weight,
    ptr,
    idx,
    ids,
    id_stride,
    key,
    step_ptr,
    stream,
    n,
    capacity,
    HAS_WEIGHT: tl.constexpr,
    HAS_IDS: tl.constexpr,
    SIZE: tl.constexpr,
    LANES: tl.constexpr,
    EDGES: tl.constexpr,
):
    """Rows of a block with the winners of one graph's races: what `_append_events_kernel` and the races do together."""
    blocks = tl.cdiv(n, SIZE)
    world = (tl.program_id(0) // blocks).to(tl.int64)
    row, first = world * n, (tl.program_id(0) % blocks).to(tl.int64) * SIZE
    i = first + tl.arange(0, SIZE)
    chosen = tl.load(mask + row + i, mask=i < n, other=0) != 0
    if tl.max(chosen.to(tl.int32)) > 0:
        num = _note(chosen, notes + row + first, SIZE)
        begin = tl.atomic_add(count + world, num.to(tl.int64), sem="relaxed")
        k0, k1 = tl.load(key + 2 * world).to(tl.uint32), tl.load(key + 2 * world + 1).to(tl.uint32)
        by = tl.load(factor + world * factor_stride).to(tl.float64)
        now = tl.load(step_ptr)
        for c in range(0, num, LANES):
            lane = c + tl.arange(0, LANES)
            there = lane < num
            agent = first + tl.load(notes + row + first + lane, mask=there, other=0).to(tl.int64)
            reached = there & (tl.load(where + row + agent, mask=there, other=0) != 0)
            _best, whose, place = _race(
                values,
                weight,
                ptr,
                idx,
                ids,
                agent,
                reached,
                row,
                world * id_stride,
                by,
                k0,
                k1,
                now.to(tl.uint32),
                stream.to(tl.uint32),
                HAS_WEIGHT,
                HAS_IDS,
                LANES,
                EDGES,
            )
            found = reached & (place >= 0)
            who = agent
            if HAS_IDS:
                who = tl.load(ids + world * id_stride + agent, mask=there, other=0)
            fits = there & (begin + lane < capacity)
            line = world * capacity + begin + lane
            tl.store(out_id + line, who, mask=fits)
            tl.store(out_step + line, agent * 0 + now, mask=fits)
            tl.store(by_row + line, tl.where(found, whose, -1), mask=fits)
            tl.store(layer_row + line, tl.where(found, 0, -1).to(tl.int8), mask=fits)


def _append_raced(count: torch.Tensor, rows: Sequence[torch.Tensor], mask: torch.Tensor, race: Race) -> None:
    """Rows that have no columns but the two of a race on one graph: one launch."""
    mask, factor, ids, key = mask.contiguous(), race.factor.contiguous(), race.ids.contiguous(), race.key.contiguous()
    grid, notes, constants = _launch(mask)
    _append_raced_kernel[grid](
        count,
        mask,
        notes,
        *rows[:2],
        rows[2 + race.by],
        rows[2 + race.layer],
        race.values[0].contiguous(),
        race.where[0].contiguous(),
        factor,
        factor.shape[1] if factor.shape[0] > 1 else 0,
        race.weights[0],
        race.in_ptr[0],
        race.in_idx[0],
        ids if ids.numel() else key,
        ids.shape[1] if ids.numel() and ids.shape[0] > 1 else 0,
        key,
        race.step,
        race.streams[0],
        mask.shape[1],
        rows[0].shape[1],
        HAS_WEIGHT=race.weights[0].numel() > 0,
        HAS_IDS=ids.numel() > 0,
        enable_fp_fusion=False,
        **constants,
    )


def append_events(
    count: torch.Tensor,
    rows: Sequence[torch.Tensor],
    mask: torch.Tensor,
    ids: torch.Tensor,
    step: torch.Tensor,
    columns: Sequence[torch.Tensor | None],
    by: int,
    race: Race | None = None,
) -> None:
    """`_appending.append_events`."""
    if race is not None and len(race.weights) == 1 and len(columns) == 2:
        _append_raced(count, rows, mask, race)
        return
    worlds, n = mask.shape
    programs, capacity, own = triton.cdiv(n, _SIZE) * worlds, rows[0].shape[1], list(rows[2:])
    plain = [k for k, column in enumerate(columns) if column is not None]
    given = [_bytes(column.contiguous()) for column in columns if column is not None]
    spare = [mask] * (MOST_COLUMNS - len(given))  # an address for what is not used
    spans = place = mask
    if race is not None:
        spans = torch.empty(programs, 2, dtype=torch.int64, device=mask.device)
        place = torch.empty(worlds, capacity, dtype=torch.int32, device=mask.device)
    _append_events_kernel[(programs,)](
        count,
        mask.contiguous(),
        ids.contiguous() if ids.numel() else count,
        ids.shape[1] if ids.numel() and ids.shape[0] > 1 else 0,
        step,
        *rows[:2],
        place,
        spans,
        *given,
        *spare,
        *[_bytes(own[k]) for k in plain],
        *spare,
        n,
        capacity,
        NUM=len(given),
        BY=plain.index(by) if by in plain else -1,
        HAS_IDS=ids.numel() > 0,
        RACES=race is not None,
        SIZE=_SIZE,
    )
    if race is not None:
        _race_rows(race, spans, place, own[race.by], own[race.layer], programs, n)


def _race_rows(
    race: Race, spans: torch.Tensor, place: torch.Tensor, by: torch.Tensor, layer: torch.Tensor, programs: int, n: int
) -> None:
    """Who caused each of the rows that were just written."""
    factor, ids, key = race.factor.contiguous(), race.ids.contiguous(), race.key.contiguous()
    last = len(race.weights) - 1
    time = torch.empty(place.shape, dtype=torch.float64, device=place.device) if last else place
    for number, (weight, pointer, index) in enumerate(zip(race.weights, race.in_ptr, race.in_idx, strict=True)):
        _race_rows_kernel[(programs * _SHARES,)](
            spans,
            place,
            race.values[number].contiguous(),
            race.where[number].contiguous(),
            factor,
            factor.shape[1] if factor.shape[0] > 1 else 0,
            weight,
            pointer,
            index,
            ids if ids.numel() else key,
            ids.shape[1] if ids.numel() and ids.shape[0] > 1 else 0,
            key,
            race.step,
            race.streams[number],
            by,
            layer,
            time,
            n,
            place.shape[1],
            NUMBER=number,
            KEEPS_TIME=number < last,
            HAS_WEIGHT=weight.numel() > 0,
            HAS_IDS=ids.numel() > 0,
            SIZE=_SIZE,
            SHARES=_SHARES,
            LANES=_LANES,
            EDGES=_EDGES,
            num_warps=1,
            enable_fp_fusion=False,
        )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor
