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
    happened: Tensor,
    values: Tensor,
) -> Origin:
    """Who caused what happened, over several graphs with a factor each (0-d); none of them for factors of one."""
    graphs[0]._check("attribute", values, happened)
    ids, key, step, stream = rng._own_draws(f"{what}.attribute", name)
    mask = happened if happened.dtype == torch.int8 else (happened != 0).to(torch.int8)
    values = values.to(torch.int8) if values.dtype == torch.bool else values.detach()
    # The number of a graph is part of its stream: the same two may meet in several.
    streams = [stream, *(stream_number(f"{stream}/{number}") for number in range(1, len(graphs)))]
    factor = torch.stack([one.detach() for one in factors]) if factors else torch.ones(1, device=key.device)
    source, layer = ops.attribute(
        values[None],
        mask[None],
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
