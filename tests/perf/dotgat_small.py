"""A small agent attention network as in spec/dotgat.md, an equivalent rewriting, and the published faulty one."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Reference(nn.Module):
    """Memory attention, social attention and a two-layer MLP per agent; weights shared by all message steps."""

    def __init__(self, agents=3, features=4, width=8, heads=2, steps=2, dropout=0.0):
        super().__init__()
        self.heads, self.steps, self.dropout = heads, steps, dropout
        self.embed = nn.Parameter(torch.randn(agents, features, width) / features**0.5)
        self.build(agents, width)
        for name in ("w1", "w2"):
            setattr(self, name, nn.Parameter(torch.randn(agents, width, width) / width**0.5))
        for name in ("b1", "b2"):
            setattr(self, name, nn.Parameter(0.1 * torch.randn(agents, width)))
        for name in ("g_e", "g_m", "g_s", "g_f", "g_o"):
            setattr(self, name, nn.Parameter(torch.ones(width)))
        self.wy, self.by = (
            nn.Parameter(torch.randn(agents, width, 1) / width**0.5),
            nn.Parameter(torch.zeros(agents, 1)),
        )
        self.social = nn.Parameter(torch.zeros(agents, agents))

    def build(self, agents, width):
        for name in ("q_m", "k_m", "q_s", "k_s"):
            setattr(self, name, nn.Parameter(torch.randn(agents, width, width) / width**0.5))
        self.v_m, self.v_s = (nn.Parameter(torch.randn(width, width) / width**0.5) for _ in range(2))

    def project(self, u: Tensor, part: str) -> list[Tensor]:
        q, k = (torch.einsum("btah,ahk->btak", u, getattr(self, f"{name}_{part}")) for name in "qk")
        return [q, k, u @ getattr(self, f"v_{part}")]

    def mlp(self, u: Tensor) -> Tensor:
        hidden = F.silu(torch.einsum("btah,ahk->btak", u, self.w1) + self.b1)
        return torch.einsum("btah,ahk->btak", hidden, self.w2) + self.b2

    def attend(self, u: Tensor, part: str) -> Tensor:
        b, t, a, h = u.shape
        order = (0, 2, 3, 1, 4) if part == "m" else (0, 1, 3, 2, 4)
        q, k, v = (x.view(b, t, a, self.heads, -1).permute(order) for x in self.project(u, part))
        scores = q @ k.transpose(-1, -2) / (h // self.heads) ** 0.5
        if part == "m":
            scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -torch.inf)
        else:
            scores = scores + self.social
        out = scores.softmax(-1) @ v
        return out.permute((0, 3, 1, 2, 4) if part == "m" else (0, 1, 3, 2, 4)).reshape(b, t, a, h)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def drop(y):
            return F.dropout(y, self.dropout, self.training)

        h = norm(torch.einsum("btm,amh->btah", x, self.embed), self.g_e)
        for _ in range(self.steps):
            h = h + drop(self.attend(norm(h, self.g_m), "m"))
            h = h + drop(self.attend(norm(h, self.g_s), "s"))
            h = h + drop(self.mlp(norm(h, self.g_f)))
        return h, torch.einsum("btah,ahy->btay", norm(h, self.g_o), self.wy) + self.by


class Fused(Reference):
    """Q and K of each attention in one product: the same network."""

    def build(self, agents, width):
        for part in "ms":
            setattr(self, f"qk_{part}", nn.Parameter(torch.zeros(agents, width, 2 * width)))
            setattr(self, f"v_{part}", nn.Parameter(torch.zeros(width, width)))

    def project(self, u, part):
        q, k = torch.einsum("btah,ahk->btak", u, getattr(self, f"qk_{part}")).chunk(2, -1)
        return [q, k, u @ getattr(self, f"v_{part}")]


class Published(Fused):
    """The published 'optimised' one: W1 and W2 in one product, whose activated half is thrown away."""

    def mlp(self, u):
        first, second = torch.einsum("btah,ahk->btak", u, torch.cat([self.w1, self.w2], -1)).chunk(2, -1)
        F.silu(first + self.b1)
        return second + self.b2


def norm(v, g):
    return g * v * torch.rsqrt(v.square().mean(-1, keepdim=True) + 1e-6)


def fuse(weights):
    """From the state dict of the reference to that of the fused ones."""
    out = {name: tensor for name, tensor in weights.items() if name[:2] not in ("q_", "k_")}
    return out | {f"qk_{part}": torch.cat([weights[f"q_{part}"], weights[f"k_{part}"]], -1) for part in "ms"}
