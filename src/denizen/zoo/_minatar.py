"""What the four games after MinAtar (Young and Tian 2019) share: actions, planes, sticky actions, limit."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

import denizen as dz
from denizen.model import share, whole
from denizen.zoo._picture import Colour, tiles

SIZE = 10  # rows and columns of the board
NOTHING, LEFT, UP, RIGHT, DOWN, FIRE = range(6)


class Game(dz.Env):
    """Base of the games. States have a field `last`: the action taken last, where actions stick.

    Attributes:
        sticky: probability that the action before is taken again in place of the one that is given.
        all_actions: take all six actions of MinAtar (nothing, left, up, right, down, fire), also those that do
            nothing here; False: those that do something, in the same order.
        max_steps: of a life, which is cut off then; None: no limit.
    """

    sticky: float = 0.0
    all_actions: bool = False
    max_steps: int | None = 1_000

    moves: ClassVar[tuple[int, ...]] = ()
    planes: ClassVar[Mapping[str, Colour]] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        share(name, "sticky", self.sticky)
        if self.max_steps is not None:
            whole(name, "max_steps", self.max_steps, 1, hint=", or None for no limit")

    @property
    def time_limit(self) -> int | None:
        """The limit."""
        return self.max_steps

    @property
    def action_space(self) -> dz.rl.Discrete:
        """What the player can do."""
        return dz.rl.Discrete(6 if self.all_actions else len(self.moves))

    @property
    def observation_space(self) -> dz.rl.Box:
        """Planes of 0 and 1, one for each kind of thing."""
        return dz.rl.Box(0, 1, (len(self.planes), SIZE, SIZE), torch.uint8)

    def played(self, now: Any, action: Tensor, rng: dz.rng.Rng) -> Tensor:
        """The action as one of MinAtar's six, or the previous one where it sticks: int64 `[]`."""
        code = action
        if not self.all_actions:
            code = torch.full_like(action, self.moves[0])
            for place, move in enumerate(self.moves[1:], 1):
                code = torch.where(action == place, move, code)
        if self.sticky == 0:
            return code
        again = rng.on("sticky", 1).uniform("again")[0] < self.sticky
        return torch.where(again, now.last, code)

    def kept(self, now: Any, code: Tensor) -> Tensor:
        """What `last` becomes."""
        return code if self.sticky else now.last

    def draw(self, now: Any) -> Tensor:
        """The planes in their colours."""
        return tiles(list(zip(self.observe(now), self.planes.values(), strict=True)))


def cells(row: Tensor, column: Tensor) -> Tensor:
    """uint8 `[100]`, row by row: 1 at one place. Compilers handle one long axis better than two short ones."""
    places = torch.arange(SIZE * SIZE, dtype=torch.int32, device=row.device)
    return (places == (SIZE * row + column).to(torch.int32)).to(torch.uint8)


def board(planes: list[Tensor]) -> Tensor:
    """uint8 `[planes, 10, 10]` from planes `[100]` each."""
    return torch.stack(planes).unflatten(1, (SIZE, SIZE))
