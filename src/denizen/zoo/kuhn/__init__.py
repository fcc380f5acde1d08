"""Kuhn poker; see README.md."""

import denizen as dz
from denizen.zoo import WorldEntry

from .model import Hand as Hand
from .model import Kuhn as Kuhn


def kuhn(pool: int = 1, every: int = 2, latest: float = 1.0) -> dz.rl.SelfPlay:
    """Kuhn poker by self-play; in an evaluation against random moves.

    Args:
        pool: earlier policies that are kept.
        every: updates between two of them.
        latest: share of games against the policy as it is.
    """
    return dz.rl.SelfPlay(Kuhn(), pool=pool, every=every, latest=latest)


# Entropy in units of the payoff, large at first: a policy that is certain of its moves no longer answers. See the log.
ENTRY = WorldEntry(
    about="Kuhn poker by self-play",
    build=kuhn,
    settings={
        "ppo": {
            "num_envs": 256,
            "num_steps": 16,
            "update_epochs": 2,
            "gamma": 1.0,
            "gae_lambda": 1.0,
            "learning_rate": "3e-3:0",
            "ent_coef": "0.3:0.1",
            "normalise_advantages": False,
        }
    },
)
