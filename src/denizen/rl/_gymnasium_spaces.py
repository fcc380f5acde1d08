"""Spaces and values between denizen and Gymnasium; imports gymnasium, so it is imported late itself."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from denizen.errors import InputError
from denizen.model import Box, Discrete, Space


def to_space(space: Space) -> Any:
    """A space of Gymnasium's from one of denizen's."""
    if isinstance(space, Discrete):
        return spaces.Discrete(space.n)
    if space.dtype == torch.bool:
        return spaces.MultiBinary(space.shape)
    dtype = torch.zeros((), dtype=space.dtype).numpy().dtype
    return spaces.Box(space.low, space.high, space.shape, dtype=dtype.type)  # type: ignore[arg-type]


def from_space(space: Any, name: str) -> Space:
    """A space of denizen's from one of Gymnasium's.

    Raises:
        InputError: there is none like it.
    """
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.MultiBinary):
        return Box(0, 1, tuple(space.shape), torch.int8)
    if isinstance(space, spaces.Box):
        dtype = torch.as_tensor(np.zeros(0, space.dtype)).dtype
        if dtype == torch.float64:
            dtype = torch.float32
        low, high = float(space.low.min()), float(space.high.max())
        return Box(low, high if high > low else low + 1, tuple(space.shape), dtype)
    raise InputError(
        f"FromGymnasium: {name} is {space}, expected a Discrete or a Box; wrap the environment, for example with "
        f"gymnasium.wrappers.FlattenObservation"
    )


def array(tensor: Tensor) -> np.ndarray:
    """A NumPy copy."""
    return tensor.detach().cpu().numpy().copy()
