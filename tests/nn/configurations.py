"""The configurations in which every form of the network has to agree."""

import dataclasses

import torch

from denizen.nn import DotGATConfig, Isolated, SmallWorld
from denizen.space import Graph

SMALL = DotGATConfig(
    num_agents=5, num_features=4, hidden=8, num_heads=2, num_outputs=3, message_steps=2, social=SmallWorld(neighbours=2)
)


def small(**changes):
    return dataclasses.replace(SMALL, **changes)


def ring(num_agents):
    return Graph.from_edges([*range(num_agents)], [*range(1, num_agents), 0], num_agents, directed=False)


CONFIGURATIONS = {
    "plain": SMALL,
    "own v": small(shared_v=False),
    "no memory": small(memory=False),
    "everyone": small(social=None),
    "unfrozen": small(social=SmallWorld(neighbours=2, freeze=0.5, rewire_prob=0.3)),
    "symmetric": small(social=SmallWorld(neighbours=2, freeze=0.5, symmetric=True)),
    "edges": small(social=ring(5)),
    "empty neighbourhoods": small(social=Graph.from_edges([0], [1], 5)),
    "isolated": small(social=Isolated()),
    "one agent": small(num_agents=1),
    "two agents": small(num_agents=2),
    "no steps": small(message_steps=0),
}


def random_model(cls, config, sensing=None, seed=0, dtype=torch.float64):
    """A model whose gains, biases and edges are not what they start from, so that each of them shows."""
    torch.manual_seed(seed)
    model = cls(config, sensing).to(dtype)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    return model.eval()


def some_sensing(config, seed=1):
    seen = (
        torch.rand(config.num_agents, config.num_features, generator=torch.Generator().manual_seed(seed)) < 0.6
    ).float()
    seen[:, 0] = 1
    return seen
