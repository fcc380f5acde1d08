"""Sums over pairs of agents that are near each other, by a list of cells. The reference in plain torch is what the fast
variants must equal bit for bit.

Legend: W worlds, N agents, D axes, C cells. Space is cut into `counts` cells along each axis. Those of the last axis,
which lie beside each other in memory, may be shorter than the radius, which then spans `reach_of` them; those of the
others are not, so that neighbours lie in the same row of cells or in adjacent ones. An axis too short for three radii
has one cell. Agents are laid out by (cell, id), each at its slot. The canonical order of an agent's neighbours is by
row, in the order of the offsets -1, 0, 1 with the last of these axes fastest, then along the row, then by id. Sums of
any real values are added up in that order, by every variant and in any layout of the agents.

A neighbour is another agent in such a cell whose distance, in float32 and on a torus through the nearest side, is at
most the radius.
"""

import math

import torch
from torch import Tensor

from denizen.ops import _pair_program
from denizen.ops._library import fold_worlds, register, reverse_only, unfold_worlds, variant, vmap_rule

_PAIRS = 2**22  # pairs that the reference holds at once


def reach_of(length: float, count: int, radius: float) -> int:
    """How many cells of an axis the radius spans, at least; 0 where the axis has one cell."""
    return 0 if count == 1 else math.ceil(radius * count / length - 1e-9)  # 3 cells of a third: 1, however it rounds


# --- who is in which cell ---------------------------------------------------------------------------------------------


