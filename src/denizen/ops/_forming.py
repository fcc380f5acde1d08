"""New ties by lot: seekers are paired within pools, and each pair takes a free slot on both sides.

Legend: N agents, W worlds, K slots each, as in `_slots`. The reference is one op after the other; fast variants are one
op that looks at all once and after that at seekers alone. A relaxed run, whose slots are real, has the ops apart.
"""

import torch
from torch import Tensor

from denizen.ops._couples import couples
from denizen.ops._draws import draw_words
from denizen.ops._library import fold_worlds, register, unfold_worlds, variant, vmap_rule
from denizen.ops._slots import FOREVER, NO_ROOM, Begun, folded_slots, join

LONGEST = 2.0**30  # steps


def _ends(lasts: Tensor, word: Tensor, step: Tensor) -> Tensor:
    """First step without a tie that forms now: int64 `[W, N]`. Low bits of the word round, high ones rank."""
    part = ((word & 0xFFFF).to(torch.float32) + 0.5) * 2.0**-16
    steps = torch.floor(lasts + part)
    return (step + steps.clamp(0, LONGEST).to(torch.int64)).clamp(max=FOREVER)


def _form(
    who: Tensor,
    until: Tensor,
    seat: Tensor,
    lasts: Tensor,
    ids: Tensor,
    key: Tensor,
    step: Tensor,
    draw: Tensor,
    stream: int,
    num_pools: int,
    sides: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """One op after the other; arguments as `form_ties`, in any dtype of slots."""
    word = draw_words(ids, seat.shape[1], key, draw, stream)
    partner = couples(seat, word, ids, num_pools, sides)
    bad = torch.stack([(seat == NO_ROOM).any(dim=1), (~(lasts >= 0)).any(dim=1)], dim=1).to(torch.int32)
    return *join(who, until, partner.to(who.dtype), _ends(lasts, word, step).to(until.dtype), ids, step), bad


@register
def form_ties(
    who: Tensor,
    until: Tensor,
    seat: Tensor,
    lasts: Tensor,
    ids: Tensor,
    key: Tensor,
    step: Tensor,
    draw: Tensor,
    stream: int,
    num_pools: int,
    sides: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Ties with new partners in free slots.

    Args:
        who: int32 `[W, N, K]`.
        until: int32 `[W, N, K]`.
        seat: int32 `[W, N]`: pool in which an agent seeks, -1 for who seeks nobody, `NO_ROOM`.
        lasts: float32 `[W, N]` in steps, which are rounded by lot; that of the one with the lower id holds.
        ids: int64 `[1 or W, N]`, or empty for 0 … N - 1.
        key: int64 `[W, 2]`.
        step: int64 0-d: a slot is taken where ``until > step``.
        draw: int64 0-d: step of the draws.
        stream: of the lot.
        num_pools: number of pools.
        sides: as `couples`.

    Returns:
        The new `who` and `until`, and int32 `[W, 2]`: whether somebody had no room, and whether a duration was negative
        or NaN.
    """
    arguments = (who, until, seat, lasts, ids, key, step, draw, stream, num_pools, sides)
    if variant(who.device) == "triton":
        from denizen.ops import _cuda_forming

        return _cuda_forming.form_ties(*arguments)
    if variant(who.device) == "numba":
        from denizen.ops import _cpu_forming

        return _cpu_forming.form_ties(*arguments)
    return _form(*arguments)


@torch.library.register_fake("denizen::form_ties")
def _(who, until, seat, lasts, ids, key, step, draw, stream, num_pools, sides):
    bad = seat.new_empty(len(seat), 2, dtype=torch.int32)
    return torch.empty_like(who), torch.empty_like(until), bad


@vmap_rule("form_ties")
def _(info, in_dims, who, until, seat, lasts, ids, key, step, draw, stream, num_pools, sides):
    batch = info.batch_size
    who, until = folded_slots(batch, in_dims[0], who), folded_slots(batch, in_dims[1], until)
    seat, lasts = fold_worlds(seat, in_dims[2], batch), fold_worlds(lasts, in_dims[3], batch)
    ids = ids if in_dims[4] is None else fold_worlds(ids, in_dims[4], batch)
    key = fold_worlds(key, in_dims[5], batch)
    begun = Begun(step, in_dims[6], len(who))
    more = (seat, lasts, ids, key, begun.now, draw, stream, num_pools, sides)
    who, until, bad = form_ties(who, begun.since(until), *more)
    return tuple(unfold_worlds(part, batch) for part in (who, begun.back(until), bad)), (0, 0, 0)


def form(
    who: Tensor,
    until: Tensor,
    seat: Tensor,
    lasts: Tensor,
    ids: Tensor,
    key: Tensor,
    step: Tensor,
    draw: Tensor,
    stream: int,
    num_pools: int,
    sides: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Ties with new partners in free slots: see `form_ties`, and `Ties.form` for a relaxed run's real slots."""
    one = who.dtype == until.dtype == torch.int32
    return (form_ties if one else _form)(who, until, seat, lasts, ids, key, step, draw, stream, num_pools, sides)
