"""Between two kinds of agents: sums over those who belong to each of the other kind, and pairs drawn by lot.

Nothing here depends on the order in which agents lie: sums are exact, lots are keyed by identity.
"""

from typing import Any

import torch
from torch import Tensor

from denizen import ops
from denizen._arguments import whole
from denizen.errors import ModelError
from denizen.rng import Rng
from denizen.space._exact import exact

_MOST_GROUPS = 2**30 - 1  # two pools each, in an int32


def sum_by(group: Tensor, values: Tensor, num_groups: int, *, max: float | None = None) -> Tensor:
    """Sum of a value over the agents of each group: the wages that each firm pays, the sheep in each cell.

    Whole numbers are summed as such, real ones in fixed point: the same bits in any order. ``table[group]``, where
    everybody has a group, or `denizen.space.Grid.at` leads back from groups to agents.

    Args:
        group: whole numbers `[agents]`, 0 … num_groups - 1, such as each household's firm; -1 for who belongs to none.
        values: `[agents]`: a mask, whole or real numbers.
        num_groups: number of groups, such as places on the axis of firms.
        max: largest |value| that can occur, for real numbers; a larger one makes the result NaN. None looks.

    Returns:
        `[groups]`: int64, or float32 for real numbers. A group that does not exist makes all of it -2**31, or NaN.
    """
    num_groups = whole("sum_by", "num_groups", num_groups, 1, _MOST_GROUPS)
    _same_size("sum_by", group, values)
    group = group.to(torch.int64)  # a narrow kind holds no number of groups beyond its own
    beyond = (group >= num_groups) | (group < -1)
    place = torch.where((group < 0) | beyond, num_groups, group)
    real = values.dtype.is_floating_point
    wide = exact("sum_by", values, values.shape[0], max) if real else values.to(torch.int64)
    table = torch.zeros(num_groups + 1, dtype=wide.dtype, device=wide.device)
    total = table.scatter_add(0, place, wide)[:num_groups]
    total = torch.where(beyond.any(), torch.nan if real else -(2**31), total)
    return total.to(torch.float32) if real else total


def pairing(rng: Rng, name: str, num_groups: int, **groups: Tensor) -> tuple[Tensor, Tensor]:
    """Pair two kinds of agents one to one within groups, by lot: each wolf with at most one sheep of its cell.

    In every group as many pairs are made as there can be, and each way of making them has the same probability.
    Everybody draws a number, keyed by identity, and both kinds line up by it::

        sheep_of, wolf_of = pairing(rng, "hunt", grid.num_cells, wolves=where_wolves, sheep=where_sheep)
        hunted = (wolf_of >= 0).to(torch.int8)

    Args:
        rng: of the step.
        name: of the streams, one on each axis.
        num_groups: number of groups, such as cells.
        groups: for each of the two kinds, by the name of its axis, whole numbers `[agents]`: the group of each, from 0;
            -1 for who takes no part: the dead, who is not hungry. A group that does not exist stops the run with a
            `ModelError` at the end of the chunk.

    Returns:
        For each kind, in the order given, int64 `[agents]`: the place of the partner, -1 for nobody.

    Raises:
        ModelError: not two kinds, or a group for each is missing.
    """
    if len(groups) != 2:
        raise ModelError(
            f"pairing: got {len(groups)} kinds ({', '.join(groups)}), expected two, by their axes: "
            f"pairing(rng, name, num_groups, wolves=their_cells, sheep=their_cells)"
        )
    num_groups = whole("pairing", "num_groups", num_groups, 1, _MOST_GROUPS)
    kinds = [_kind("pairing", rng, axis, group) for axis, group in groups.items()]
    (one, first), (other, second) = kinds
    streams = one._stream(name), other._stream(name)
    draws = one._id_row(), other._id_row(), num_groups, rng._key[None], rng._step
    first, second, beyond = ops.pair_kinds(first, second, *draws, *streams)
    for axis, flag in zip(groups, beyond, strict=True):
        rng._bad.append((_beyond("pairing", name, axis, num_groups), flag))
    return first, second


def partners(rng: Rng, name: str, num_groups: int = 1, group: Tensor | None = None) -> Tensor:
    """Pair agents of one kind by lot, everybody with one other at most: int64 `[agents]`, the place of each's partner.

    In every group all find one, but for one where their number is odd, and each way of pairing them has the same
    probability. Who has none has -1.

    Args:
        rng: of the step, and of the agents' axis: ``rng``, or ``rng.on("sheep")``.
        name: stream.
        num_groups: number of groups.
        group: whole numbers `[agents]` from 0, -1 for who meets nobody; None for all in one group.
    """
    num_groups = whole("partners", "num_groups", num_groups, 1, _MOST_GROUPS)
    group = torch.zeros(rng._num, dtype=torch.int64, device=rng._key.device) if group is None else group
    seat, words, ids = _lots("partners", rng, name, rng._axis, group, num_groups)
    return ops.couples(seat.to(torch.int32)[None], words[None], ids[None], num_groups, False)[0].to(torch.int64)


def _lots(caller: str, rng: Rng, name: str, axis: str, group: Any, num_groups: int) -> tuple[Tensor, Tensor, Tensor]:
    """(groups, -1 for who takes no part; random words; identities) of a kind: int64 `[agents]` each."""
    kind, group = _kind(caller, rng, axis, group)
    beyond = (group < -1) | (group >= num_groups)
    rng._bad.append((_beyond(caller, name, axis, num_groups), beyond.any().to(torch.int8)))
    ids = torch.arange(kind._num, device=group.device) if kind._ids is None else kind._ids
    return torch.where(beyond, -1, group), kind._words(name), ids


def _kind(caller: str, rng: Rng, axis: str, group: Any) -> tuple[Rng, Tensor]:
    """The streams of a kind, and its groups int64 `[agents]`."""
    if not isinstance(rng, Rng):
        raise ModelError(f"{caller}: rng is {type(rng).__name__} {rng!r:.60}, expected the rng of the step")
    if not isinstance(group, Tensor) or group.dim() != 1 or group.dtype.is_floating_point or group.dtype == torch.bool:
        got = f"{group.dtype} {tuple(group.shape)}" if isinstance(group, Tensor) else type(group).__name__
        raise ModelError(f"{caller}: {axis} is {got}, expected whole numbers (agents,), the group of each or -1")
    kind = rng if axis == rng._axis else rng.on(axis, None if axis in rng._axes else group.shape[0])
    if group.shape[0] != kind._num:
        raise ModelError(f"{caller}: {axis} has {group.shape[0]} entries, expected {kind._num}, one for each of {axis}")
    return kind, group.to(torch.int64)


def _beyond(caller: str, name: str, axis: str, num_groups: int) -> str:
    return f"{caller}({name!r}): a group of {axis} that is none of {num_groups}"


def _same_size(caller: str, group: Any, values: Any) -> None:
    for what, tensor in (("group", group), ("values", values)):
        if not isinstance(tensor, Tensor) or tensor.dim() != 1:
            got = f"shape {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else f"type {type(tensor).__name__}"
            raise ModelError(f"{caller}: {what} has {got}, expected numbers (agents,), one for each agent")
    if group.dtype.is_floating_point:
        raise ModelError(f"{caller}: group is {group.dtype}, expected whole numbers, the group of each agent or -1")
    if group.shape != values.shape:
        raise ModelError(f"{caller}: values has {values.shape[0]} entries, expected {group.shape[0]}, as group has")
