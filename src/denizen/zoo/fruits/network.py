"""The network of the program that the game comes from, without dropout."""

import torch
from torch import Tensor, nn

from denizen.rl import ActorCritic
from denizen.zoo.fruits.model import Fruits


class Body(nn.Module):
    """The network but for its last layer.

    z0 = W o, z1 = z0 + LayerNorm(GELU(z0)), z2 = GELU(W z1 + b), GELU in its form with tanh.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        """Args:
        inputs: numbers in an observation.
        hidden: width of both layers.
        """
        super().__init__()
        self.enter, self.norm = nn.Linear(inputs, hidden, bias=False), nn.LayerNorm(hidden)
        self.deep = nn.Linear(hidden, hidden)
        nn.init.normal_(self.enter.weight, std=0.02)
        nn.init.kaiming_normal_(self.deep.weight)
        nn.init.zeros_(self.deep.bias)

    def forward(self, observation: Tensor) -> Tensor:
        """Features `[rows, hidden]` of observations `[rows, inputs]`."""
        shown = self.enter(observation)
        shown = shown + self.norm(nn.functional.gelu(shown, approximate="tanh"))
        return nn.functional.gelu(self.deep(shown), approximate="tanh")


def original_policy(env: Fruits, hidden: int = 2048, *, seed: int = 0) -> ActorCritic:
    """The original's policy: 4,227,075 parameters that act at width 2,048.

    Args:
        env: whose observations it takes.
        hidden: width.
        seed: of the first weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = ActorCritic(env, Body(env.observation_space.shape[0], hidden))
        nn.init.normal_(policy.actor.weight, std=0.01)
    return policy
