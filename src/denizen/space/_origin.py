"""Who caused what happened to agents, along edges: attribution, and contacts that tracing finds."""

from typing import NamedTuple

import torch
from torch import Tensor


class Origin(NamedTuple):
    """Who caused what happened to each agent.

    Attributes:
        source: int32 `[agents]`: place of the agent that did, -1 where nothing happened or nobody did.
        layer: int8 `[agents]`: number of the layer that it came through, in the layers' order; 0 for a single graph,
            -1 beside a source of -1.
    """

    source: Tensor
    layer: Tensor


def origin_layer(source: Tensor, number: int) -> Tensor:
    """int8 `[agents]`: a layer's number beside each source, -1 beside nobody."""
    return torch.where(source >= 0, number, -1).to(torch.int8)
