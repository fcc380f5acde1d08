"""Spaces of Gymnasium's from ours and back, and values as NumPy has them: for all adapters."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen import _tree
from denizen._spaces import Leaf, at, leaves, mapped, values
from denizen.errors import InputError
from denizen.model import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

ROUNDING = 1e-6  # of what other libraries scale in float32

# In which values of a Box are kept: float64 in less, what torch hardly computes in, in more.
_DTYPES = {
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float32,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "uint16": torch.int32,
    "uint32": torch.int64,
    "bool": torch.bool,
}


def to_space(space: Space) -> Any:
    """A space of Gymnasium's from one of denizen's."""
    from gymnasium import spaces

    if isinstance(space, Discrete):
        return spaces.Discrete(space.n, start=space.start)
    if isinstance(space, MultiDiscrete):
        return spaces.MultiDiscrete(list(space.nvec))
    if isinstance(space, MultiBinary):
        return spaces.MultiBinary(space.n)
    if isinstance(space, Dict):
        return spaces.Dict([(name, to_space(part)) for name, part in space.items()])
    if isinstance(space, Tuple):
        return spaces.Tuple([to_space(part) for part in space.spaces])
    if space.dtype == torch.bool:
        return spaces.MultiBinary(space.shape)
    dtype = array(torch.zeros((), dtype=space.dtype)).dtype
    low, high = _entries(space.low, dtype, math.ceil), _entries(space.high, dtype, math.floor)
    return spaces.Box(low, high, space.shape, dtype=dtype.type)  # type: ignore[arg-type]


def _entries(bound: Any, dtype: np.dtype, whole: Callable[[float], int]) -> Any:
    """A bound as numbers that a dtype holds: one, or an array of it."""
    if isinstance(bound, tuple):
        entries = [_entries(entry, dtype, whole) for entry in bound]
        return np.array(entries, dtype)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return float(dtype.type(bound))
    limits = np.iinfo(dtype)
    if math.isinf(bound):
        return int(limits.min if bound < 0 else limits.max)
    return min(max(whole(bound), int(limits.min)), int(limits.max))


def from_space(space: Any, name: str) -> Space:
    """A space of denizen's from one of Gymnasium's.

    Raises:
        InputError: there is none like it.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1 and not np.any(space.start):
        return MultiDiscrete(tuple(space.nvec.tolist()))
    if isinstance(space, spaces.MultiBinary):
        return MultiBinary(*space.shape) if len(space.shape) == 1 else Box(0, 1, tuple(space.shape), torch.int8)
    if isinstance(space, spaces.Dict) and all(isinstance(key, str) for key in space):
        return Dict({key: from_space(part, f"{name}[{key!r}]") for key, part in space.items()})
    if isinstance(space, spaces.Tuple):
        return Tuple(tuple(from_space(part, f"{name}[{place}]") for place, part in enumerate(space)))
    if isinstance(space, spaces.Box) and space.dtype.name in _DTYPES:
        return Box(space.low, space.high, tuple(space.shape), _DTYPES[space.dtype.name])
    found = type(space).__name__
    if isinstance(space, spaces.Box):
        found = f"Box of {space.dtype}"
    elif isinstance(space, spaces.MultiDiscrete):
        found = "MultiDiscrete with a start or several axes"
    instead = "FlattenObservation" if "observation" in name else "TransformAction"
    raise InputError(
        f"FromGymnasium: {name} is {space}, expected Discrete, MultiDiscrete, MultiBinary, Box, Dict or Tuple; there "
        f"is no {found} here: wrap the environment, for example with gymnasium.wrappers.{instead}"
    )


def array(tensor: Tensor) -> np.ndarray:
    """A NumPy copy; of bfloat16, which NumPy lacks, in float32."""
    tensor = tensor.to(torch.float32) if tensor.dtype == torch.bfloat16 else tensor
    return tensor.detach().cpu().numpy().copy()


def arrays(tree: Any) -> Any:
    """`array` of every tensor of a tree."""
    return _tree.map_tensors(array, tree)


def tensors_of(space: Space, given: Any) -> Any:
    """What a user gives as actions, NumPy or numbers, as tensors.

    Other libraries scale actions to the bounds of a space, which by rounding may end a little beyond them.
    """
    if isinstance(space, Dict | Tuple):
        return mapped(space, lambda part, leaf: tensors_of(leaf, part), given)
    action = torch.as_tensor(given)
    if not isinstance(space, Box) or not action.is_floating_point():
        return action
    near = space.nearest(action)
    return torch.where((action - near).abs() <= ROUNDING * (1 + near.abs()), near, action)


def checked_parts(space: Space, action: Any, what: str) -> Any:
    """One action, whose parts have the shapes of a space; raises `InputError` elsewhere."""
    try:
        parts = values(space, action)
    except InputError as error:
        raise InputError(f"{what} {error}") from error
    for part, (path, leaf) in zip(parts, leaves(space), strict=True):
        if np.shape(part) != leaf.shape:
            raise InputError(f"{what} has shape {np.shape(part)}{at(path)}, expected {leaf.shape}")
    return action


def to_dtype(values: Any, space: Space) -> Any:
    """A copy of what Gymnasium gave, in the dtype of a space."""
    return np.array(values, dtype=array(torch.zeros((), dtype=space.dtype)).dtype)


def leaves_of(space: Any) -> list[Any]:
    """Gymnasium's spaces without parts, in the order of `from_space`."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return [leaf for part in space.values() for leaf in leaves_of(part)]
    return [leaf for part in space for leaf in leaves_of(part)] if isinstance(space, spaces.Tuple) else [space]


def check_inside(action: Tensor, space: Leaf, theirs: Any, name: str) -> Any:
    """Actions `[environments, …]` on the host as Gymnasium takes them.

    Raises:
        InputError: one lies outside its space.
    """
    wide = action if action.is_floating_point() else action.to(torch.int64)  # of some dtypes torch compares none
    outside = space.fault(wide).reshape(wide.shape[0], -1).any(1)
    if bool(outside.any()):
        row = int(outside.nonzero()[0])
        raise InputError(f"{name} {action[row].tolist()} of environment {row} lies outside {space}")
    given = wide.numpy()
    if hasattr(theirs, "low"):  # in its own precision a bound may lie a little within what it is here
        given = given.clip(theirs.low, theirs.high)
    return given.astype(theirs.dtype)
