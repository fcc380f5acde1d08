"""Pairs of seekers on CUDA with Triton; the values of `_couples`.

No sort of all agents: seekers go into buckets by pool and by the first bits of their words, as linked lists that grow
in any order. A seeker's rank is what buckets before hold, plus those with a lower word in its own.
"""

import torch
import triton
import triton.language as tl

_BLOCK = 256
_PER_BUCKET = 16  # seekers, where all agents seek in one pool


@triton.jit
def _lanes(n, BLOCK: tl.constexpr):
    """(world, places, whether there is one) of this program."""
    blocks = tl.cdiv(n, BLOCK)
    return (tl.program_id(0) // blocks).to(tl.int64), (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def _couples_list_kernel(pool, word, count, head, after, partner, n, buckets, per, shift, BLOCK: tl.constexpr):
    world, i = _lanes(n, BLOCK)
    row = world * n + i
    p = tl.load(pool + row, mask=i < n, other=-1)
    tl.store(partner + row, tl.full((BLOCK,), -1, tl.int32), mask=i < n)
    seeks = p >= 0
    w = tl.load(word + row, mask=seeks, other=0)
    bucket = world * buckets + p * per + (w >> shift).to(tl.int32)
    tl.atomic_add(count + bucket, 1, mask=seeks, sem="relaxed")
    before = tl.atomic_xchg(head + bucket, i + 1, mask=seeks, sem="relaxed")
    tl.store(after + row, before, mask=seeks)


@triton.jit
def _couples_rank_kernel(
    pool,
    word,
    ids,
    count,
    end,
    head,
    after,
    order,
    rank,
    n,
    buckets,
    per,
    shift,
    ids_stride,
    HAS_IDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    world, i = _lanes(n, BLOCK)
    row = world * n + i
    p = tl.load(pool + row, mask=i < n, other=-1)
    seeks = p >= 0
    w = tl.load(word + row, mask=seeks, other=0)
    bucket = world * buckets + p * per + (w >> shift).to(tl.int32)
    many = tl.load(count + bucket, mask=seeks, other=0)
    own = i.to(tl.int64)
    if HAS_IDS:
        own = tl.load(ids + world * ids_stride + i, mask=seeks, other=0)
    j = tl.load(head + bucket, mask=seeks, other=0)
    lower = tl.zeros((BLOCK,), tl.int32)
    for _ in range(tl.max(many)):
        there = j > 0
        at = j - 1
        other = tl.load(word + world * n + at, mask=there, other=0)
        name = at.to(tl.int64)
        if HAS_IDS:
            name = tl.load(ids + world * ids_stride + at, mask=there, other=0)
        lower += (there & ((other < w) | ((other == w) & (name < own)))).to(tl.int32)
        j = tl.load(after + world * n + at, mask=there, other=0)
    place = tl.load(end + bucket, mask=seeks, other=0) - many + lower
    tl.store(order + world * n + place, i, mask=seeks)
    tl.store(rank + row, place, mask=seeks)


@triton.jit
def _couples_match_kernel(
    pool, count, end, order, rank, partner, n, buckets, per, SIDES: tl.constexpr, BLOCK: tl.constexpr
):
    world, i = _lanes(n, BLOCK)
    row = world * n + i
    p = tl.load(pool + row, mask=i < n, other=-1)
    seeks = p >= 0
    place = tl.load(rank + row, mask=seeks, other=0)
    first = world * buckets + p * per
    mine = place - (tl.load(end + first, mask=seeks, other=0) - tl.load(count + first, mask=seeks, other=0))
    if SIDES:
        first = world * buckets + (p ^ 1) * per
    else:
        mine = mine ^ 1
    begin = tl.load(end + first, mask=seeks, other=0) - tl.load(count + first, mask=seeks, other=0)
    found = seeks & (begin + mine < tl.load(end + first + per - 1, mask=seeks, other=0))
    other = tl.load(order + world * n + begin + mine, mask=found, other=-1)
    tl.store(partner + row, other, mask=found)


def couples(pool: torch.Tensor, word: torch.Tensor, ids: torch.Tensor, num_pools: int, sides: bool) -> torch.Tensor:
    """`_couples.couples`."""
    worlds, n = pool.shape
    pool, word, ids = pool.contiguous(), word.contiguous(), ids.contiguous()
    partner = torch.empty_like(pool)
    if not partner.numel():
        return partner
    per = triton.next_power_of_2(max(1, n // (_PER_BUCKET * num_pools)))
    shift, buckets = 33 - per.bit_length(), per * num_pools
    count, head = torch.zeros(2, worlds, buckets, dtype=torch.int32, device=pool.device)
    after, order, rank = torch.empty(3, worlds, n, dtype=torch.int32, device=pool.device)
    grid = (worlds * triton.cdiv(n, _BLOCK),)
    _couples_list_kernel[grid](pool, word, count, head, after, partner, n, buckets, per, shift, BLOCK=_BLOCK)
    end = count.cumsum(dim=1, dtype=torch.int32)
    stride, named = ids.shape[1] if ids.numel() and ids.shape[0] > 1 else 0, ids.numel() > 0
    sizes = n, buckets, per
    _couples_rank_kernel[grid](
        pool, word, ids, count, end, head, after, order, rank, *sizes, shift, stride, HAS_IDS=named, BLOCK=_BLOCK
    )
    _couples_match_kernel[grid](pool, count, end, order, rank, partner, *sizes, SIDES=sides, BLOCK=_BLOCK)
    return partner
