"""Breakout on a board of 10 x 10, by the rules of MinAtar (Young and Tian 2019)."""

from typing import ClassVar

import torch
from torch import Tensor

import denizen as dz
from denizen.zoo._minatar import LEFT, NOTHING, RIGHT, SIZE, Game, board, cells

TOP, ROWS = 1, 3  # of the bricks
BOTTOM = SIZE - 1


class Board(dz.State):
    """Paddle, ball and bricks of one world; row 0 is the top, the paddle is in the last one."""

    paddle: Tensor = dz.count()
    x: Tensor = dz.count()
    y: Tensor = dz.count()
    right: Tensor = dz.mask()
    down: Tensor = dz.mask()
    trail_x: Tensor = dz.count()
    trail_y: Tensor = dz.count()
    struck: Tensor = dz.mask()
    lost: Tensor = dz.mask()
    bricks: Tensor = dz.mask("bricks")
    last: Tensor = dz.count()


class Breakout(Game):
    """Nothing (0), left (1), right (2); 1 for every brick that the ball breaks, until the paddle misses the ball."""

    moves = (NOTHING, LEFT, RIGHT)
    planes: ClassVar = {
        "paddle": (80, 200, 120),
        "trail": (110, 110, 110),
        "brick": (190, 90, 70),
        "ball": (250, 250, 250),
    }

    def init(self, rng: dz.rng.Rng) -> Board:
        """The ball comes from one of the walls."""
        side = rng.on("start", 1).integers("side", 0, 2)[0]
        x, zero = side * BOTTOM, torch.zeros_like(side)
        row = torch.full_like(side, 3)
        return Board(
            paddle=zero + 4,
            x=x,
            y=row,
            right=side == 0,
            down=zero + 1,
            trail_x=x,
            trail_y=row,
            struck=zero,
            lost=zero,
            bricks=torch.ones(ROWS * SIZE, dtype=torch.int8, device=side.device),
            last=zero,
        )

    def step(self, now: Board, action: Tensor, rng: dz.rng.Rng) -> Board:
        """Move the paddle, then the ball, which bounces."""
        code = self.played(now, action, rng)
        paddle = (now.paddle + (code == RIGHT).int() - (code == LEFT).int()).clamp(0, BOTTOM)
        right, down = now.right != 0, now.down != 0
        x, y = now.x + torch.where(right, 1, -1), now.y + torch.where(down, 1, -1)

        wall = (x < 0) | (x > BOTTOM)
        x, right = x.clamp(0, BOTTOM), right ^ wall
        ceiling = y < 0
        place = (y - TOP) * SIZE + x
        brick = _at(now.bricks, place)
        breaks = brick & (now.struck == 0)  # after one brick, the next step breaks none
        floor = y == BOTTOM
        above = floor & (now.x == paddle)
        corner = floor & ~above & (x == paddle)
        refilled = torch.where(floor & (now.bricks.sum() == 0), 1, now.bricks)
        aim = torch.arange(ROWS * SIZE, device=place.device) == place
        back = breaks | above | corner
        return now.replace(
            paddle=paddle,
            x=x,
            y=torch.where(back, now.y, y.clamp(min=0)),
            right=right ^ corner,
            down=down ^ (ceiling | back),
            trail_x=now.x,
            trail_y=now.y,
            struck=brick,
            lost=floor & ~above & ~corner,
            bricks=torch.where(breaks & aim, 0, refilled),
            last=self.kept(now, code),
        )

    def observe(self, now: Board) -> Tensor:
        """uint8 `[4, 10, 10]`: paddle, trail, bricks, ball."""
        paddle = cells(torch.full_like(now.paddle, BOTTOM), now.paddle)
        bricks = torch.nn.functional.pad(now.bricks.to(torch.uint8), (TOP * SIZE, (SIZE - TOP - ROWS) * SIZE))
        return board([paddle, cells(now.trail_y, now.trail_x), bricks, cells(now.y, now.x)])

    def reward(self, before: Board, action: Tensor, now: Board) -> Tensor:
        """1 for a brick."""
        return (now.struck & (1 - before.struck)).to(torch.float32)

    def terminated(self, now: Board) -> Tensor:
        """The ball is lost."""
        return now.lost


def _at(bricks: Tensor, place: Tensor) -> Tensor:
    """Whether there is a brick at a place, counted from the first one's; it may lie off the bricks: bool `[]`."""
    inside = (place >= 0) & (place < ROWS * SIZE)
    there = bricks.gather(0, place.clamp(0, ROWS * SIZE - 1).to(torch.int64)[None])[0]
    return inside & (there != 0)
