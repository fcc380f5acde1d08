"""New ties on CUDA with Triton; the values of `_forming`.

One pass copies all slots and lists the seekers; what follows looks at those alone. They go into buckets by pool and by
the first bits of their words, as linked lists that grow in any order. A seeker's rank is what buckets before hold, plus
those with a lower word in its own.
"""

import torch
import triton
import triton.language as tl

from denizen.ops._cuda_couples import _PER_BUCKET
from denizen.ops._cuda_draws import _one_word
from denizen.ops._cuda_neighbours import _note
from denizen.ops._forming import FOREVER, LONGEST, NO_ROOM

_SIZE, _LANES = 512, 128  # agents of a program that lists, of whom so many seekers at once
_BLOCK, _PROGRAMS = 128, 1024  # seekers of a program, and programs of all worlds: they share seekers of any number


@triton.jit(do_not_specialize=["stream"])
def _form_list_kernel(
    who,
    until,
    new_who,
    new_until,
    seat,
    lasts,
    ids,
    key,
    draw,
    bad,
    notes,
    count,
    head,
    total,
    seeker,
    word,
    after,
    n,
    buckets,
    per,
    shift,
    stream,
    ids_stride,
    NO_ROOM: tl.constexpr,
    SLOTS: tl.constexpr,
    HAS_IDS: tl.constexpr,
    SIZE: tl.constexpr,
    LANES: tl.constexpr,
):
    blocks = tl.cdiv(n, SIZE)
    world = (tl.program_id(0) // blocks).to(tl.int64)
    row, first = world * n, (tl.program_id(0) % blocks) * SIZE
    i = first + tl.arange(0, SIZE)
    sought = tl.load(seat + row + i, mask=i < n, other=-1)
    chosen = sought >= 0
    wrong = ~(tl.load(lasts + row + i, mask=i < n, other=0.0) >= 0)
    if tl.max((sought == NO_ROOM).to(tl.int32)) > 0:
        tl.atomic_max(bad + 2 * world, 1)
    if tl.max(wrong.to(tl.int32)) > 0:
        tl.atomic_max(bad + 2 * world + 1, 1)
    slots = tl.full((), SLOTS, tl.int64)
    for k in tl.static_range(SLOTS):
        at = slots * first + k * SIZE + tl.arange(0, SIZE)
        inside = at < slots * n
        at += row * SLOTS
        tl.store(new_who + at, tl.load(who + at, mask=inside, other=0), mask=inside)
        tl.store(new_until + at, tl.load(until + at, mask=inside, other=0), mask=inside)
    if tl.max(chosen.to(tl.int32)) > 0:
        num = _note(chosen, notes + row + first, SIZE)
        begin = tl.atomic_add(total + world, num, sem="relaxed")
        step = tl.load(draw).to(tl.uint32)
        k0, k1 = tl.load(key + 2 * world).to(tl.uint32), tl.load(key + 2 * world + 1).to(tl.uint32)
        for c in range(0, num, LANES):
            lane = c + tl.arange(0, LANES)
            there = lane < num
            agent = first + tl.load(notes + row + first + lane, mask=there, other=0).to(tl.int32)
            pool = tl.load(seat + row + agent, mask=there, other=0)
            own = agent.to(tl.int64)
            if HAS_IDS:
                own = tl.load(ids + world * ids_stride + agent, mask=there, other=0)
            w = _one_word(own, step, stream.to(tl.uint32), k0, k1).to(tl.int64)
            bucket = world * buckets + pool * per + (w >> shift).to(tl.int32)
            tl.atomic_add(count + bucket, 1, mask=there, sem="relaxed")
            place = begin + lane
            before = tl.atomic_xchg(head + bucket, place + 1, mask=there, sem="relaxed")
            tl.store(seeker + row + place, agent, mask=there)
            tl.store(word + row + place, w, mask=there)
            tl.store(after + row + place, before, mask=there)


@triton.jit
def _form_rank_kernel(
    seat,
    ids,
    count,
    end,
    head,
    total,
    seeker,
    word,
    after,
    order,
    rank,
    n,
    buckets,
    per,
    shift,
    ids_stride,
    programs,
    HAS_IDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    world = (tl.program_id(0) // programs).to(tl.int64)
    row, own_ids = world * n, ids + world * ids_stride
    num = tl.load(total + world)
    for first in range(tl.program_id(0) % programs * BLOCK, num, programs * BLOCK):
        k = first + tl.arange(0, BLOCK)
        live = k < num
        agent = tl.load(seeker + row + k, mask=live, other=0)
        w = tl.load(word + row + k, mask=live, other=0)
        bucket = world * buckets + tl.load(seat + row + agent, mask=live, other=0) * per + (w >> shift).to(tl.int32)
        many = tl.load(count + bucket, mask=live, other=0)
        own = agent.to(tl.int64)
        if HAS_IDS:
            own = tl.load(own_ids + agent, mask=live, other=0)
        j = tl.load(head + bucket, mask=live, other=0)
        lower = tl.zeros((BLOCK,), tl.int32)
        for _ in range(tl.max(many)):
            there = j > 0
            other = tl.load(word + row + j - 1, mask=there, other=0)
            name = tl.load(seeker + row + j - 1, mask=there, other=0).to(tl.int64)
            if HAS_IDS:
                name = tl.load(own_ids + name, mask=there, other=0)
            lower += (there & ((other < w) | ((other == w) & (name < own)))).to(tl.int32)
            j = tl.load(after + row + j - 1, mask=there, other=0)
        place = tl.load(end + bucket, mask=live, other=0) - many + lower
        tl.store(order + row + place, k, mask=live)
        tl.store(rank + row + k, place, mask=live)


@triton.jit
def _form_join_kernel(
    new_who,
    new_until,
    seat,
    lasts,
    ids,
    step,
    count,
    end,
    total,
    seeker,
    word,
    order,
    rank,
    n,
    buckets,
    per,
    ids_stride,
    programs,
    longest,
    FOREVER: tl.constexpr,
    SLOTS: tl.constexpr,
    SIDES: tl.constexpr,
    HAS_IDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    world = (tl.program_id(0) // programs).to(tl.int64)
    row, own_ids = world * n, ids + world * ids_stride
    num, now = tl.load(total + world), tl.load(step)
    for first in range(tl.program_id(0) % programs * BLOCK, num, programs * BLOCK):
        k = first + tl.arange(0, BLOCK)
        live = k < num
        agent = tl.load(seeker + row + k, mask=live, other=0).to(tl.int64)
        pool = tl.load(seat + row + agent, mask=live, other=0)
        head = world * buckets + pool * per
        mine = tl.load(rank + row + k, mask=live, other=0)
        mine -= tl.load(end + head, mask=live, other=0) - tl.load(count + head, mask=live, other=0)
        if SIDES:
            head = world * buckets + (pool ^ 1) * per
        else:
            mine = mine ^ 1
        goal = mine + tl.load(end + head, mask=live, other=0) - tl.load(count + head, mask=live, other=0)
        found = live & (goal < tl.load(end + head + per - 1, mask=live, other=0))
        there = tl.load(order + row + goal, mask=found, other=0)
        other = tl.load(seeker + row + there, mask=found, other=0).to(tl.int64)
        first_one = agent < other
        if HAS_IDS:
            own = tl.load(own_ids + agent, mask=found, other=0)
            first_one = own < tl.load(own_ids + other, mask=found, other=0)
        w = tl.load(word + row + tl.where(first_one, k, there), mask=found, other=0)
        days = tl.load(lasts + row + tl.where(first_one, agent, other), mask=found, other=0.0)
        part = ((w & 0xFFFF).to(tl.float32) + 0.5) * 0.0000152587890625
        steps = tl.minimum(tl.maximum(tl.floor(days + part), 0.0), longest).to(tl.int64)
        last = tl.minimum(now + steps, FOREVER).to(tl.int32)
        free = tl.full((BLOCK,), SLOTS, tl.int32)
        known = ~found
        slots = (row + agent) * SLOTS
        for back in tl.static_range(SLOTS):
            slot = SLOTS - 1 - back
            taken = tl.load(new_until + slots + slot, mask=found, other=0).to(tl.int64) > now
            known = known | (taken & (tl.load(new_who + slots + slot, mask=found, other=0).to(tl.int64) == other))
            free = tl.where(taken, free, slot)
        into = ~known & (free < SLOTS)
        tl.store(new_who + slots + free, other.to(tl.int32), mask=into)
        tl.store(new_until + slots + free, last, mask=into)


def form_ties(
    who: torch.Tensor,
    until: torch.Tensor,
    seat: torch.Tensor,
    lasts: torch.Tensor,
    ids: torch.Tensor,
    key: torch.Tensor,
    step: torch.Tensor,
    draw: torch.Tensor,
    stream: int,
    num_pools: int,
    sides: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`_forming.form_ties`."""
    worlds, n, slots = who.shape
    who, until, seat, lasts = who.contiguous(), until.contiguous(), seat.contiguous(), lasts.contiguous()
    ids, key, device = ids.contiguous(), key.contiguous(), who.device
    new_who, new_until = torch.empty_like(who), torch.empty_like(until)
    if not who.numel():
        return new_who, new_until, torch.zeros(worlds, 2, dtype=torch.int32, device=device)
    per = triton.next_power_of_2(max(1, n // (_PER_BUCKET * num_pools)))
    shift, buckets = 33 - per.bit_length(), per * num_pools
    zeros = torch.zeros((2 * buckets + 3) * worlds, dtype=torch.int32, device=device)  # one launch for all
    bad, count, head, total = zeros.split([2 * worlds, worlds * buckets, worlds * buckets, worlds])
    notes = torch.empty(worlds, n, dtype=torch.int16, device=device)
    word = torch.empty(worlds, n, dtype=torch.int64, device=device)
    seeker, after, order, rank = torch.empty(4, worlds, n, dtype=torch.int32, device=device)
    stride, named = ids.shape[1] if ids.numel() and ids.shape[0] > 1 else 0, ids.numel() > 0
    _form_list_kernel[(worlds * triton.cdiv(n, _SIZE),)](
        who,
        until,
        new_who,
        new_until,
        seat,
        lasts,
        ids,
        key,
        draw,
        bad,
        notes,
        count,
        head,
        total,
        seeker,
        word,
        after,
        n,
        buckets,
        per,
        shift,
        stream,
        stride,
        NO_ROOM=NO_ROOM,
        SLOTS=slots,
        HAS_IDS=named,
        SIZE=_SIZE,
        LANES=_LANES,
    )
    end = count.view(worlds, buckets).cumsum(dim=1, dtype=torch.int32)
    programs = min(triton.cdiv(n, _BLOCK), max(1, _PROGRAMS // worlds))
    grid = (worlds * programs,)
    _form_rank_kernel[grid](
        seat,
        ids,
        count,
        end,
        head,
        total,
        seeker,
        word,
        after,
        order,
        rank,
        n,
        buckets,
        per,
        shift,
        stride,
        programs,
        HAS_IDS=named,
        BLOCK=_BLOCK,
    )
    _form_join_kernel[grid](
        new_who,
        new_until,
        seat,
        lasts,
        ids,
        step,
        count,
        end,
        total,
        seeker,
        word,
        order,
        rank,
        n,
        buckets,
        per,
        stride,
        programs,
        LONGEST,
        FOREVER=FOREVER,
        SLOTS=slots,
        SIDES=sides,
        HAS_IDS=named,
        BLOCK=_BLOCK,
        enable_fp_fusion=False,
    )
    return new_who, new_until, bad.view(worlds, 2)
