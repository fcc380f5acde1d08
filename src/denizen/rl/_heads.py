"""Heads: how the numbers of an actor's linear layer become a distribution over the actions of a space."""

import math

import torch
from torch import Tensor

from denizen.model import Box, Discrete, Space
from denizen.rl._distributions import Categorical, Categoricals, Distribution, Gaussian


def numbers_of(space: Space) -> int:
    """How many numbers the actor gives: a logit for each choice of each factor, a mean for each number of a box."""
    return math.prod(space.shape) if isinstance(space, Box) else sum(space.factors)


def draws_of(space: Space) -> int:
    """How many uniform numbers a draw of one action takes."""
    return math.prod(space.shape)


def distribution_of(space: Space, numbers: Tensor, open_: Tensor | None, log_std: Tensor | None) -> Distribution:
    """What the actor's numbers say.

    Args:
        space: of actions.
        numbers: `[rows, numbers_of(space)]`.
        open_: bool `[rows, choices]`: which choices are open; None: all.
        log_std: of a box's numbers.
    """
    if isinstance(space, Discrete):
        return Categorical.of(numbers, open_)
    if not isinstance(space, Box):
        return Categoricals.of(numbers, space.factors, open_)
    assert log_std is not None
    return Gaussian(numbers.to(torch.float32), log_std, space.shape)


def in_world(action: Tensor, space: Space) -> Tensor:
    """Actions as they were drawn, `[rows, …]`, as worlds take them: choices from `start` on, boxes within bounds."""
    if isinstance(space, Discrete):
        return action + space.start if space.start else action
    return space.nearest(action) if isinstance(space, Box) else action


def as_drawn(action: Tensor, space: Space) -> Tensor:
    """The inverse of `in_world`, of what a teacher does."""
    return action - space.start if isinstance(space, Discrete) and space.start else action
