"""Who caused what happened to agents, along edges: attribution, and contacts that tracing finds."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from denizen import ops
from denizen._arguments import share
from denizen.errors import ModelError
from denizen.rng import Rng, stream_number

if TYPE_CHECKING:
    from denizen.space._graph import Graph


class Origin(NamedTuple):
    """Who caused what happened to each agent.

    Attributes:
        source: int32 `[agents]`: place of the agent that did, -1 where nothing happened or nobody did.
        layer: int8 `[agents]`: number of the layer that it came through, in the layers' order; 0 for a single graph,
            -1 beside a source of -1.
    """

    source: Tensor
    layer: Tensor


def origin(
    what: str,
    rng: Rng,
    name: str,
    graphs: Sequence["Graph"],
    factors: Sequence[Tensor],
    happened: Sequence[Tensor],
    values: Sequence[Tensor],
) -> Origin:
    """Who caused what happened, over several graphs.

    Args:
        what: class, for messages.
        rng: of the step.
        name: stream.
        graphs: of the same agents.
        factors: 0-d, one for each graph; none for factors of one.
        happened: mask `[agents]` for each graph.
        values: `[agents]` for each graph.
    """
    for graph, mask, sent in zip(graphs, happened, values, strict=True):
        graph._check("attribute", sent, mask)
    own_axis(f"{what}.attribute", rng, len(happened[0]))
    ids, key, step, stream = rng._own_draws(f"{what}.attribute", name)
    masks = [mask if mask.dtype == torch.int8 else (mask != 0).to(torch.int8) for mask in happened]
    sent = [(one.to(torch.int8) if one.dtype == torch.bool else one.detach())[None] for one in values]
    # The number of a graph is part of its stream: the same two may meet in several.
    streams = [stream, *(stream_number(f"{stream}/{number}") for number in range(1, len(graphs)))]
    factor = torch.stack([one.detach() for one in factors]) if factors else torch.ones(1, device=key.device)
    source, layer = ops.attribute(
        sent,
        [mask[None] for mask in masks],
        factor.to(torch.float32)[None],
        [g.in_ptr.new_empty(0, dtype=torch.float32) if g.weight is None else g.weight.detach() for g in graphs],
        [graph.in_ptr for graph in graphs],
        [graph.in_idx for graph in graphs],
        ids,
        key[None],
        step,
        streams,
    )
    return Origin(source[0], layer[0])


def own_axis(what: str, rng: Any, num: int) -> None:
    """Refuse the streams of other agents: identities are read for each of `num` without looking where they end."""
    if not isinstance(rng, Rng) or rng._num != num:
        got = f"of {rng._num} on {rng._axis!r}" if isinstance(rng, Rng) else f"{type(rng).__name__} {rng!r:.60}"
        raise ModelError(
            f"{what}: rng is {got}, expected that of the {num} agents: rng.on(axis) where they are of another axis"
        )


def lots(what: str, rng: Rng, name: str) -> tuple[Tensor, Tensor]:
    """(ids `[1, agents]` or empty, a number of 52 bits between 0 and 1 for each agent, float64)."""
    ids = rng._own_draws(what, name)[0]
    first, second = rng[name]._words("first"), rng[name]._words("second")
    return ids, (((first << 20) | (second >> 12)) * 2 + 1).to(torch.float64) / 2.0**53


def one_of_group(
    values: Tensor, group: Tensor, num_groups: int, ids: Tensor, pick: Tensor, share: Tensor, others: bool
) -> tuple[Tensor, Tensor]:
    """For each agent one member of a group, with probability in proportion to value.

    Members stand in a row by group and identity, each as long as its value, and `share` says where in the group's part
    of the row to look. Lengths add up exactly, so the order of agents and the device leave no trace.

    Args:
        values: float64 `[agents]`, not negative, of which sums are exact.
        group: int64 `[agents]`.
        num_groups: static.
        ids: as `lots` gives them.
        pick: int64 `[agents]`: the group for each.
        share: float64 `[agents]`, from 0 to below 1.
        others: whether an agent itself, which is of the group then, is left out.

    Returns:
        places int64 `[agents]`, and whether there was anybody to choose.
    """
    place = torch.arange(group.shape[0], device=group.device)
    order = place if ids.numel() == 0 else torch.argsort(ids[0])
    order = order[torch.argsort(group[order], stable=True)]
    mass = values[order].cumsum(0)
    total = torch.zeros(num_groups, dtype=torch.float64, device=group.device).scatter_add(0, group, values)
    ends = total.cumsum(0)
    begins, length = (ends - total)[pick], total[pick]
    length = length - values if others else length
    at = begins + torch.minimum(share * length, length * (1 - 2.0**-52))
    if others:
        own = torch.zeros_like(values).scatter(0, order, mass) - values
        at = torch.where(at >= own, at + values, at)
    found = torch.searchsorted(mass, at, right=True)
    last = torch.searchsorted(mass, ends[pick])  # where rounding leads beyond the group
    return order[torch.minimum(found, last).clamp(max=group.shape[0] - 1)], length > 0


def positive(values: Tensor) -> Tensor:
    """What can cause something: values above 0; the others, and NaN, as 0."""
    values = values.to(torch.int8) if values.dtype == torch.bool else values.detach()
    return torch.where(values > 0, values, torch.zeros_like(values))


def as_origin(source: Tensor, found: Tensor) -> Origin:
    """The sources of those who have one, through the only layer."""
    return Origin(torch.where(found, source, -1).to(torch.int32), torch.where(found, 0, -1).to(torch.int8))


def traced(
    what: str, rng: Rng, name: str, graphs: Mapping[str, "Graph"], index: Tensor, prob: Mapping[str, Tensor | float]
) -> Tensor:
    """Mask int8 `[agents]` of the contacts that are found, over graphs with a probability each.

    Somebody with k contacts among the index cases is missed by all of them with probability (1 - prob)^k, which is an
    event of hazard -k log(1 - prob): one draw for each agent has the law of a draw for each edge.
    """
    total: Tensor | float = 0.0
    for layer, graph in graphs.items():
        graph._check("traced", index, None)
        if index.dtype.is_floating_point:
            raise ModelError(
                f"{what}.traced: index is {index.dtype}, expected a mask of index cases or whole numbers of meetings; "
                f"tracing does not go with a relaxed run"
            )
        counts = index.to(torch.int8) if index.dtype == torch.bool else index
        met = ops.sum_counts(counts[None], None, graph.in_ptr, graph.in_idx, graph.out_ptr, graph.out_idx)[0]
        hazard = met * _missing(f"{what}.traced", layer, prob[layer])
        total = total + torch.where(met > 0, hazard, 0.0)  # 0 * inf, where nobody is missed, would be NaN
    return rng.event(name, total, 1.0)


def _missing(what: str, layer: str, prob: Tensor | float) -> Tensor | float:
    """-log(1 - prob), with the same bits on any device."""
    if isinstance(prob, Tensor):
        return -torch.log1p(-prob.to(torch.float64)).to(torch.float32)
    given = share(what, f"prob{f'[{layer!r}]' if layer else ''}", prob)
    return math.inf if given == 1 else -math.log1p(-given)
