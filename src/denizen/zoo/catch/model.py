"""Catch: a ball falls, a paddle at the bottom catches it; the rules of bsuite's Catch (Osband et al. 2020)."""

import torch
from torch import Tensor

import denizen as dz
from denizen.model import whole
from denizen.zoo._picture import GREEN, RED, tiles


class Ball(dz.State):
    """Columns of ball and paddle, row of the ball; row 0 is the top, the paddle is in the last one."""

    ball: Tensor = dz.count()
    row: Tensor = dz.count()
    paddle: Tensor = dz.count()


class Catch(dz.Env):
    """Move left (0), stay (1) or move right (2); +1 or -1 when the ball lands on the paddle or beside it.

    Attributes:
        rows: of the board.
        columns: of the board.
    """

    rows: int = 10
    columns: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, low in (("rows", 2), ("columns", 1)):
            whole("Catch", name, getattr(self, name), low)

    action_space = dz.rl.Discrete(3)

    @property
    def observation_space(self) -> dz.rl.Box:
        """The board."""
        return dz.rl.Box(0, 1, (self.rows, self.columns), torch.uint8)

    def init(self, rng: dz.rng.Rng) -> Ball:
        """The ball in a random column of the top row, the paddle in the middle."""
        ball = rng.on("start", 1).integers("column", 0, self.columns)[0]
        return Ball(ball=ball, row=torch.zeros_like(ball), paddle=torch.full_like(ball, self.columns // 2))

    def step(self, now: Ball, action: Tensor, rng: dz.rng.Rng) -> Ball:
        """The paddle moves, the ball falls one row."""
        return now.replace(paddle=(now.paddle + action - 1).clamp(0, self.columns - 1), row=now.row + 1)

    def observe(self, now: Ball) -> Tensor:
        """uint8 `[rows, columns]`: 1 where the ball or the paddle is."""
        row = torch.arange(self.rows, device=now.ball.device)[:, None]
        column = torch.arange(self.columns, device=now.ball.device)
        ball = (row == now.row) & (column == now.ball)
        return (ball | ((row == self.rows - 1) & (column == now.paddle))).to(torch.uint8)

    def reward(self, before: Ball, action: Tensor, now: Ball) -> Tensor:
        """+1 or -1 when the ball has landed, else 0."""
        caught = torch.where(now.ball == now.paddle, 1.0, -1.0)
        return torch.where(self.terminated(now), caught, 0.0)

    def terminated(self, now: Ball) -> Tensor:
        """The ball has landed."""
        return now.row >= self.rows - 1

    def draw(self, now: Ball) -> Tensor:
        """The board: the ball red, the paddle green."""
        ball, paddle = torch.zeros(2, self.rows, self.columns).unbind()
        paddle[-1, int(now.paddle)] = 1
        ball[int(now.row), int(now.ball)] = 1
        return tiles([(paddle, GREEN), (ball, RED)])
