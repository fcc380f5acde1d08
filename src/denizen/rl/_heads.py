"""Heads: how the numbers of an actor's linear layer become a distribution over the actions of a space."""

import math
from typing import Any

from torch import Tensor

from denizen.errors import InputError
from denizen.model import Box, Discrete, Space
from denizen.rl._distributions import BoxDistribution, Categorical, Categoricals, Distribution, Gaussian


def check_distribution(kind: Any, space: Space, what: str) -> None:
    """Raise `InputError` where this is no class of distributions over a box's numbers, or does not fit the space."""
    if not isinstance(kind, type) or not all(hasattr(kind, name) for name in ("of", "check", "each", "draws")):
        raise InputError(
            f"{what}: distribution={kind!r}, expected dz.rl.Gaussian, dz.rl.SquashedGaussian or dz.rl.Beta"
        )
    if isinstance(space, Box):
        kind.check(space, what)  # type: ignore[attr-defined]
    elif kind is not Gaussian:
        raise InputError(f"{what}: distribution={kind.__name__} is over the numbers of a Box, and actions are {space}")


def numbers_of(space: Space, kind: BoxDistribution) -> int:
    """How many numbers the actor gives: a logit for each choice of each factor, and those of a box's distribution."""
    return kind.each * math.prod(space.shape) if isinstance(space, Box) else sum(space.factors)


def draws_of(space: Space, kind: BoxDistribution) -> int:
    """How many uniform numbers a draw of one action takes."""
    return (kind.draws if isinstance(space, Box) else 1) * math.prod(space.shape)


def stds_of(space: Space, kind: BoxDistribution) -> int:
    """How many numbers have a standard deviation that is learnt."""
    return math.prod(space.shape) if isinstance(space, Box) and kind.learns_std else 0


def distribution_of(
    space: Space, kind: BoxDistribution, numbers: Tensor, open_: Tensor | None, log_std: Tensor | None
) -> Distribution:
    """What the actor's numbers say.

    Args:
        space: of actions.
        kind: over a box's numbers.
        numbers: `[rows, numbers_of(space, kind)]`.
        open_: bool `[rows, choices]`: which choices are open; None: all.
        log_std: of a box's numbers.
    """
    if isinstance(space, Discrete):
        return Categorical.of(numbers, open_)
    if isinstance(space, Box):
        return kind.of(numbers, log_std, space)
    return Categoricals.of(numbers, space.factors, open_)


def in_world(action: Tensor, space: Space) -> Tensor:
    """Actions as they were drawn, `[rows, …]`, as worlds take them: choices from `start` on, boxes within bounds."""
    if isinstance(space, Discrete):
        return action + space.start if space.start else action
    return space.nearest(action) if isinstance(space, Box) else action


def as_drawn(action: Tensor, space: Space) -> Tensor:
    """The inverse of `in_world`, of what a teacher does."""
    return action - space.start if isinstance(space, Discrete) and space.start else action
