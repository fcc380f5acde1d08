"""The specification in code: an agent attention network written to be read, in whatever precision its weights have.

Nothing is fused, folded or laid out for speed. `DynamicDotGAT` computes the same and is tested against this.
Axes: B batch, T time, A agents, M features, H hidden, h heads, d = H/h.
"""

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from denizen.nn._config import DotGATConfig, check_entries, check_input, check_sensing
from denizen.nn._initial import initial
from denizen.nn._social import EdgeBias, SmallWorld, SocialBias
from denizen.space import Graph


class AgentStates(NamedTuple):
    """What an agent attention network returns.

    Attributes:
        hidden: `[batch, time, agents, hidden]`, before the last norm.
        outputs: `[batch, time, agents, outputs]`.
    """

    hidden: Tensor
    outputs: Tensor


class DynamicDotGATReference(nn.Module):
    """The plain form of `DynamicDotGAT`: same formulae, same results, written to be read.

    Attributes:
        config: sizes and switches.
        sensing: `[agents, features]`, 1 where an agent sees a column.
        bias: learnable biases of the social attention; None where everyone talks to everyone.
        drop: what is applied to whatever a sublayer adds.
    """

    sensing: Tensor
    embed: nn.Parameter
    embed_gain: nn.Parameter
    memory_gain: nn.Parameter
    social_gain: nn.Parameter
    alone_gain: nn.Parameter
    mlp_gain: nn.Parameter
    head: nn.Parameter
    head_bias: nn.Parameter
    head_gain: nn.Parameter

    def __init__(self, config: DotGATConfig, sensing: Tensor | None = None) -> None:
        """Args:
        config: sizes and switches.
        sensing: `[agents, features]` of zeros and ones; None lets every agent see everything.
        """
        super().__init__()
        self.config = config
        for name, value in initial(config).items():
            self.register_parameter(name, nn.Parameter(value))
        self.bias = make_bias(config)
        self.register_buffer("sensing", make_sensing(config, sensing))
        self.drop = nn.Dropout(config.dropout)

    def forward(self, series: Tensor | None = None, *, views: Tensor | None = None) -> AgentStates:
        """Every agent's state and outputs at every time, from what it saw until then.

        Args:
            series: `[B, T, M]`, or `[T, M]` for a batch of one; every agent sees it through the sensing mask.
            views: instead of it `[B, A, T, M]`: what each agent sees, masked already.

        Raises:
            InputError: shapes that do not fit.
        """
        check_input(series, views, self.config, self.embed)
        if series is not None:
            views = self.views(series)
        assert views is not None
        h = self.states(views)
        outputs = torch.einsum("btah,ahy->btay", self._norm(h, self.head_gain), self.head) + self.head_bias
        return AgentStates(h, outputs)

    def views(self, series: Tensor) -> Tensor:
        """What each agent sees of a series: `[B, A, T, M]`."""
        series = series[None] if series.ndim == 2 else series
        return series[:, None] * self.sensing[None, :, None, :]

    def states(self, views: Tensor) -> Tensor:
        """`[B, T, A, H]` after all message steps."""
        h = self._norm(torch.einsum("batm,amh->btah", views, self.embed), self.embed_gain)
        bias = self._bias()
        for _ in range(self.config.message_steps):
            if self.config.memory:
                h = h + self.drop(self._memory(self._norm(h, self.memory_gain)))
            if self.config.talks:
                h = h + self.drop(self._social(self._norm(h, self.social_gain), bias))
            if self.config.isolated_width:
                h = h + self.drop(self._mlp(self._norm(h, self.alone_gain), "alone"))
            h = h + self.drop(self._mlp(self._norm(h, self.mlp_gain), "mlp"))
        return h

    def _norm(self, x: Tensor, gain: Tensor) -> Tensor:
        return gain * x / torch.sqrt(x.square().mean(-1, keepdim=True) + self.config.eps)

    def _heads(self, u: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """Q, K, V of `u` [B, T, A, H], each [B, T, A, h, d]."""
        q = torch.einsum("btah,ahk->btak", u, getattr(self, f"{name}_q"))
        k = torch.einsum("btah,ahk->btak", u, getattr(self, f"{name}_k"))
        v = torch.einsum("btah,hk->btak" if self.config.shared_v else "btah,ahk->btak", u, getattr(self, f"{name}_v"))
        split = [x.unflatten(-1, (self.config.num_heads, -1)) for x in (q, k, v)]
        return split[0], split[1], split[2]

    def _memory(self, u: Tensor) -> Tensor:
        """Each agent attends to its own past and present: over T, for every sample, agent and head."""
        q, k, v = (x.permute(0, 2, 3, 1, 4).flatten(0, 1) for x in self._heads(u, "memory"))  # [B A, h, T, d]
        said = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return said.unflatten(0, (u.shape[0], -1)).permute(0, 3, 1, 2, 4).flatten(-2)

    def _social(self, u: Tensor, bias: Tensor | None) -> Tensor:
        """At each time, agents attend to one another: over A, for every sample, time and head."""
        q, k, v = (x.transpose(2, 3).flatten(0, 1) for x in self._heads(u, "social"))  # [B T, h, A, d]
        mask = None if bias is None else bias.to(q.dtype)
        said = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return said.unflatten(0, u.shape[:2]).transpose(2, 3).flatten(-2)

    def _bias(self) -> Tensor | None:
        """N `[A, A]`, added to the scores of the social attention; None where everyone hears everyone alike."""
        return self.bias.dense() if isinstance(self.bias, EdgeBias) else None if self.bias is None else self.bias()

    def _mlp(self, u: Tensor, name: str) -> Tensor:
        inner = torch.einsum("btah,ahk->btak", u, getattr(self, f"{name}_in")) + getattr(self, f"{name}_in_bias")
        return torch.einsum("btak,akh->btah", F.silu(inner), getattr(self, f"{name}_out")) + getattr(
            self, f"{name}_out_bias"
        )


class DotGATReference(nn.Module):
    """The plain form of `DotGAT`, the static network: one time, no memory, states after the final norm.

    Attributes:
        config: sizes and switches; `memory` and `num_outputs` are not used.
        core: the network that does the work.
    """

    def __init__(self, config: DotGATConfig, sensing: Tensor | None = None) -> None:
        """Args:
        config: sizes and switches; `num_features` is the number of entries.
        sensing: `[agents, entries]` of zeros and ones; None lets every agent see everything.
        """
        super().__init__()
        self.config = dataclasses.replace(config, memory=False)
        self.core = DynamicDotGATReference(self.config, sensing)
        del self.core.head, self.core.head_bias

    def forward(self, entries: Tensor) -> Tensor:
        """States of agents `[B, A, H]` from entries `[B, M]`, seen through the sensing mask."""
        check_entries(entries, None, self.config)
        core = self.core
        return core._norm(core.states(core.views(entries[:, None])), core.head_gain)[:, 0]


def make_bias(config: DotGATConfig) -> SocialBias | EdgeBias | None:
    """The learnable biases that a configuration asks for."""
    if not config.talks:
        return None
    if isinstance(config.social, SmallWorld):
        return SocialBias(config.social, config.num_agents)
    return EdgeBias(config.social) if isinstance(config.social, Graph) else None


def make_sensing(config: DotGATConfig, sensing: Tensor | None) -> Tensor:
    """The mask as float32, checked."""
    if sensing is None:
        return torch.ones(config.num_agents, config.num_features)
    check_sensing(sensing, config)
    return sensing.to(torch.float32)
