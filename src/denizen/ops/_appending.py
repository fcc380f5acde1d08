"""Rows of events: those to whom something happened are written one behind the other, into buffers of a fixed size.

Legend: W worlds, N agents, C rows of a world.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from denizen.ops._attribution import attribute
from denizen.ops._library import variant

MOST_COLUMNS = 6
TOGETHER = 4  # steps whose rows are written at once


class Race(NamedTuple):
    """What finds out who caused an event, for its rows alone; see `denizen.ops.attribute`.

    Attributes:
        values, where, weights, in_ptr, in_idx, streams: of each graph, as that op takes them.
        factor, ids, key, step: as that op takes them.
        by, layer: numbers of the columns that it fills.
    """

    values: list[Tensor]
    where: list[Tensor]
    factor: Tensor
    weights: list[Tensor]
    in_ptr: list[Tensor]
    in_idx: list[Tensor]
    ids: Tensor
    key: Tensor
    step: Tensor
    streams: list[int]
    by: int
    layer: int


class Happened(NamedTuple):
    """An event in one step.

    Attributes:
        mask: int8 `[W, N]`.
        columns: `[W, N]` each, up to `MOST_COLUMNS`; None for those that the race gives.
        race: gives two of the columns.
    """

    mask: Tensor
    columns: Sequence[Tensor | None]
    race: Race | None = None

    @property
    def alone(self) -> bool:
        """Whether its rows are written without those of other steps: it has columns of its own."""
        return any(column is not None for column in self.columns)


def append_events(
    count: Tensor, rows: Sequence[Tensor], ids: Tensor, step: Tensor, by: int, steps: Sequence[Happened]
) -> None:
    """Append a row for each agent of a mask. Where there is no room left, only the count goes on.

    On the CPU the rows of a step follow the places of agents; on a GPU the rows of a call have no order.

    Args:
        count: int64 `[W]`: rows so far, and those that found no room.
        rows: `[W, C]` each: int64 identities, int64 steps, and the columns.
        ids: int64 `[W or 1, N]`, or empty for 0 … N - 1.
        step: int64 `[]`: number of the first step.
        by: number of the column that holds places of agents, -1 for nobody, which become identities; -1 for none.
        steps: what happened in one step after the other, up to `TOGETHER`; those that are `alone` come alone.
    """
    if not steps[0].mask.numel():
        return
    if variant(count.device) == "triton":
        from denizen.ops import _cuda_appending

        _cuda_appending.append_events(count, rows, ids, step, by, steps)
        return
    for turn, (mask, columns, race) in enumerate(steps):
        if race is not None:
            found = dict(zip((race.by, race.layer), attribute(*race[:-2]), strict=True))
            columns = [found.get(number, column) for number, column in enumerate(columns)]
        there = [column for column in columns if column is not None]
        append = _append_found if mask.device.type == "cpu" else _append_all
        append(count, rows, mask, ids, step + turn, there, by)


def _append_found(
    count: Tensor,
    rows: Sequence[Tensor],
    mask: Tensor,
    ids: Tensor,
    step: Tensor,
    columns: Sequence[Tensor],
    by: int,
) -> None:
    """By the places that `nonzero` finds, which asks for their number."""
    world, agent = mask.nonzero(as_tuple=True)
    happened = torch.bincount(world, minlength=len(mask))
    rank = torch.arange(len(world), device=mask.device) - (happened.cumsum(0) - happened)[world]
    place = count[world] + rank
    fits = place < rows[0].shape[1]
    world, agent, place = world[fits], agent[fits], place[fits]
    who = agent if ids.numel() == 0 else ids.expand(len(mask), -1)[world, agent]
    found = [who, step.expand_as(who)]
    for number, column in enumerate(columns):
        value = column[world, agent]
        found.append(_identity(value, ids, world, len(mask)) if number == by else value)
    for row, value in zip(rows, found, strict=True):
        row[world, place] = value.to(row.dtype)
    count += happened


def _identity(place: Tensor, ids: Tensor, world: Tensor, worlds: int) -> Tensor:
    place = place.long()
    if ids.numel() == 0:
        return place
    return torch.where(place >= 0, ids.expand(worlds, -1)[world, place.clamp(min=0)], -1)


def _append_all(
    count: Tensor,
    rows: Sequence[Tensor],
    mask: Tensor,
    ids: Tensor,
    step: Tensor,
    columns: Sequence[Tensor],
    by: int,
) -> None:
    """By the places of all agents, of fixed shapes: those without a row write to a place behind the rows."""
    worlds, num = mask.shape
    chosen = mask != 0
    place = count[:, None] + chosen.cumsum(1) - 1
    capacity = rows[0].shape[1]
    fits = chosen & (place < capacity)
    place = torch.where(fits, place, capacity)
    who = (torch.arange(num, device=mask.device)[None] if ids.numel() == 0 else ids).expand(worlds, -1)
    found = [who, step.expand(worlds, num), *columns]
    for number, (row, value) in enumerate(zip(rows, found, strict=True)):
        if number == by + 2 and by >= 0:
            value = value.long()
            if ids.numel():
                value = torch.where(value >= 0, who.gather(1, value.clamp(min=0)), -1)
        wide = torch.cat([row, row[:, :1]], dim=1)  # with a place for all who have no row
        row.copy_(wide.scatter(1, place, value.to(row.dtype))[:, :capacity])
    count += chosen.sum(1)
