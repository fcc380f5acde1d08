"""The network as the published one computes it: the form that the fast one is measured against.

The same function as `DynamicDotGATReference`, in the manner that the description of the published network tells of
(spec/dotgat.md, 5 and 7): batch first, what each agent sees as a tensor of its own, queries, keys and values apart,
shared values expanded to all agents, operands laid out anew for the attention over time, norms operation by operation,
the social bias built again in every message step. Counted as there it launches as many kernels: 270 forward, 42 of
them batched products, and 557 backward (`tests/nn/test_plain.py`); our reference launches a tenth fewer.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from denizen.nn import DynamicDotGATReference
from denizen.nn._social import SELF_BIAS, SocialBias


class PlainDotGAT(DynamicDotGATReference):
    """A reference with the same weights and results that computes as the published network does."""

    def views(self, series: Tensor) -> Tensor:
        """`[B, A, T, M]`, held in memory."""
        series = series[None] if series.ndim == 2 else series
        return series[:, None].expand(-1, self.config.num_agents, -1, -1) * self.sensing[None, :, None, :]

    def states(self, views: Tensor) -> Tensor:
        """`[B, T, A, H]` after all message steps."""
        h = self._norm(self._apart(views.transpose(1, 2), self.embed), self.embed_gain)
        for _ in range(self.config.message_steps):
            if self.config.memory:
                h = h + self.drop(self._memory(self._norm(h, self.memory_gain)))
            if self.config.talks:
                h = h + self.drop(self._social(self._norm(h, self.social_gain), self._bias()))
            if self.config.isolated_width:
                h = h + self.drop(self._mlp(self._norm(h, self.alone_gain), "alone"))
            h = h + self.drop(self._mlp(self._norm(h, self.mlp_gain), "mlp"))
        return h

    def _norm(self, x: Tensor, gain: Tensor) -> Tensor:
        return gain * x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.config.eps)

    def _apart(self, u: Tensor, weight: Tensor) -> Tensor:
        """Every agent's rows of `[B, T, A, in]` by its own matrix `[A, in, out]`."""
        batch, times, agents, wide = u.shape
        rows = u.permute(2, 0, 1, 3).reshape(agents, batch * times, wide)
        return torch.bmm(rows, weight).view(agents, batch, times, -1).permute(1, 2, 0, 3)

    def _heads(self, u: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (getattr(self, f"{name}_{part}") for part in "qkv")
        v = v.expand_as(q) if v.ndim == 2 else v
        q, k, v = (self._apart(u, weight).unflatten(-1, (self.config.num_heads, -1)) for weight in (q, k, v))
        return q, k, v

    def _memory(self, u: Tensor) -> Tensor:
        q, k, v = (x.permute(0, 2, 3, 1, 4).flatten(0, 1).contiguous() for x in self._heads(u, "memory"))
        said = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return said.unflatten(0, (u.shape[0], -1)).permute(0, 3, 1, 2, 4).flatten(-2)

    def _social(self, u: Tensor, bias: Tensor | None) -> Tensor:
        q, k, v = (x.transpose(2, 3).flatten(0, 1) for x in self._heads(u, "social"))
        mask = None if bias is None else bias.to(q.dtype)
        said = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return said.unflatten(0, u.shape[:2]).transpose(2, 3).flatten(-2)

    def _bias(self) -> Tensor | None:
        if not isinstance(self.bias, SocialBias) or self.bias.symmetric:
            return super()._bias()
        agents = self.bias.num_agents
        bias = self.bias.theta.new_full((agents, agents), -torch.inf)
        bias = bias.index_put((self.bias.receiver, self.bias.sender), self.bias.theta)
        bias.diagonal().fill_(SELF_BIAS)
        return bias

    def _mlp(self, u: Tensor, name: str) -> Tensor:
        inner = self._apart(u, getattr(self, f"{name}_in")) + getattr(self, f"{name}_in_bias")
        return self._apart(F.silu(inner), getattr(self, f"{name}_out")) + getattr(self, f"{name}_out_bias")
