"""Opinions that follow those of others: a model with known contacts, and one whose agents learn whom to follow.

The worked example of agent attention networks inside the engine: runs of `Opinions` are what a network learns from,
its attention shows who influences whom, and `Learnt` runs the network in place of the rule, with the same whims.
"""

import torch
from torch import Tensor, nn

import denizen as dz
from denizen.errors import InputError
from denizen.nn import AttentionMaps, DotGATConfig, DynamicDotGAT, SmallWorld, attention_maps
from denizen.zoo._contacts import check_whole

GAIN, WHIM = 1.5, 0.2


class People(dz.State):
    """What everybody thinks."""

    opinion: Tensor = dz.real("agents")


class Opinions(dz.Model):
    """Everybody follows the mean opinion of their contacts, a little too strongly, with noise.

    opinion' = tanh(1.5 · mean opinion of contacts) + N(0, 0.2)
    """

    contacts: dz.Graph

    def fits(self, dt: float) -> None:
        """Refuse steps that are no rounds."""
        check_whole("Opinions", dt, "a step is a whole round of listening, and its whims are those of one")

    def init(self, rng: dz.rng.Rng) -> People:
        """Opinions from -1 to 1."""
        return People(opinion=rng.uniform("first", -1.0, 1.0))

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        """Listen, and follow."""
        heard = self.contacts.mean(now.opinion)
        return now.replace(opinion=torch.tanh(GAIN * heard) + rng.normal("whim", 0.0, WHIM))

    @dz.series
    def opinions(self, before: People, now: People) -> Tensor:
        """Everybody's opinion after the step."""
        return now.opinion


class Learnt(dz.Model):
    """The same people, who follow a trained network. Its agents know their own opinion, and talk."""

    network: nn.Module
    num_agents: int = 1

    def fits(self, dt: float) -> None:
        """Refuse steps that are no rounds."""
        check_whole("Learnt", dt, "a step is a whole round of talking, which is what the network has learnt")

    def init(self, rng: dz.rng.Rng) -> People:
        """Opinions from -1 to 1: the same as those of `Opinions` with the same seed."""
        return People(opinion=rng.uniform("first", -1.0, 1.0))

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        """Talk, and follow what comes of it."""
        following = self.network(_seen(now.opinion)[None, None]).outputs[0, 0, :, 0]
        return now.replace(opinion=following + rng.normal("whim", 0.0, WHIM))

    @dz.series
    def opinions(self, before: People, now: People) -> Tensor:
        """Everybody's opinion after the step."""
        return now.opinion


def learn(opinions: Tensor, epochs: int = 60, seed: int = 0) -> DynamicDotGAT:
    """A network whose agents see only their own opinion, and predict their next one.

    All pairs may talk, with biases that are learnt from 0: nothing is said of who influences whom.

    Args:
        opinions: `[replicates, steps, agents]`, at least two steps.
        epochs: passes over all replicates.
        seed: of first weights and order.

    Raises:
        InputError: another shape.
    """
    if opinions.ndim != 3 or opinions.shape[1] < 2:
        raise InputError(f"opinions has shape {tuple(opinions.shape)}: expected [replicates, at least 2 steps, agents]")
    agents = opinions.shape[2]
    sensing = torch.cat([torch.eye(agents), torch.ones(agents, 1)], 1)
    torch.manual_seed(seed)
    network = DynamicDotGAT(
        DotGATConfig(
            num_agents=agents,
            num_features=agents + 1,
            hidden=16,
            num_heads=2,
            message_steps=1,
            memory=False,
            social=SmallWorld(neighbours=0, freeze=0.0),
            dropout=0.0,
        ),
        sensing,
    )
    optimizer = torch.optim.AdamW(network.parameters(), 1e-2)
    inputs = _seen(opinions)
    for _ in range(epochs):
        for rows in torch.randperm(len(opinions)).split(64):
            optimizer.zero_grad()
            predicted = network(inputs[rows, :-1]).outputs[..., 0]
            (predicted - opinions[rows, 1:]).square().mean().backward()
            optimizer.step()
    return network.eval().requires_grad_(False)


def influence(network: DynamicDotGAT, opinions: Tensor) -> Tensor:
    """How much an agent (row) listens to another (column): the mean attention, `[agents, agents]`."""
    maps: AttentionMaps = attention_maps(network, _seen(opinions))
    assert maps.social is not None
    return maps.social.mean((0, 1))


def _seen(opinions: Tensor) -> Tensor:
    """Opinions and a constant, which keeps their size through the first norm: `[…, agents + 1]`."""
    return torch.nn.functional.pad(opinions, (0, 1), value=1.0)
