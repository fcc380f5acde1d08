"""Connect Four; see README.md."""

import denizen as dz
from denizen.model import whole
from denizen.zoo import WorldEntry

from .model import Board as Board
from .model import ConnectFour as ConnectFour
from .openings import random_openings

LEFT = 6  # free cells that openings leave


def connect_four(
    rows: int = 6, columns: int = 7, pool: int = 8, every: int = 10, latest: float = 0.5, openings: int = 65_536
) -> dz.rl.SelfPlay:
    """Connect Four by self-play; in an evaluation against random moves.

    Args:
        rows: of the board.
        columns: of the board.
        pool: earlier policies that are kept.
        every: updates between two of them.
        latest: share of games against the policy as it is.
        openings: positions of random games that games of a training begin with; 0: the empty board.
    """
    game, practice = ConnectFour(rows, columns), None
    if whole("connect_four", "openings", openings, 0):
        stones = random_openings(game, openings, most=max(rows * columns - LEFT, 0))
        practice = ConnectFour(rows, columns, openings=stones)
    return dz.rl.SelfPlay(game, pool=pool, every=every, latest=latest, practice=practice)


ENTRY = WorldEntry(
    about="four in a line by self-play",
    build=connect_four,
    steps=5_000_000,
    policy_options={"activation": "relu", "hidden": "256,256"},
    settings={
        "ppo": {
            "num_envs": 256,
            "num_steps": 32,
            "gamma": 1.0,
            "learning_rate": "1e-3:5e-5",
            "ent_coef": "0.1:0.02",
            "normalise_advantages": False,
        }
    },
)
