"""Ties in slots: how many are taken, sums over those who are in them, and new ones put in.

Legend: W worlds, N agents, K slots each. `who` int32 `[W, N, K]` are places of agents, `until` int32 `[W, N, K]` the
first step in which a slot is free again; it is taken where ``until > step``. On the CPU each is one pass, compiled by
numba; on CUDA they are plain torch, which fuses.
"""

import torch
from torch import Tensor

from denizen.ops._library import register, unfold_worlds, variant, vmap_rule

FOREVER = 2**31 - 1
NO_ROOM = -2  # seat of who seeks and has no free slot
_NARROW = (torch.int8, torch.float32)


def _taken(until: Tensor, step: Tensor) -> Tensor:
    """How many slots are taken: int32 `[W, N]`."""
    total = torch.zeros(until.shape[:-1], dtype=torch.int32, device=until.device)
    for slot in range(until.shape[-1]):  # a compiler makes one pass with others of it, where a sum is a pass of its own
        total = total + (until[..., slot] > step)
    return total


def _seated(until: Tensor, seat: Tensor, wanted: Tensor, step: Tensor) -> Tensor:
    """Seats of those who want one: int32 `[W, N]`, `NO_ROOM` for those without a free slot, -1 for the others."""
    degree = _taken(until, step)
    own = seat if seat.numel() else torch.zeros_like(degree)
    return torch.where(wanted != 0, torch.where(degree < until.shape[-1], own, NO_ROOM), -1).to(torch.int32)


def _sum_slots(values: Tensor, who: Tensor, until: Tensor, step: Tensor) -> Tensor:
    """Sums over taken slots `[W, N]`: int32 of int8 values, int64 of wider ones, float32 of real ones (in float64)."""
    narrow, real = values.dtype in (torch.bool, torch.int8), values.dtype.is_floating_point
    wide = torch.float64 if real else torch.int32 if narrow else torch.int64
    known = who.flatten(1).clamp(0, values.shape[1] - 1)  # free slots may hold anything
    told = values.gather(1, known.long()).unflatten(1, who.shape[1:])
    total = torch.zeros(values.shape, dtype=wide, device=values.device)
    for slot in range(who.shape[2]):
        message = told[..., slot].to(wide)
        total = total + torch.where(until[..., slot] > step, message, torch.zeros_like(message))
    return total.to(torch.float32) if real else total


