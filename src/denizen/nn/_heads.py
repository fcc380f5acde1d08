"""Heads over the states of agents `[…, agents, hidden]`, and the static network that goes with them."""

import dataclasses
import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from denizen._arguments import whole
from denizen.nn._config import DotGATConfig, check_entries
from denizen.nn._dynamic import DynamicDotGAT
from denizen.nn._initial import GAIN
from denizen.nn._layers import Norm


class DotGAT(nn.Module):
    """The static network: agents that each see some entries of a whole matrix talk `message_steps` times.

    The dynamic network with a single time and without memory: `num_features` is the number of entries, times by
    columns. Heads make outputs of its states. `core.state_of_reference` and `core.reference_state` convert weights of
    the core of a `DotGATReference`, both ways.

    Attributes:
        config: sizes and switches; `memory` and `num_outputs` are not used.
        core: the network that does the work.
    """

    def __init__(self, config: DotGATConfig, sensing: Tensor | None = None, *, checkpoint_steps: bool = False) -> None:
        """Args:
        config: sizes and switches.
        sensing: `[agents, entries]` of zeros and ones; None lets every agent see everything.
        checkpoint_steps: recompute message steps in the backward.
        """
        super().__init__()
        self.config = dataclasses.replace(config, memory=False)
        self.core = DynamicDotGAT(self.config, sensing, checkpoint_steps=checkpoint_steps)
        self.core.head = nn.Identity()

    def forward(self, entries: Tensor | None = None, *, views: Tensor | None = None) -> Tensor:
        """States of agents `[B, A, H]`, after the final norm.

        Args:
            entries: `[B, M]`, seen through the sensing mask.
            views: instead of it `[B, A, M]`, masked already.

        Raises:
            InputError: shapes that do not fit.
        """
        check_entries(entries, views, self.config)
        if entries is not None:
            return self.core(entries[:, None]).outputs[:, 0]
        assert views is not None
        return self.core(views=views[:, :, None]).outputs[:, 0]


class AgentLinear(nn.Module):
    """A linear map of each agent's own over `[…, agents, in]`."""

    def __init__(self, num_agents: int, wide: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_agents, wide, out).normal_(0, GAIN / math.sqrt(out)))
        self.bias = nn.Parameter(torch.zeros(num_agents, out))

    def forward(self, x: Tensor) -> Tensor:
        """`[…, agents, out]`."""
        return torch.einsum("...ah,ahk->...ak", x, self.weight) + self.bias


class Classifier(nn.Module):
    """Norm and a linear map of each agent's own: logits `[…, agents, classes]`."""

    def __init__(self, num_agents: int, hidden: int, num_classes: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.norm, self.linear = Norm(torch.ones(hidden), eps), AgentLinear(num_agents, hidden, num_classes)

    def forward(self, h: Tensor) -> Tensor:
        """Logits."""
        return self.linear(self.norm(h))


class Predictor(nn.Module):
    """Norm, then three layers of each agent's own: hidden to hidden (SiLU), to features (SiLU), to outputs."""

    def __init__(self, num_agents: int, hidden: int, num_features: int, num_outputs: int, eps: float = 1e-6) -> None:
        super().__init__()
        widths = (hidden, hidden, num_features, num_outputs)
        self.norm = Norm(torch.ones(hidden), eps)
        self.layers = nn.ModuleList(AgentLinear(num_agents, *pair) for pair in itertools.pairwise(widths))

    def forward(self, h: Tensor) -> Tensor:
        """Outputs `[…, agents, outputs]`."""
        first, second, last = self.layers
        return last(F.silu(second(F.silu(first(self.norm(h))))))


class FactorPredictor(nn.Module):
    """Each agent puts out two factors `[side, side // 2]` of a square matrix and their product / 2, flattened."""

    def __init__(self, num_agents: int, hidden: int, num_features: int, side: int, eps: float = 1e-6) -> None:
        super().__init__()
        whole("FactorPredictor", "side", side, low=2)
        self.side = side
        self.predict = Predictor(num_agents, hidden, num_features, 2 * side * (side // 2), eps)

    def forward(self, h: Tensor) -> Tensor:
        """`[…, agents, side * side]`."""
        u, v = self.predict(h).unflatten(-1, (2, self.side, self.side // 2)).unbind(-3)
        return (u @ v.transpose(-1, -2) / 2).flatten(-2)


class SharedDecoder(nn.Module):
    """One pair of linear maps for all agents, to factors of a matrix `[rows, columns]`; their product / rank."""

    def __init__(self, hidden: int, rows: int, columns: int) -> None:
        super().__init__()
        whole("SharedDecoder", "rows", rows, low=2)
        whole("SharedDecoder", "columns", columns, low=2)
        self.rank = min(rows // 2, columns // 2)
        self.to_rows, self.to_columns = nn.Linear(hidden, rows * self.rank), nn.Linear(hidden, columns * self.rank)

    def forward(self, h: Tensor) -> Tensor:
        """`[…, agents, rows * columns]`."""
        u, v = (layer(h).unflatten(-1, (-1, self.rank)) for layer in (self.to_rows, self.to_columns))
        return (u @ v.transpose(-1, -2) / self.rank).flatten(-2)


class Aggregator(nn.Module):
    """One answer of many agents: outputs weighted by a softmax over agents of a small gate."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(hidden, 4), nn.SiLU(), nn.Linear(4, 1))

    def forward(self, h: Tensor, outputs: Tensor) -> Tensor:
        """`[…, outputs]` from states `[…, agents, hidden]` and outputs `[…, agents, outputs]`."""
        return (torch.softmax(self.gate(h), -2) * outputs).sum(-2)
