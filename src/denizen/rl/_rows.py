"""Rows: what each actor of each world sees and does, as policies take and give it."""

from typing import Any

import torch
from torch import Tensor

from denizen import _spaces as trees
from denizen import _tree, ops
from denizen._roles import by_actor, places
from denizen.errors import ModelError
from denizen.model import Box, Discrete, Env, Observed, RoleView, Space


def rows_of(observed: Observed, env: Env) -> Observed:
    """What is seen, with worlds and actors as one axis of rows; `acting` becomes bool `[rows]` where there is one."""
    if env.num_actors is None:
        return observed
    return _tree.map_tensors(lambda part: part.flatten(0, 1), observed)


def for_worlds(action: Tensor, env: Env) -> Any:
    """Actions of rows as worlds take them: of the space's dtypes, within its bounds, with an axis of actors if any."""
    space = env.action_space
    return by_actors(in_world(ops.rounded(action, space.dtype), space), env)


def in_world(action: Tensor, space: Space) -> Any:
    """Actions as they were drawn, `[rows, …]`, as worlds take them: choices from `start` on, boxes within bounds."""

    def leafwise(part: Tensor, leaf: trees.Leaf) -> Tensor:
        if isinstance(leaf, Discrete):
            return part + leaf.start if leaf.start else part
        return leaf.nearest(part) if isinstance(leaf, Box) else part

    return trees.mapped(space, leafwise, trees.unpacked(space, action))


def as_drawn(action: Any, space: Space) -> Tensor:
    """The inverse of `in_world`, of what a teacher does."""

    def leafwise(part: Tensor, leaf: trees.Leaf) -> Tensor:
        return part - leaf.start if isinstance(leaf, Discrete) and leaf.start else part

    return trees.packed(space, trees.mapped(space, leafwise, action))


def by_actors(action: Any, env: Env) -> Any:
    """Actions of rows with an axis of actors, where there is one."""
    if env.num_actors is None:
        return action
    return _tree.map_tensors(lambda part: part.unflatten(0, (-1, env.num_actors)), action)


def seen_by(view: RoleView, observed: Observed) -> Observed:
    """What the actors of some roles see, as in a world that has no others: `[worlds, actors, …]`.

    Raises:
        ModelError: roles of one policy differ in what is privileged.
    """
    roles, names = view.env.roles, view.names
    assert roles is not None
    space, where = view.observation_space, places(roles)
    looks = [trees.packed(space, by_actor(roles[n].count, space, observed.observation[n])) for n in names]
    mask = extra = acting = None
    if observed.action_mask is not None:
        sizes = [role.count * sum(role.action_space.factors) for role in roles.values()]
        parts = dict(zip(roles, observed.action_mask.split(sizes, -1), strict=True))
        mask = side_by_side([parts[name].unflatten(-1, (roles[name].count, -1)) for name in names])
    if observed.privileged is not None:
        shapes = {n: tuple(observed.privileged[n].shape[2:]) if n in observed.privileged else None for n in names}
        if len(set(shapes.values())) > 1:
            told = ", ".join(f"{name!r} {shape or 'nothing'}" for name, shape in shapes.items())
            raise ModelError(f"{view.env._called}.privileged gave {told}, and one policy plays these roles; give alike")
        if shapes[names[0]] is not None:
            extra = side_by_side([observed.privileged[name] for name in names])
    if observed.acting is not None:
        acting = side_by_side([observed.acting[:, where[name]] for name in names])
    return Observed(side_by_side(looks), mask, extra, acting)


def side_by_side(parts: list[Tensor]) -> Tensor:
    """What actors of several roles have, as that of all of them."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
