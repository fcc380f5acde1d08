"""`_appending.append_events` on CUDA with Triton: one launch for some steps, which reads a byte of each agent.

A program counts those of its block to whom it happened, takes as many rows, and writes them. Who caused events is found
out after that for the rows alone, of all those steps at once: most of that time is waiting for memory.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from denizen.ops._appending import MOST_COLUMNS, TOGETHER, Happened, Race
from denizen.ops._cuda_attribution import RACES, _race

assert TOGETHER == 4  # as many addresses of a kind as kernels take
_SIZE, _WARPS = 4096, 8  # agents and warps of a program that writes rows
_PROGRAMS = 4096  # those of all worlds that run races: one warp each, and a card holds about as many


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
def _of_turn(turn, a0, a1, a2, a3):
    """The address of a step's tensor, `turn` steps after the first."""
    return tl.where(turn < 2, tl.where(turn == 0, a0, a1), tl.where(turn == 2, a2, a3))


@triton.jit
def _append_events_kernel(
    count,
    m0,
    m1,
    m2,
    m3,
    ids,
    id_stride,
    step,
    out_id,
    out_step,
    out_place,
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
    worlds,
    capacity,
    NUM: tl.constexpr,
    BY: tl.constexpr,
    HAS_IDS: tl.constexpr,
    PLACES: tl.constexpr,
    ALIGNED: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Rows of a block in one step; with PLACES also the places of their agents."""
    blocks = tl.cdiv(n, SIZE)
    turn = tl.program_id(0) // blocks // worlds
    world = (tl.program_id(0) // blocks % worlds).to(tl.int64)
    i = (tl.program_id(0) % blocks).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    source = world * n + i
    mask = _of_turn(turn, m0, m1, m2, m3)
    if ALIGNED:  # which a choice of addresses does not show
        mask = tl.multiple_of(mask, 16)
    happened = (tl.load(mask + source, mask=i < n, other=0) != 0).to(tl.int32)
    num = tl.sum(happened)
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
        tl.store(out_step + target, i * 0 + tl.load(step) + turn, mask=fits)
        if PLACES:
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
    before,
    count,
    out_place,
    out_step,
    v0,
    v1,
    v2,
    v3,
    w0,
    w1,
    w2,
    w3,
    f0,
    f1,
    f2,
    f3,
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
    programs,
    NUMBER: tl.constexpr,
    KEEPS_TIME: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    HAS_IDS: tl.constexpr,
    LANES: tl.constexpr,
    BITS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """The races of graph NUMBER for the rows that some steps have just got."""
    world = (tl.program_id(0) // programs).to(tl.int64)
    end = tl.minimum(tl.load(count + world), capacity)
    begin = tl.load(before + world) + tl.program_id(0) % programs * LANES
    k0, k1 = tl.load(key + 2 * world).to(tl.uint32), tl.load(key + 2 * world + 1).to(tl.uint32)
    first = tl.load(step_ptr)
    for c in range(begin, end, programs * LANES):
        line = c + tl.arange(0, LANES)
        there = line < end
        line += world * capacity
        agent = tl.load(out_place + line, mask=there, other=0).to(tl.int64)
        step = tl.load(out_step + line, mask=there, other=0)
        turn = step - first
        where = _of_turn(turn, w0, w1, w2, w3)
        reached = there & (tl.load(where + world * n + agent, mask=there, other=0) != 0)
        factor = _of_turn(turn, f0, f1, f2, f3) + world * factor_stride + NUMBER
        best, whose, place = _race(
            _of_turn(turn, v0, v1, v2, v3),
            weight,
            ptr,
            idx,
            ids,
            agent,
            reached,
            world * n,
            world * id_stride,
            tl.load(factor, mask=there, other=0.0).to(tl.float64),
            k0,
            k1,
            step.to(tl.uint32),
            stream.to(tl.uint32),
            HAS_WEIGHT,
            HAS_IDS,
            LANES,
            BITS,
            AT_ONCE,
        )
        found = reached & (place >= 0)
        best = tl.where(found, best, float("inf"))
        if NUMBER > 0:
            there = there & (best < tl.load(time_row + line, mask=there, other=0.0))
        tl.store(by_row + line, tl.where(found, whose, -1), mask=there)
        tl.store(layer_row + line, tl.where(found, NUMBER, -1).to(tl.int8), mask=there)
        if KEEPS_TIME:
            tl.store(time_row + line, best, mask=there)


def append_events(
    count: torch.Tensor,
    rows: Sequence[torch.Tensor],
    ids: torch.Tensor,
    step: torch.Tensor,
    by: int,
    steps: Sequence[Happened],
) -> None:
    """`_appending.append_events` of up to `TOGETHER` steps; of one alone where it has columns but for a race's."""
    (mask, columns, race), more = steps[0], TOGETHER - len(steps)
    worlds, n = mask.shape
    capacity, own = rows[0].shape[1], list(rows[2:])
    plain = [k for k, column in enumerate(columns) if column is not None]
    given = [_bytes(column.contiguous()) for column in columns if column is not None]
    spare = [mask] * (MOST_COLUMNS - len(given))  # an address for what is not used
    masks = [one.mask.contiguous() for one in steps]
    place = before = count
    if race is not None:
        place = torch.empty(worlds, capacity, dtype=torch.int32, device=mask.device)
        before = count.clone()
    _append_events_kernel[(triton.cdiv(n, _SIZE) * worlds * len(steps),)](
        count,
        *masks,
        *masks[:1] * more,
        ids.contiguous() if ids.numel() else count,
        ids.shape[1] if ids.numel() and ids.shape[0] > 1 else 0,
        step,
        *rows[:2],
        place,
        *given,
        *spare,
        *[_bytes(own[k]) for k in plain],
        *spare,
        n,
        worlds,
        capacity,
        NUM=len(given),
        BY=plain.index(by) if by in plain else -1,
        HAS_IDS=ids.numel() > 0,
        PLACES=race is not None,
        ALIGNED=all(one.data_ptr() % 16 == 0 for one in masks),
        SIZE=_SIZE,
        num_warps=_WARPS,
    )
    if race is not None:
        _race_rows(before, count, rows, place, step, [one.race for one in steps], n)


def _race_rows(
    before: torch.Tensor,
    count: torch.Tensor,
    rows: Sequence[torch.Tensor],
    place: torch.Tensor,
    step: torch.Tensor,
    races: Sequence[Race | None],
    n: int,
) -> None:
    """Who caused each of the rows from `before` on, which have just been written."""
    each = [race for race in races if race is not None]
    race, more = each[0], TOGETHER - len(each)
    ids, key, worlds = race.ids.contiguous(), race.key.contiguous(), len(count)
    factors = [one.factor.contiguous() for one in each]
    last = len(race.weights) - 1
    time = torch.empty(place.shape, dtype=torch.float64, device=place.device) if last else place
    programs = max(1, min(triton.cdiv(place.shape[1], RACES["LANES"]), _PROGRAMS // worlds))
    for number, (weight, pointer, index) in enumerate(zip(race.weights, race.in_ptr, race.in_idx, strict=True)):
        values = [one.values[number].contiguous() for one in each]
        where = [one.where[number].contiguous() for one in each]
        _race_rows_kernel[(programs * worlds,)](
            before,
            count,
            place,
            rows[1],
            *[one for group in (values, where, factors) for one in (*group, *group[:1] * more)],
            factors[0].shape[1] if factors[0].shape[0] > 1 else 0,
            weight,
            pointer,
            index,
            ids if ids.numel() else key,
            ids.shape[1] if ids.numel() and ids.shape[0] > 1 else 0,
            key,
            step,
            race.streams[number],
            rows[2 + race.by],
            rows[2 + race.layer],
            time,
            n,
            place.shape[1],
            programs,
            NUMBER=number,
            KEEPS_TIME=number < last,
            HAS_WEIGHT=weight.numel() > 0,
            HAS_IDS=ids.numel() > 0,
            **RACES,
            num_warps=1,
            enable_fp_fusion=False,
        )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor
