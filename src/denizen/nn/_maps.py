"""Where agents look: the attention weights of a network, which the fast form never holds."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from denizen.errors import InputError
from denizen.nn._dynamic import DynamicDotGAT
from denizen.nn._heads import DotGAT
from denizen.nn._reference import DotGATReference, DynamicDotGATReference


class AttentionMaps(NamedTuple):
    """Attention weights, means over the batch.

    Attributes:
        social: `[steps, heads, agents, agents]`, the mean over times: how much an agent (row) hears of another
            (column); None where agents do not talk.
        memory: `[steps, heads, agents, times, times]`: how much a time (row) looks at an earlier one (column); None
            without memory.
    """

    social: Tensor | None
    memory: Tensor | None


class _Recording(DynamicDotGATReference):
    """A reference that keeps its weights of attention."""

    def __init__(self, like: DynamicDotGATReference | DynamicDotGAT) -> None:
        super().__init__(like.config, like.sensing.cpu())
        state = like.reference_state() if isinstance(like, DynamicDotGAT) else like.state_dict()
        self.to(like.embed.device, like.embed.dtype)
        self.load_state_dict(state, strict=False)  # the static network has no head of this kind
        self.eval()
        self.social_maps: list[Tensor] = []
        self.memory_maps: list[Tensor] = []

    def _social(self, u: Tensor, bias: Tensor | None) -> Tensor:
        self.social_maps.append(social_weights(self, u).mean((0, 1)))
        return super()._social(u, bias)

    def _memory(self, u: Tensor) -> Tensor:
        q, k, _ = self._heads(u, "memory")
        scores = torch.einsum("btand,bsand->bants", q, k) / math.sqrt(q.shape[-1])
        later = torch.ones(u.shape[1], u.shape[1], dtype=torch.bool, device=u.device).triu(1)
        weights = torch.softmax(scores.masked_fill(later, -torch.inf), -1)
        self.memory_maps.append(weights.mean(0).transpose(0, 1))
        return super()._memory(u)


def social_weights(model: DynamicDotGATReference, u: Tensor) -> Tensor:
    """Who listens to whom `[B, T, h, A, A]`, of a normed state `u` `[B, T, A, H]`."""
    q, k, _ = model._heads(u, "social")
    scores = torch.einsum("btand,btcnd->btnac", q, k) / math.sqrt(q.shape[-1])
    bias = model._bias()
    return torch.softmax(scores if bias is None else scores + bias, -1)


@torch.no_grad()
def attention_maps(
    model: DynamicDotGAT | DynamicDotGATReference | DotGAT | DotGATReference, series: Tensor
) -> AttentionMaps:
    """The attention weights of a network over a batch, computed by the reference in evaluation mode.

    Dense in agents and times: for pictures of tens to hundreds of agents.

    Args:
        model: in either form; for a static network `series` is `[batch, entries]`.
        series: `[batch, times, features]`.

    Raises:
        InputError: another kind of model, a quantized one, or a series of another shape.
    """
    static = isinstance(model, DotGAT | DotGATReference)
    core = model.core if isinstance(model, DotGAT | DotGATReference) else model
    if not isinstance(core, DynamicDotGAT | DynamicDotGATReference):
        raise InputError(f"attention_maps: {type(model).__name__} is no agent attention network")
    with torch.random.fork_rng(devices=[]):  # a look in between changes nothing of a training
        recording = _Recording(core)
    recording(series[:, None] if static else series)
    social, memory = recording.social_maps, recording.memory_maps
    return AttentionMaps(torch.stack(social) if social else None, torch.stack(memory) if memory else None)
