"""Worlds of several actors for PettingZoo's users."""

from typing import Any

import torch

from denizen.errors import need
from denizen.model import Env
from denizen.rl._worlds import Worlds


def to_pettingzoo(env: Env, *, seed: int = 0, device: torch.device | str | None = None) -> Any:
    """One world as a PettingZoo `ParallelEnv`, with its actors as ``"agent_0"``, ``"agent_1"``, ….

    Args:
        env: the environment; one without actors of its own has one agent.
        seed: of the random numbers.
        device: None: CUDA where there is a device that works, else the CPU.

    Returns:
        A `pettingzoo.ParallelEnv`. `agents` are those that act; one that drops out is terminated. Action masks are in
        the infos.

    Raises:
        InputError: an argument does not fit.
        MissingExtra: pettingzoo is not installed.

    Examples:
        >>> import denizen as dz
        >>> from denizen.zoo.probes import Padded
        >>> world = dz.rl.to_pettingzoo(Padded(actors=2))
        >>> observations, infos = world.reset(seed=1)
        >>> sorted(observations)
        ['agent_0', 'agent_1']
    """
    need("pettingzoo", "gym", "make a PettingZoo environment")
    from denizen.rl._pettingzoo_parallel import PettingZooWorld

    return PettingZooWorld(Worlds(env, 1, seed=seed, device=device, max_resets=0))