def _bin(
    position: Tensor, key: Tensor, present: Tensor | None, size: list[float], counts: list[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    worlds, num, _ = position.shape
    cells = math.prod(counts)
    cell = torch.zeros(worlds, num, dtype=torch.int64, device=position.device)
    bad = torch.zeros_like(cell, dtype=torch.bool)
    for axis, (length, count) in enumerate(zip(size, counts, strict=True)):
        x = position[..., axis]
        out = ~((x >= 0) & (x <= length))  # holds for NaN too
        bad = bad | out
        place = torch.where(out, 0.0, x).to(torch.float64) * (count / length)
        cell = cell * count + place.to(torch.int64).clamp(max=count - 1)
    if present is not None:
        there = present.expand(worlds, num) != 0
        cell, bad = torch.where(there, cell, cells), bad & there
    ids = torch.arange(num, device=cell.device).expand(worlds, num) if key.numel() == 0 else key.expand(worlds, num)
    by_id = torch.argsort(ids, dim=1, stable=True)
    order = by_id.gather(1, torch.argsort(cell.gather(1, by_id), dim=1, stable=True))
    number = torch.zeros(worlds, cells + 3, dtype=torch.int64, device=cell.device)
    number.scatter_add_(1, cell + 1, torch.ones_like(cell))
    number[:, -1] = bad.sum(dim=1)
    place = position.gather(1, order[..., None].expand_as(position)) + 0.0  # no -0.0
    return (
        order.to(torch.int32),
        number.cumsum(dim=1).to(torch.int32),
        cell.gather(1, order).to(torch.int32),
        place.transpose(1, 2).contiguous(),
    )


@register
def bin_agents(
    position: Tensor, key: Tensor, present: Tensor | None, size: list[float], counts: list[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Agents laid out by cell and id.

    Args:
        position: float32 `[W, N, D]`, from 0 to `size` along each axis.
        key: int64 `[W or 1, N]` ids, or empty: their places.
        present: `[W or 1, N]`; agents with 0 lie in no cell, at the last slots in any order.
        size: length of each axis, a float32.
        counts: cells along each axis.

    Returns:
        order: int32 `[W, N]`: the agent at each slot.
        start: int32 `[W, C + 3]`: slots of cell c are start[c] … start[c + 1] - 1, the last cell being that of who is
            not there; the last number is beyond N where a position was NaN or outside.
        cell: int32 `[W, N]`: of each slot.
        place: float32 `[W, D, N]`: position of each slot.
    """
    if variant(position.device) == "numba":
        from denizen.ops import _cpu_pairs

        return _cpu_pairs.bin_agents(position, key, present, size, counts)
    if variant(position.device) == "triton":
        from denizen.ops import _cuda_pairs

        return _cuda_pairs.bin_agents(position, key, present, size, counts)
    return _bin(position, key, present, size, counts)


@torch.library.register_fake("denizen::bin_agents")
def _(position, key, present, size, counts):  # type: ignore[no-untyped-def]
    worlds, num, dims = position.shape

    def empty(*shape: int) -> Tensor:
        return position.new_empty(shape, dtype=torch.int32)

    start = empty(worlds, math.prod(counts) + 3)
    return empty(worlds, num), start, empty(worlds, num), position.new_empty(worlds, dims, num)


@vmap_rule("bin_agents")
def _(info, in_dims, position, key, present, size, counts):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    position, key, present = (
        fold_worlds(t, dim, batch) for t, dim in zip((position, key, present), in_dims[:3], strict=True)
    )
    made = bin_agents(position, key, present, size, counts)
    return tuple(unfold_worlds(t, batch) for t in made), (0, 0, 0, 0)


# --- sums over neighbours ---------------------------------------------------------------------------------------------


def _near(
    cell: Tensor, place: Tensor, rows: slice, size: list[float], counts: list[int], torus: bool, radius: float
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Of receivers at some slots and all others, `[W, rows, N]`: offsets, whether they are neighbours, their order."""
    offsets = []
    inside = (cell < math.prod(counts))[:, rows, None] & (cell < math.prod(counts))[:, None]
    for axis, length in enumerate(size):
        apart = place[:, axis, None] - place[:, axis, rows, None]
        if torus:
            apart = torch.where(apart > length / 2, apart - length, apart)
            apart = torch.where(apart < -length / 2, apart + length, apart)
        offsets.append(apart)
    rank, left = torch.zeros_like(inside, dtype=torch.int64), cell.to(torch.int64)
    unit = 1
    for length, count in reversed(list(zip(size, counts, strict=True))):
        if count > 1:
            reach, step = reach_of(length, count, radius), (left % count)[:, None] - (left % count)[:, rows, None]
            if torus:
                step = (step + count // 2) % count - count // 2
            inside = inside & (step.abs() <= reach)
            rank = rank + (step + reach) * unit
            unit *= 2 * reach + 1
        left = left // count
    slot = torch.arange(cell.shape[1], device=cell.device)
    inside = inside & (_square(offsets) <= radius * radius) & (slot[rows, None] != slot[None])
    return offsets, inside, rank * len(slot) + slot


def _square(offsets: list[Tensor]) -> Tensor:
    total = offsets[0] * offsets[0]
    for apart in offsets[1:]:
        total = total + apart * apart
    return total


def _sum_pairs(
    theirs: Tensor,
    own: Tensor,
    shared: Tensor,
    binned: tuple[Tensor, Tensor, Tensor, Tensor],
    size: list[float],
    counts: list[int],
    torus: bool,
    radius: float,
    program: str,
) -> Tensor:
    order, start, cell, place = binned
    made = _pair_program.read(program)
    worlds, num = order.shape
    agent = order.to(torch.int64)
    told = [f.gather(1, agent[..., None].expand(worlds, num, f.shape[2])) for f in (theirs, own)]
    out = torch.zeros(worlds, num, len(made.outputs), device=place.device)
    block = max(1, _PAIRS // max(1, worlds * num))
    for first in range(0, num, block):
        rows = slice(first, min(first + block, num))
        offsets, hit, rank = _near(cell, place, rows, size, counts, torus, radius)
        inputs = [*offsets, _square(offsets), *told[0][:, None].unbind(3), *told[1][:, rows, None].unbind(3)]
        inputs += [one[:, None, None] for one in shared.unbind(1)]
        value = torch.stack([one.expand(hit.shape) for one in _pair_program.evaluate(made, inputs)], dim=3)
        value = torch.where(hit[..., None], value, 0.0)
        turn = torch.argsort(torch.where(hit, rank, torch.iinfo(torch.int64).max), dim=2)
        value = value.gather(2, turn[..., None].expand_as(value)).flatten(0, 2)
        # One after the other within a segment, on every device. What is no neighbour comes last and adds 0.
        ends = torch.arange(0, len(value) + 1, num, device=place.device)
        total = torch.segment_reduce(value, "sum", offsets=ends, axis=0, unsafe=True)
        total = total.reshape(worlds, -1, value.shape[1])
        out.scatter_(1, agent[:, rows, None].expand_as(total), total)
    return torch.where((start[:, -1] != num)[:, None, None], torch.nan, out)


@reverse_only
@register
def sum_pairs(
    position: Tensor,
    theirs: Tensor,
    own: Tensor,
    shared: Tensor,
    order: Tensor,
    start: Tensor,
    cell: Tensor,
    place: Tensor,
    size: list[float],
    counts: list[int],
    torus: bool,
    radius: float,
    program: str,
) -> Tensor:
    """Sums over each agent's neighbours of a function of the two.

    Args:
        position: `[W, N, D]`, of which gradients are taken; the values come from `place`.
        theirs: float32 `[W, N, F]`: what the function takes of a neighbour.
        own: float32 `[W, N, M]`: what it takes of the receiver.
        shared: float32 `[W, S]`: what it takes besides.
        order: of `bin_agents`, as the next three.
        start: of `bin_agents`.
        cell: of `bin_agents`.
        place: of `bin_agents`.
        size: length of each axis, a float32.
        counts: cells along each axis, as `bin_agents` had them.
        torus: whether each side continues on the opposite one.
        radius: a float32; no cell is shorter, but for those of the last axis.
        program: the function, a text of `_pair_program`.

    Returns:
        float32 `[W, N, K]`, one for each output of the function; 0 for agents who are not there, NaN throughout a world
        with a position that was NaN or outside.
    """
    binned, spec = (order, start, cell, place), (size, counts, torus, radius)
    if variant(position.device) == "numba":
        from denizen.ops import _cpu_pairs

        return _cpu_pairs.sum_pairs(theirs, own, shared, binned, *spec, program)
    if variant(position.device) == "triton":
        from denizen.ops import _cuda_pairs

        return _cuda_pairs.sum_pairs(theirs, own, shared, binned, *spec, program)
    return _sum_pairs(theirs, own, shared, binned, *spec, program)


@torch.library.register_fake("denizen::sum_pairs")
def _(position, theirs, own, shared, order, start, cell, place, size, counts, torus, radius, program):  # type: ignore[no-untyped-def]
    worlds, num = order.shape
    return position.new_empty(worlds, num, len(_pair_program.read(program).outputs), dtype=torch.float32)


@vmap_rule("sum_pairs")
def _(info, in_dims, *args):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    tensors = [fold_worlds(t, dim, batch) for t, dim in zip(args[:8], in_dims[:8], strict=True)]
    return unfold_worlds(sum_pairs(*tensors, *args[8:]), batch), 0


def _context(ctx, inputs, output):  # type: ignore[no-untyped-def]
    ctx.spec = inputs[8:]
    ctx.save_for_backward(*inputs[:8])


def _backward(ctx, grad):  # type: ignore[no-untyped-def]
    position, theirs, own, shared, *binned = ctx.saved_tensors
    *spec, program = ctx.spec
    known = torch.cat([theirs, own, grad], dim=2)
    found = sum_pairs(position, known, known, shared, *binned, *spec, _pair_program.backward(program))
    cuts = [position.shape[2], theirs.shape[2], own.shape[2], shared.shape[1]]
    of_position, of_theirs, of_own, of_shared = found.split(cuts, dim=2)
    return of_position, of_theirs, of_own, of_shared.sum(dim=1), *[None] * 9


torch.library.register_autograd("denizen::sum_pairs", _backward, setup_context=_context)


# --- the nearest neighbour --------------------------------------------------------------------------------------------


def _nearest(
    binned: tuple[Tensor, Tensor, Tensor, Tensor], size: list[float], counts: list[int], torus: bool, radius: float
) -> Tensor:
    order, start, cell, place = binned
    worlds, num = order.shape
    agent = order.to(torch.int64)
    out = torch.full((worlds, num), -1, dtype=torch.int64, device=place.device)
    block = max(1, _PAIRS // max(1, worlds * num))
    for first in range(0, num, block):
        rows = slice(first, min(first + block, num))
        offsets, hit, rank = _near(cell, place, rows, size, counts, torus, radius)
        apart = torch.where(hit, _square(offsets), torch.inf)
        best = apart.min(dim=2, keepdim=True).values
        last = torch.iinfo(torch.int64).max
        slot = torch.where(hit & (apart == best), rank, last).argmin(dim=2)
        found = torch.where(hit.any(dim=2), agent.gather(1, slot), -1)
        out.scatter_(1, agent[:, rows], found)
    return torch.where((start[:, -1] != num)[:, None], -2, out)


@register
def nearest_agent(
    order: Tensor,
    start: Tensor,
    cell: Tensor,
    place: Tensor,
    size: list[float],
    counts: list[int],
    torus: bool,
    radius: float,
) -> Tensor:
    """The nearest neighbour of each agent: int64 `[W, N]`; arguments as for `sum_pairs`.

    Of several at one distance it is the first in canonical order; -1 for agents without a neighbour, -2 throughout a
    world with a position that was NaN or outside.
    """
    binned, spec = (order, start, cell, place), (size, counts, torus, radius)
    if variant(place.device) == "numba":
        from denizen.ops import _cpu_pairs

        return _cpu_pairs.nearest_agent(binned, *spec)
    if variant(place.device) == "triton":
        from denizen.ops import _cuda_pairs

        return _cuda_pairs.nearest_agent(binned, *spec)
    return _nearest(binned, *spec)


@torch.library.register_fake("denizen::nearest_agent")
def _(order, start, cell, place, size, counts, torus, radius):  # type: ignore[no-untyped-def]
    return order.new_empty(order.shape, dtype=torch.int64)


@vmap_rule("nearest_agent")
def _(info, in_dims, *args):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    tensors = [fold_worlds(t, dim, batch) for t, dim in zip(args[:4], in_dims[:4], strict=True)]
    return unfold_worlds(nearest_agent(*tensors, *args[4:]), batch), 0
