"""The zoo's worlds by name for Gymnasium."""

import functools
from typing import Any

import torch

import denizen as dz
from denizen.errors import need
from denizen.zoo._entry import WorldEntry, entries

VERSION = "v0"


def register_gymnasium() -> list[str]:
    """Register the zoo's worlds with Gymnasium: `gymnasium.make("denizen/cartpole-v0")` makes a single world from then
    on, `gymnasium.make_vec("denizen/cartpole-v0", num_envs=64)` worlds on the device.

    Both take the options of the world, `seed` and `device`; the first `render_mode`, the second `autoreset` and
    `tensors`, as `dz.rl.to_gymnasium` has them.

    Returns:
        The ids.

    Raises:
        MissingExtra: gymnasium is not installed.
    """
    gymnasium = need("gymnasium", "gym", "register worlds with Gymnasium")
    ids = []
    for name, entry in entries(WorldEntry).items():
        ids.append(f"denizen/{name}-{VERSION}")
        if ids[-1] not in gymnasium.registry:
            one, many = functools.partial(_world, entry), functools.partial(_worlds, entry)
            gymnasium.register(ids[-1], entry_point=one, vector_entry_point=many)
    return ids


def _world(
    entry: WorldEntry,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
    render_mode: str | None = None,
    **options: Any,
) -> Any:
    return dz.rl.to_gymnasium(entry.build(**options), seed=seed, device=device, render_mode=render_mode)


def _worlds(
    entry: WorldEntry,
    *,
    num_envs: int = 1,
    seed: int = 0,
    device: torch.device | str | None = None,
    tensors: bool = False,
    autoreset: str = "same_step",
    **options: Any,
) -> Any:
    worlds = dz.rl.Worlds(entry.build(**options), num_envs, seed=seed, device=device, max_resets=num_envs)
    return dz.rl.to_gymnasium(worlds, tensors=tensors, autoreset=autoreset)
