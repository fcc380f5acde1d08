"""Parts of the fast network, in agents-first layout: `[agents, rows, width]`, rows being batch times time.

In this layout every projection with weights of each agent's own is one batched matmul without a copy.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from denizen.nn._social import EdgeBias


class PerAgentLinear(nn.Module):
    """A linear map of each agent's own.

    Attributes:
        weight: `[agents, in, out]`.
        bias: `[agents, out]` or None.
    """

    bias: nn.Parameter | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.register_parameter("bias", None if bias is None else nn.Parameter(bias))

    def forward(self, u: Tensor) -> Tensor:
        """`[agents, rows, in]` to `[agents, rows, out]`."""
        if self.bias is None:
            return torch.bmm(u, self.weight)
        if self.weight.shape[-1] == 1:  # a sum, which compilation joins to what makes `u`; the product would be slow
            return (u * self.weight.transpose(1, 2)).sum(-1, keepdim=True) + self.bias[:, None]
        return torch.baddbmm(self.bias[:, None], u, self.weight)


class Norm(nn.Module):
    """RMSNorm with a gain that all agents share, in one fused operation where the device has it."""

    def __init__(self, gain: Tensor, eps: float) -> None:
        super().__init__()
        self.gain, self.eps = nn.Parameter(gain), eps

    def forward(self, x: Tensor) -> Tensor:
        """Over the last axis; the gain in the dtype of `x`, which the fused kernel asks for.

        So is the result: autocast makes it float32 on CUDA in some versions of torch, and states would stay so.
        """
        return F.rms_norm(x, self.gain.shape, self.gain.to(x.dtype), self.eps).to(x.dtype)


class MLP(nn.Module):
    """Norm, linear, SiLU, linear, each agent with its own."""

    def __init__(self, norm: Norm, inner: nn.Module, outer: nn.Module) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = norm, inner, outer

    def forward(self, h: Tensor) -> Tensor:
        """What is to be added to `h`."""
        return self.outer(F.silu(self.inner(self.norm(h))))


class Attention(nn.Module):
    """Norm and Q, K, V in one or two matmuls; a subclass says who attends to whom.

    Columns of the fused weights are ordered head, part, place in the head: then rows and heads are one axis of even
    stride, so that attention over agents can take the projections as they lie.

    Attributes:
        fused: Q and K of each agent, and V where it is not shared.
        shared: `[H, H]`: one V for all agents, or None.
    """

    shared: nn.Parameter | None

    def __init__(self, norm: Norm, fused: nn.Module, shared: Tensor | None, num_heads: int) -> None:
        super().__init__()
        self.norm, self.fused, self.num_heads = norm, fused, num_heads
        self.register_parameter("shared", None if shared is None else nn.Parameter(shared))

    def project(self, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Q, K, V, each `[agents, rows, heads, d]`."""
        u = self.norm(h)
        agents, rows, width = u.shape
        num_parts, d = (3 if self.shared is None else 2), width // self.num_heads
        parts = self.fused(u).view(agents, rows, self.num_heads, num_parts, d)
        if self.shared is None:
            return parts[..., 0, :], parts[..., 1, :], parts[..., 2, :]
        values = torch.mm(u.reshape(-1, width), self.shared).view(agents, rows, self.num_heads, d)
        return parts[..., 0, :], parts[..., 1, :], values


class MemoryAttention(Attention):
    """Each agent attends to its own past and present."""

    def forward(self, h: Tensor, times: int) -> Tensor:
        """What is to be added to `h` `[agents, batch * times, H]`."""
        samples = h.shape[0] * h.shape[1] // times
        q, k, v = (x.reshape(samples, times, *x.shape[2:]).transpose(1, 2) for x in self.project(h))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(h.shape)


class SocialAttention(Attention):
    """At each time, agents attend to one another.

    Written out: the library's attention is slower here, and its quick forms refuse a learnable bias.
    """

    def forward(self, h: Tensor, bias: Tensor | None) -> Tensor:
        """What is to be added to `h` `[agents, rows, H]`; `bias` `[agents, agents]`."""
        q, k, v = (x.flatten(1, 2).transpose(0, 1) for x in self.project(h))  # [rows * heads, agents, d], no copies
        scale = q.shape[-1] ** -0.5
        if bias is None:
            scores = torch.bmm(q * scale, k.transpose(1, 2))
        else:
            scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale)
        said = torch.bmm(torch.softmax(scores, -1), v)
        return said.transpose(0, 1).reshape(h.shape)


class EdgeAttention(Attention):
    """At each time, agents attend to their neighbours in a sparse graph: costs edges, not agents squared."""

    def forward(self, h: Tensor, bias: Tensor, edges: EdgeBias) -> Tensor:
        """What is to be added to `h` `[agents, rows, H]`; `bias` one for each edge."""
        q, k, v = self.project(h)
        scale = q.shape[-1] ** -0.5
        wide = torch.promote_types(bias.dtype, torch.float32)  # 16 bits stop adding up at some hundred neighbours
        scores = (q[edges.receiver] * k[edges.sender]).sum(-1, dtype=wide) * scale + bias[:, None, None]
        empty = torch.full(q.shape[:3], -torch.inf, dtype=scores.dtype, device=q.device)
        to = edges.receiver[:, None, None].expand_as(scores)
        highest = empty.scatter_reduce(0, to, scores.detach(), "amax")
        parts = torch.exp(scores - highest[edges.receiver])
        total = torch.zeros_like(highest).index_add(0, edges.receiver, parts)
        said = torch.zeros(v.shape, dtype=parts.dtype, device=q.device)
        said = said.index_add(0, edges.receiver, parts[..., None] * v[edges.sender])
        return (said / total[..., None]).to(h.dtype).reshape(h.shape)
