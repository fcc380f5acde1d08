"""Leduc poker; see README.md."""

import denizen as dz
from denizen.zoo import WorldEntry

from .model import Leduc as Leduc
from .model import Table as Table


def leduc(pool: int = 64, every: int = 2, latest: float = 0.2) -> dz.rl.SelfPlay:
    """Leduc poker by self-play; in an evaluation against random moves.

    Args:
        pool: earlier policies that are kept.
        every: updates between two of them.
        latest: share of games against the policy as it is.
    """
    return dz.rl.SelfPlay(Leduc(), pool=pool, every=every, latest=latest)


ENTRY = WorldEntry(about="Leduc poker by self-play", build=leduc, settings={"ppo": {"num_envs": 256, "num_steps": 16}})
