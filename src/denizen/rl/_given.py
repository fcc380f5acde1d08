"""Parameters that differ between worlds."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from denizen.errors import InputError, nearest
from denizen.model import Env


class Given(nn.Module):
    """Parameters of worlds as buffers: functions that are recorded take them as inputs, so that they may change."""

    def __init__(self, env: Env, num_envs: int, params: Mapping[str, Any], device: torch.device) -> None:
        """Args:
        env: whose parameters.
        num_envs: number of worlds.
        params: values by name, each with a leading axis of `num_envs`.
        device: of the worlds.

        Raises:
            InputError: an unknown name, another shape, or a value out of bounds.
        """
        super().__init__()
        for name, value in params.items():
            spec = env.params.get(name)
            if spec is None:
                known = nearest(name, env.params)
                raise InputError(f"Worlds: params has {name!r}, which {type(env).__name__} has not; {known}")
            tensor = numbers(name, value).to(device)
            if tensor.shape != (num_envs, *spec.shape):
                raise InputError(
                    f"Worlds: params[{name!r}] has shape {tuple(tensor.shape)}, expected {(num_envs, *spec.shape)}: "
                    f"one for each world"
                )
            spec.check(tensor, f"Worlds: params[{name!r}]")
            self.register_buffer(f"value_{name}", tensor, persistent=False)  # a plain name may be one of nn.Module's

    def values(self) -> dict[str, Tensor]:
        """By name."""
        return {name.removeprefix("value_"): value for name, value in self._buffers.items() if value is not None}


def numbers(name: str, value: Any) -> Tensor:
    """Values of a parameter as float32; raises `InputError` where they are none."""
    try:
        return torch.as_tensor(value, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"params[{name!r}] = {value!r}: expected numbers, one for each world; a schedule is for dz.train"
        ) from error
