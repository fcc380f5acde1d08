"""Heads: how the numbers of an actor's linear layer become a distribution over the actions of a space."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from denizen import _spaces as trees
from denizen import ops
from denizen.errors import InputError
from denizen.model import Box, Dict, Discrete, Env, Space, Tuple
from denizen.rl._distributions import BoxDistribution, Categorical, Categoricals, Distribution, Gaussian


class Joint(NamedTuple):
    """Independent distributions over the leaves of a space; actions are rows of bytes, as they are stored.

    Attributes:
        parts: of each leaf, in order.
        draws: uniform numbers that each takes.
        space: of actions.
    """

    parts: tuple[Distribution, ...]
    draws: tuple[int, ...]
    space: Dict | Tuple

    def sample(self, uniform: Tensor) -> Tensor:
        """Of each leaf with uniform numbers of its own, side by side: `[rows, sum of draws]`."""
        given = uniform.split(self.draws, -1)
        return self._packed([part.sample(own) for part, own in zip(self.parts, given, strict=True)])

    def mode(self) -> Tensor:
        """The likeliest action of each leaf."""
        return self._packed([part.mode() for part in self.parts])

    def log_prob(self, action: Tensor) -> Tensor:
        """Sum over the leaves."""
        given = trees.values(self.space, trees.unpacked(self.space, action))
        return _total([part.log_prob(own) for part, own in zip(self.parts, given, strict=True)])

    def entropy(self) -> Tensor:
        """Sum over the leaves."""
        return _total([part.entropy() for part in self.parts])

    def kl(self, other: "Joint") -> Tensor:
        """Sum over the leaves."""
        return _total([part.kl(its) for part, its in zip(self.parts, other.parts, strict=True)])

    def _packed(self, drawn: list[Tensor]) -> Tensor:
        """As they are kept: ratios begin at 1."""
        leaves = zip(drawn, trees.leaves(self.space), strict=True)
        kept = [ops.rounded(part, leaf.dtype) for part, (_, leaf) in leaves]
        return trees.packed(self.space, trees.built(self.space, kept))


def _total(rows: list[Tensor]) -> Tensor:
    return torch.stack(rows).sum(0)


def check_distribution(kind: Any, space: Space, what: str) -> None:
    """Raise `InputError` where this is no class of distributions over a box's numbers, or does not fit the space."""
    if not isinstance(kind, type) or not all(hasattr(kind, name) for name in ("of", "check", "each", "draws")):
        raise InputError(
            f"{what}: distribution={kind!r}, expected dz.rl.Gaussian, dz.rl.SquashedGaussian or dz.rl.Beta"
        )
    boxes = [leaf for _, leaf in trees.leaves(space) if isinstance(leaf, Box)]
    if not boxes and kind is not Gaussian:
        raise InputError(f"{what}: distribution={kind.__name__} is over the numbers of a Box, and actions are {space}")
    for box in boxes:
        kind.check(box, what)  # type: ignore[attr-defined]


def check_drawn(env: Env) -> None:
    """Raise `InputError` where a policy could not draw the actions of an environment."""
    space = env.action_space
    if any(isinstance(leaf, Box) and not leaf.dtype.is_floating_point for _, leaf in trees.leaves(space)):
        raise InputError(
            f"policy: {env._called} has action_space {space} of whole numbers, and for a Box policies draw real "
            f"ones; declare dz.rl.Discrete(n), or a float32 Box whose numbers step rounds"
        )


def numbers_of(space: Space, kind: BoxDistribution) -> int:
    """How many numbers the actor gives: a logit for each choice of each factor, and those of a box's distribution."""
    return sum(
        kind.each * math.prod(leaf.shape) if isinstance(leaf, Box) else sum(leaf.factors)
        for _, leaf in trees.leaves(space)
    )


def draws_of(space: Space, kind: BoxDistribution) -> int:
    """How many uniform numbers a draw of one action takes."""
    return sum((kind.draws if isinstance(leaf, Box) else 1) * math.prod(leaf.shape) for _, leaf in trees.leaves(space))


def stds_of(space: Space, kind: BoxDistribution) -> int:
    """How many numbers have a standard deviation that is learnt."""
    boxes = [leaf for _, leaf in trees.leaves(space) if isinstance(leaf, Box) and kind.learns_std]
    return sum(math.prod(box.shape) for box in boxes)


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
    if not isinstance(space, trees.Tree):
        return Categoricals.of(numbers, space.factors, open_)
    leaves = [leaf for _, leaf in trees.leaves(space)]
    given = numbers.split([numbers_of(leaf, kind) for leaf in leaves], -1)
    masks = [None] * len(leaves) if open_ is None else open_.split([sum(leaf.factors) for leaf in leaves], -1)
    stds = [None] * len(leaves) if log_std is None else log_std.split([stds_of(leaf, kind) for leaf in leaves], -1)
    parts = zip(leaves, given, masks, stds, strict=True)
    made = tuple(distribution_of(leaf, kind, own, mask, std) for leaf, own, mask, std in parts)
    return Joint(made, tuple(draws_of(leaf, kind) for leaf in leaves), space)
