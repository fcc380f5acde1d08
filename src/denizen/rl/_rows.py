"""Rows: what each actor of each world sees and does, as policies take and give it."""

from typing import Any

from torch import Tensor

from denizen import _tree, ops
from denizen.model import Env, Observed
from denizen.rl._heads import in_world


def rows_of(observed: Observed, env: Env) -> Observed:
    """What is seen, with worlds and actors as one axis of rows; `acting` becomes bool `[rows]` where there is one."""
    if env.num_actors is None:
        return observed
    return _tree.map_tensors(lambda part: part.flatten(0, 1), observed)


def for_worlds(action: Tensor, env: Env) -> Any:
    """Actions of rows as worlds take them: of the space's dtypes, within its bounds, with an axis of actors if any."""
    space = env.action_space
    return by_actors(in_world(ops.rounded(action, space.dtype), space), env)


def by_actors(action: Any, env: Env) -> Any:
    """Actions of rows with an axis of actors, where there is one."""
    if env.num_actors is None:
        return action
    return _tree.map_tensors(lambda part: part.unflatten(0, (-1, env.num_actors)), action)
