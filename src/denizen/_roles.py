"""Roles: kinds of actors in one world, each with spaces of its own.

To the engine a world with roles is one with a `Dict` of actions and of observations: what all actors of a role do or
see is one part of it. An author has `[count, …]` of each role; both hold the same numbers.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from denizen import _spaces as trees
from denizen._arguments import whole
from denizen._spaces import Box, Discrete, MultiBinary, MultiDiscrete
from denizen.errors import InputError, ModelError

Roles = Mapping[str, "Role"]


@dataclasses.dataclass(frozen=True)
class Role:
    """What the actors of one kind have in common: they see and do the like, and share a policy.

    Attributes:
        count: actors of this kind in one world.
        observation_space: of one of them.
        action_space: of one of them.
    """

    count: int
    observation_space: trees.Space
    action_space: trees.Space

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", whole("Role", "count", self.count, 1))
        for name in ("observation_space", "action_space"):
            space = getattr(self, name)
            if not isinstance(space, trees.Space):
                raise InputError(f"Role: {name} is {space!r}, expected a space of dz.rl, such as dz.rl.Discrete(3)")
            if any(isinstance(leaf, Discrete) and leaf.start for _, leaf in trees.leaves(space)):
                raise InputError(f"Role: {name} is {space}; choices of roles are numbered from 0, so leave start out")


def beside(space: trees.Space, count: int) -> trees.Space:
    """The space of what so many actors do or see together."""
    match space:
        case Box():
            return Box(space.low, space.high, (count, *space.shape), space.dtype)
        case Discrete():
            return MultiDiscrete((space.n,) * count)
        case MultiDiscrete():
            return MultiDiscrete(space.nvec * count)
        case MultiBinary():
            return MultiBinary(space.n * count)
        case trees.Dict():
            return trees.Dict({name: beside(part, count) for name, part in space.items()})
    return trees.Tuple(tuple(beside(part, count) for _, part in space.items()))


def together(roles: Roles, attribute: str) -> trees.Dict:
    """The space of a world: ``"action_space"`` or ``"observation_space"`` of all actors."""
    return trees.Dict({name: beside(getattr(role, attribute), role.count) for name, role in roles.items()})


def by_actor(count: int, space: trees.Space, value: Any) -> Any:
    """What so many actors do or see together, `[*lead, …]` at each leaf, as `[*lead, count, …]`."""
    joint = beside(space, count)
    parts = zip(trees.values(joint, value), trees.leaves(joint), trees.leaves(space), strict=True)
    return trees.built(
        space,
        [
            part.reshape(*part.shape[: part.dim() - len(both.shape)], count, *leaf.shape)
            for part, (_, both), (_, leaf) in parts
        ],
    )


def of_all(count: int, space: trees.Space, value: Any) -> Any:
    """The inverse of `by_actor`."""
    joint = beside(space, count)
    parts = zip(trees.values(space, value), trees.leaves(joint), trees.leaves(space), strict=True)
    return trees.built(
        joint,
        [
            part.reshape(*part.shape[: part.dim() - len(leaf.shape) - 1], *both.shape)
            for part, (_, both), (_, leaf) in parts
        ],
    )


def places(roles: Roles) -> dict[str, slice]:
    """Where the actors of each role are among all."""
    found, begin = {}, 0
    for name, role in roles.items():
        found[name] = slice(begin, begin + role.count)
        begin += role.count
    return found


def checked(roles: Roles, value: Any, what: str, *, some: bool = False) -> dict[str, Any]:
    """What an author gave by role, in the order of the roles.

    Args:
        roles: of the environment.
        value: what came.
        what: who gave it, for messages.
        some: roles may be left out.

    Raises:
        ModelError: it is no such dict.
    """
    fits = isinstance(value, Mapping) and (value.keys() <= roles.keys() if some else value.keys() == roles.keys())
    if not fits:
        had = f"a dict with {', '.join(map(repr, value))}" if isinstance(value, Mapping) else type(value).__name__
        raise ModelError(f"{what} gave {had}; expected a dict with {', '.join(map(repr, roles))}")
    return {name: value[name] for name in roles if name in value}


def of_actors(given: Any, count: int, what: str, more: tuple[int, ...] = ()) -> Tensor:
    """A tensor `[count, *more]` that an author gave; raises `ModelError` for anything else."""
    if not isinstance(given, Tensor) or given.shape != (count, *more):
        found = tuple(given.shape) if isinstance(given, Tensor) else f"{type(given).__name__} {given!r:.60}"
        raise ModelError(f"{what} gave {found}; expected a tensor of shape {(count, *more)}")
    return given


def flags(given: Tensor, what: str) -> Tensor:
    """As bool; raises `ModelError` for numbers."""
    if given.is_floating_point() or given.is_complex():
        raise ModelError(f"{what} gave {given.dtype}; expected bool, such as a comparison gives")
    return given.to(torch.bool)