def _join(who: Tensor, until: Tensor, partner: Tensor, end: Tensor, ids: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """Ties with new partners in the first free slots.

    Args:
        who: `[W, N, K]`.
        until: `[W, N, K]`.
        partner: int32 `[W, N]`, -1 for none; one who is tied already is left out, and who has no free slot gets none.
        end: int32 `[W, N]`: the first step without the new tie; that of the one with the lower id holds.
        ids: int64 `[1 or W, N]`, or empty for 0 … N - 1.
        step: int64 0-d.

    Returns:
        The new `who` and `until`.
    """
    slots, other = who.shape[2], partner.clamp(min=0).to(torch.int64)
    own = ids.expand(len(who), -1) if ids.numel() else torch.arange(who.shape[1], device=who.device).expand_as(other)
    end = torch.where(own < (own.gather(1, other) if ids.numel() else other), end, end.gather(1, other))
    free = torch.full_like(partner, slots)
    known = partner < 0
    for slot in range(slots - 1, -1, -1):
        taken = until[..., slot] > step
        free = torch.where(taken, free, slot)
        known = known | (taken & (who[..., slot] == partner))
    into = ~known[..., None] & (torch.arange(slots, device=who.device) == free[..., None])
    return torch.where(into, partner[..., None], who), torch.where(into, end[..., None], until)


# --- registered with torch, for the CPU ------------------------------------------------------------------------------


@register
def taken_slots(until: Tensor, step: Tensor) -> Tensor:
    """How many slots are taken: int32 `[W, N]`; see `_taken`."""
    if variant(until.device) == "numba":
        from denizen.ops import _cpu_slots

        return _cpu_slots.taken(until, step)
    return _taken(until, step)


@torch.library.register_fake("denizen::taken_slots")
def _(until, step):
    return until.new_empty(until.shape[:-1], dtype=torch.int32)


@register
def seated_slots(until: Tensor, seat: Tensor, wanted: Tensor, step: Tensor) -> Tensor:
    """Seats of those who want one; see `_seated`.

    Args:
        until: int32 `[W, N, K]`.
        seat: int32 `[W, N]`, or empty: 0 for all.
        wanted: mask int8 `[W, N]`.
        step: int64 0-d.
    """
    if variant(until.device) == "numba":
        from denizen.ops import _cpu_slots

        return _cpu_slots.seated(until, seat, wanted, step)
    return _seated(until, seat, wanted, step)


@torch.library.register_fake("denizen::seated_slots")
def _(until, seat, wanted, step):
    return until.new_empty(until.shape[:-1])


@register
def sum_in_slots(values: Tensor, who: Tensor, until: Tensor, step: Tensor) -> Tensor:
    """Sums over taken slots `[W, N]`; see `_sum_slots`."""
    if variant(values.device) == "numba" and values.dtype in _NARROW:
        from denizen.ops import _cpu_slots

        return _cpu_slots.sum_slots(values, who, until, step)
    return _sum_slots(values, who, until, step)


@torch.library.register_fake("denizen::sum_in_slots")
def _(values, who, until, step):
    dtype = torch.int32 if values.dtype in (torch.bool, torch.int8) else torch.int64
    return values.new_empty(values.shape, dtype=torch.float32 if values.dtype.is_floating_point else dtype)


@register
def join_slots(
    who: Tensor, until: Tensor, partner: Tensor, end: Tensor, ids: Tensor, step: Tensor
) -> tuple[Tensor, Tensor]:
    """New ties in free slots; see `_join`."""
    if variant(who.device) == "numba":
        from denizen.ops import _cpu_slots

        return _cpu_slots.join(who, until, partner, end, ids, step)
    return _join(who, until, partner, end, ids, step)


@torch.library.register_fake("denizen::join_slots")
def _(who, until, partner, end, ids, step):
    return torch.empty_like(who), torch.empty_like(until)


def folded_slots(batch: int, dim: int | None, tensor: Tensor) -> Tensor:
    """Rows of all worlds of a batch, in front of any axes; what is empty stays so."""
    if not tensor.numel():  # ids left out
        return tensor
    rows = tensor.expand(batch, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return rows.flatten(0, 1)


class Begun:
    """Steps of worlds that began at different times, as those of environments do, counted from the present one."""

    def __init__(self, step: Tensor, dim: int | None, rows: int) -> None:
        """Args:
        step: int64 0-d, or along `dim` one for each of a batch.
        dim: None where all worlds share it.
        rows: worlds of the whole batch.
        """
        self.own = dim is not None
        self._step = step.repeat_interleave(rows // len(step)) if self.own else step
        self.now = torch.zeros_like(self._step[0]) if self.own else step

    def since(self, until: Tensor) -> Tensor:
        """`until` `[rows, …]`, counted from `now`."""
        return (until - self._along(until)).to(until.dtype) if self.own else until

    def back(self, until: Tensor) -> Tensor:
        """`until` as it was counted before `since`."""
        return (until + self._along(until)).clamp(max=FOREVER).to(until.dtype) if self.own else until

    def _along(self, until: Tensor) -> Tensor:
        return self._step.view(-1, *[1] * (until.dim() - 1))


def _rule(op, times):
    """A rule of vmap; `times` says which arguments are numbers of steps."""

    def rule(info, in_dims, *args):
        folded = [folded_slots(info.batch_size, dim, arg) for dim, arg in zip(in_dims[:-1], args[:-1], strict=True)]
        begun = Begun(args[-1], in_dims[-1], len(folded[0]))
        out = op(*(begun.since(arg) if k in times else arg for k, arg in enumerate(folded)), begun.now)
        if isinstance(out, Tensor):
            return unfold_worlds(out, info.batch_size), 0
        who, until = out
        return (unfold_worlds(who, info.batch_size), unfold_worlds(begun.back(until), info.batch_size)), (0, 0)

    return rule


vmap_rule("taken_slots")(_rule(taken_slots, (0,)))
vmap_rule("seated_slots")(_rule(seated_slots, (0,)))
vmap_rule("sum_in_slots")(_rule(sum_in_slots, (2,)))
vmap_rule("join_slots")(_rule(join_slots, (1, 3)))


def taken(until: Tensor, step: Tensor) -> Tensor:
    """How many slots are taken: int32 `[W, N]`."""
    return taken_slots(until, step) if _as_op(until) else _taken(until, step)


def seated(until: Tensor, seat: Tensor, wanted: Tensor, step: Tensor) -> Tensor:
    """Seats of those who want one; see `seated_slots`."""
    return (seated_slots if _as_op(until) else _seated)(until, seat, wanted, step)


def sum_slots(values: Tensor, who: Tensor, until: Tensor, step: Tensor) -> Tensor:
    """Sums over taken slots `[W, N]`; carries gradient."""
    whole = not values.dtype.is_floating_point
    as_op = _as_op(until) and (whole or not torch.is_grad_enabled())
    as_op = as_op or (until.is_cuda and until.dtype == torch.int32 and values.dtype in (torch.bool, torch.int8))
    return sum_in_slots(values, who, until, step) if as_op else _sum_slots(values, who, until, step)


def join(who: Tensor, until: Tensor, partner: Tensor, end: Tensor, ids: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """New ties in free slots; see `_join`."""
    return (join_slots if _as_op(who) else _join)(who, until, partner, end, ids, step)


def _as_op(slots: Tensor) -> bool:
    return slots.device.type == "cpu" and slots.dtype == torch.int32
