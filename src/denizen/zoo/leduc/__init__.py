"""Leduc poker; see README.md."""

import denizen as dz
from denizen.zoo import WorldEntry

from .model import Leduc as Leduc
from .model import Table as Table


def leduc(pool: int = 1, every: int = 2, latest: float = 1.0) -> dz.rl.SelfPlay:
    """Leduc poker by self-play; in an evaluation against random moves.

    Args:
        pool: earlier policies that are kept.
        every: updates between two of them.
        latest: share of games against the policy as it is.
    """
    return dz.rl.SelfPlay(Leduc(), pool=pool, every=every, latest=latest)


# As in Kuhn's poker, for payoffs of up to 13.
ENTRY = WorldEntry(
    about="Leduc poker by self-play",
    build=leduc,
    settings={
        "ppo": {
            "num_envs": 256,
            "num_steps": 16,
            "update_epochs": 2,
            "gamma": 1.0,
            "gae_lambda": 1.0,
            "learning_rate": "3e-3:0",
            "ent_coef": "2:0.2",
            "normalise_advantages": False,
            "value_clip": None,
            "vf_coef": 0.5,
        }
    },
)
