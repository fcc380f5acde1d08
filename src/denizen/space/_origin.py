"""Who caused what happened to agents, along edges: attribution, and contacts that tracing finds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from denizen import ops
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
