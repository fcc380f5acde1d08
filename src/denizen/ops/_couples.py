"""Seekers in pairs by lot: whoever has the lowest numbers of a pool pair up first.

Legend: N agents, W worlds. A pool is a whole number; agents with a negative one seek nobody. Within a pool agents are
ranked by a random word, equal words by id, so pairs depend on identities and not on places.
"""

import torch
from torch import Tensor

from denizen.ops._library import fold_worlds, register, unfold_worlds, variant, vmap_rule


def _couples(pool: Tensor, word: Tensor, ids: Tensor, num_pools: int, sides: bool) -> Tensor:
    """Place of each seeker's partner: int32 `[W, N]`, -1 for who seeks none or finds none.

    Args:
        pool: int32 `[W, N]`, below num_pools.
        word: int64 `[W, N]` in [0, 2**32).
        ids: int64 `[1 or W, N]`, or empty for 0 … N - 1.
        num_pools: number of pools.
        sides: False pairs ranks 2k and 2k + 1 of each pool; True pairs rank k of pool 2j with rank k of pool 2j + 1.
    """
    worlds, n = pool.shape
    if not n:
        return torch.empty_like(pool)
    place = torch.arange(n, device=pool.device)
    seat = torch.where(pool < 0, num_pools, pool).to(torch.int64)  # who seeks nobody is last
    key = (seat << 32) | word
    order = torch.argsort(ids, dim=1, stable=True).expand(worlds, -1) if ids.numel() else place.expand(worlds, -1)
    order = order.gather(1, torch.argsort(key.gather(1, order), dim=1, stable=True))
    # Ranks within a pool, by where it begins and ends in that order.
    counts = torch.zeros(worlds, num_pools + 1, dtype=torch.int64, device=pool.device)
    counts.scatter_add_(1, seat, torch.ones_like(seat))
    end = counts.cumsum(dim=1)
    seat = seat.gather(1, order)
    rank = place - (end - counts).gather(1, seat)
    there, rank = (seat ^ 1, rank) if sides else (seat, rank ^ 1)
    there = torch.where(seat < num_pools, there, num_pools)
    found = (seat < num_pools) & (rank < counts.gather(1, there))
    goal = ((end - counts).gather(1, there) + rank).clamp(max=n - 1)
    partner = torch.where(found, order.gather(1, goal), -1).to(torch.int32)
    return torch.empty_like(partner).scatter_(1, order, partner)


@register
def couples(pool: Tensor, word: Tensor, ids: Tensor, num_pools: int, sides: bool) -> Tensor:
    """Place of each seeker's partner: int32 `[W, N]`; see `_couples`."""
    if variant(pool.device) == "numba":
        from denizen.ops import _cpu_couples

        return _cpu_couples.couples(pool, word, ids, num_pools, sides)
    if variant(pool.device) == "triton":
        from denizen.ops import _cuda_couples

        return _cuda_couples.couples(pool, word, ids, num_pools, sides)
    return _couples(pool, word, ids, num_pools, sides)


@torch.library.register_fake("denizen::couples")
def _(pool, word, ids, num_pools, sides):
    return pool.new_empty(pool.shape)


@vmap_rule("couples")
def _(info, in_dims, pool, word, ids, num_pools, sides):
    batch = info.batch_size
    pool, word = fold_worlds(pool, in_dims[0], batch), fold_worlds(word, in_dims[1], batch)
    if in_dims[2] is not None:
        ids = fold_worlds(ids, in_dims[2], batch)
    return unfold_worlds(couples(pool, word, ids, num_pools, sides), batch), 0
