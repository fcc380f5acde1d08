"""Games: environments in which players move by turns, each with payoffs of its own."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from denizen.errors import ModelError
from denizen.model import Env, State


class Game(Env):
    """Base of games in which players move by turns.

    A step is one move, of the player that `player` names: `observe` and `action_mask` are what that player sees and may
    do. Subclasses write `player` and `payoff` in place of `reward`. A game ends by `terminated`, not by a time limit.

    As it is, one policy would move for all players. To learn, take `Against` or `SelfPlay`: there a step is a move of
    one player with all moves of the others up to that player's next one.

    Attributes:
        num_players: who move by turns.
        most_replies: most moves of the others between two moves of one player, and before its first, which must not end
            the game.
    """

    num_players: ClassVar[int] = 2
    most_replies: ClassVar[int] = 1

    def player(self, now: Any) -> Tensor:
        """Whose move it is: int64 `[]`; any number where the game is over."""
        raise ModelError(f"{type(self).__name__} has no player(self, now)")

    def payoff(self, before: Any, now: Any) -> Tensor:
        """What the move from `before` to `now` pays each player: float32 `[players]`."""
        raise ModelError(f"{type(self).__name__} has no payoff(self, before, now)")

    def starts(self) -> tuple[State, Tensor]:
        """All states in which a game may begin, along a leading axis, and their probabilities: float64 `[starts]`.

        For `GameTree`; all chance is then in the start.
        """
        raise ModelError(f"{type(self).__name__} has no starts(self), so its tree cannot be listed")

    def reward(self, before: Any, action: Tensor, now: Any) -> Tensor:
        """What the move paid the player who made it."""
        return entry(self.payoff(before, now), self.player(before))


def entry(values: Tensor, place: Tensor) -> Tensor:
    """The entry of a vector at a place int64 `[]`, which is within it."""
    return torch.index_select(values, 0, place.reshape(1))[0]
