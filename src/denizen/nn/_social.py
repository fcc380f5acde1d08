"""Who may talk to whom: the trainable small-world bias of the social attention, dense and along sparse edges."""

import dataclasses
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from denizen._arguments import share, switch, whole
from denizen.errors import InputError
from denizen.space import Graph
from denizen.space.generators import watts_strogatz

SELF_BIAS = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallWorld:
    """A ring with rewired edges (Watts and Strogatz 1998) whose edges carry learnable biases.

    Attributes:
        neighbours: contacts of each agent on the ring, even; with no more agents than that, all are in contact.
        rewire_prob: probability of each edge to be rewired.
        freeze: share of the absent pairs that can never talk; the others are learnable like edges.
        symmetric: whether both directions of a pair get the mean of their biases; a frozen one freezes both.
        seed: of the rewiring and of the choice of frozen pairs.
    """

    neighbours: int = 4
    rewire_prob: float = 0.0
    freeze: float = 1.0
    symmetric: bool = False
    seed: int = 0

    def check(self, num_agents: int) -> None:
        """Refuse what makes no graph over so many agents."""
        share("SmallWorld", "freeze", self.freeze)
        sides = ", even: half of them on each side of the ring"
        if whole("SmallWorld", "neighbours", self.neighbours, low=0, hint=sides) % 2:
            raise InputError(f"SmallWorld: neighbours={self.neighbours}, expected a whole number{sides}")
        whole("SmallWorld", "seed", self.seed, low=0)
        switch("SmallWorld", "symmetric", self.symmetric)
        self._edges(num_agents)

    def _edges(self, num_agents: int) -> tuple[np.ndarray, np.ndarray]:
        if num_agents <= self.neighbours:
            receiver, sender = np.nonzero(~np.eye(num_agents, dtype=bool))
            return receiver, sender
        made = watts_strogatz(num_agents, self.neighbours, self.rewire_prob, self.seed)
        source, target = made.source.astype(np.int64), made.target.astype(np.int64)
        return np.concatenate([source, target]), np.concatenate([target, source])

    def graph(self, num_agents: int) -> Graph:
        """The present edges as a sparse graph, to be used in place of this object where agents are thousands."""
        return Graph.from_edges(*self._edges(num_agents), num_agents, duplicates="drop")

    def learnable(self, num_agents: int) -> tuple[Tensor, Tensor]:
        """(receiver, sender) of every learnable entry in row-major order: int64 `[entries]` each; never the diagonal.

        Of the absent entries, the diagonal among them, `round(freeze * number)` are frozen.
        """
        free = np.zeros((num_agents, num_agents), bool)
        free[self._edges(num_agents)] = True
        absent = np.flatnonzero(~free)
        frozen = np.random.default_rng(self.seed).permutation(absent)[: round(self.freeze * absent.size)]
        free.reshape(-1)[np.setdiff1d(absent, frozen)] = True
        np.fill_diagonal(free, False)
        if self.symmetric:
            free &= free.T
        receiver, sender = np.nonzero(free)
        return torch.from_numpy(receiver), torch.from_numpy(sender)


class SocialGraph(NamedTuple):
    """Facts about who can talk to whom, self aside.

    Attributes:
        edges: number of pairs (receiver, sender) that can talk.
        degree_min, degree_mean, degree_max: senders to an agent.
        components: groups of agents between which nothing can pass; 1 where the graph is connected.
    """

    edges: int
    degree_min: int
    degree_mean: float
    degree_max: int
    components: int


def facts(num_agents: int, receiver: Tensor, sender: Tensor) -> SocialGraph:
    """Degrees and connectedness of learnable pairs."""
    degree = torch.bincount(receiver.cpu(), minlength=num_agents)
    label = torch.arange(num_agents)
    ends = receiver.cpu(), sender.cpu()
    while True:  # the smallest number in reach spreads until nothing changes
        spread = label.clone()
        for here, there in (ends, ends[::-1]):
            spread.scatter_reduce_(0, here, label[there], "amin")
        spread = spread[spread]
        if torch.equal(spread, label):
            break
        label = spread
    return SocialGraph(
        receiver.numel(),
        int(degree.min()),
        float(degree.float().mean()),
        int(degree.max()),
        int(label.unique().numel()),
    )


class SocialBias(nn.Module):
    """The matrix N that is added to the scores of the social attention, from one learnable number for each entry.

    Attributes:
        theta: `[entries]`, from 0.
        receiver, sender: int64 `[entries]`, saved with the weights: the graph travels with a checkpoint.
    """

    receiver: Tensor
    sender: Tensor

    def __init__(self, world: SmallWorld, num_agents: int) -> None:
        super().__init__()
        self.num_agents, self.symmetric = num_agents, world.symmetric
        receiver, sender = world.learnable(num_agents)
        self.theta = nn.Parameter(torch.zeros(receiver.numel()))
        self.register_buffer("receiver", receiver)
        self.register_buffer("sender", sender)

    def forward(self) -> Tensor:
        """N `[agents, agents]`: -inf where frozen, 1 on the diagonal, so that no row is ever fully masked."""
        theta = self.theta
        bias = theta.new_full((self.num_agents, self.num_agents), -torch.inf)
        bias = bias.index_put((self.receiver, self.sender), theta)
        if self.symmetric:
            bias = (bias + bias.T) / 2
        return torch.where(torch.eye(self.num_agents, dtype=torch.bool, device=bias.device), SELF_BIAS, bias)

    def facts(self) -> SocialGraph:
        """Degrees and connectedness."""
        return facts(self.num_agents, self.receiver, self.sender)


class EdgeBias(nn.Module):
    """Learnable biases along the edges of a sparse graph, every agent's edge to itself among them.

    Attributes:
        theta: `[edges]`, from 0, in the graph's canonical order (by receiver, then sender), without edges to self.
        receiver, sender: int64 `[edges + agents]`: the graph's edges, then each agent with itself.
    """

    receiver: Tensor
    sender: Tensor

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        sender, receiver = graph.edges()
        keep = sender != receiver
        own = torch.arange(graph.num_agents, device=sender.device)
        self.num_agents = graph.num_agents
        self.theta = nn.Parameter(torch.zeros(int(keep.sum()), device=sender.device))
        self.register_buffer("receiver", torch.cat([receiver[keep], own]))
        self.register_buffer("sender", torch.cat([sender[keep], own]))

    def forward(self) -> Tensor:
        """Bias of every edge, those to self (1) last: `[edges + agents]`."""
        return torch.cat([self.theta, self.theta.new_full((self.num_agents,), SELF_BIAS)])

    def dense(self) -> Tensor:
        """The same as a matrix `[agents, agents]`, -inf where there is no edge."""
        bias = self.theta.new_full((self.num_agents, self.num_agents), -torch.inf)
        return bias.index_put((self.receiver, self.sender), self())

    def facts(self) -> SocialGraph:
        """Degrees and connectedness."""
        edges = self.theta.numel()
        return facts(self.num_agents, self.receiver[:edges], self.sender[:edges])
