"""Connect Four; see README.md."""

import denizen as dz
from denizen.zoo import WorldEntry

from .model import Board as Board
from .model import ConnectFour as ConnectFour


def connect_four(
    rows: int = 6, columns: int = 7, pool: int = 8, every: int = 10, latest: float = 0.5
) -> dz.rl.SelfPlay:
    """Connect Four by self-play; in an evaluation against random moves.

    Args:
        rows: of the board.
        columns: of the board.
        pool: earlier policies that are kept.
        every: updates between two of them.
        latest: share of games against the policy as it is.
    """
    return dz.rl.SelfPlay(ConnectFour(rows, columns), pool=pool, every=every, latest=latest)


ENTRY = WorldEntry(
    about="four in a line by self-play",
    build=connect_four,
    steps=5_000_000,
    settings={"ppo": {"num_envs": 256, "num_steps": 32}},
)
