"""Freeway on a board of 10 x 10, by the rules of MinAtar (Young and Tian 2019)."""

from typing import ClassVar

import torch
from torch import Tensor

import denizen as dz
from denizen.zoo._minatar import DOWN, NOTHING, SIZE, UP, Game, cells

LANES, SPEEDS, REST, COLUMN = 8, 5, 3, 4


class Road(dz.State):
    """The chicken, in column 4, and one car in each of the rows 1 to 8; row 0 is the goal."""

    row: Tensor = dz.count()
    crossed: Tensor = dz.mask()
    rest: Tensor = dz.count()
    x: Tensor = dz.count("lanes")
    wait: Tensor = dz.count("lanes")
    pace: Tensor = dz.count("lanes")
    right: Tensor = dz.mask("lanes")
    last: Tensor = dz.count()


class Freeway(Game):
    """Nothing (0), up (1), down (2), at most one move in three steps; 1 for every crossing. A car sends one back."""

    max_steps: int | None = 2_500

    moves = (NOTHING, UP, DOWN)
    planes: ClassVar = {
        "chicken": (250, 250, 120),
        "car": (230, 80, 70),
        "pace 1": (220, 200, 255),
        "pace 2": (180, 150, 230),
        "pace 3": (140, 110, 200),
        "pace 4": (110, 80, 170),
        "pace 5": (80, 50, 140),
    }

    def init(self, rng: dz.rng.Rng) -> Road:
        """All cars at the left edge, with random paces and directions."""
        pace, right = _traffic(rng)
        zero = torch.zeros_like(pace[0])
        return Road(
            row=zero + 9, crossed=zero, rest=zero + REST, x=0 * pace, wait=pace, pace=pace, right=right, last=zero
        )

    def step(self, now: Road, action: Tensor, rng: dz.rng.Rng) -> Road:
        """Move the chicken, then the cars."""
        code = self.played(now, action, rng)
        moves = (now.rest == 0) & ((code == UP) | (code == DOWN))
        row = torch.where(moves, (now.row + torch.where(code == UP, -1, 1)).clamp(0, 9), now.row)
        rest = torch.where(moves, REST, now.rest)

        crossed = row == 0
        new_pace, new_right = _traffic(rng)
        pace, right = torch.where(crossed, new_pace, now.pace), torch.where(crossed, new_right, now.right)
        wait = torch.where(crossed, new_pace, now.wait)
        row = torch.where(crossed, 9, row)

        drives = wait == 0
        x = torch.where(drives, (now.x + torch.where(right != 0, 1, -1)) % SIZE, now.x)
        here = torch.arange(1, LANES + 1, device=x.device) == row
        hit = (here & ((now.x == COLUMN) | (x == COLUMN))).any()
        return now.replace(
            row=torch.where(hit, 9, row),
            crossed=crossed,
            rest=(rest - 1).clamp(min=0),
            x=x,
            wait=torch.where(drives, pace, wait - 1),
            pace=pace,
            right=right,
            last=self.kept(now, code),
        )

    def observe(self, now: Road) -> Tensor:
        """uint8 `[7, 10, 10]`: chicken, cars, and the place behind each car in the plane of its pace, 1 the fastest."""
        column = torch.arange(SIZE, device=now.x.device)
        behind = (now.x - torch.where(now.right != 0, 1, -1)) % SIZE
        trail = behind[:, None] == column
        paces = torch.arange(1, SPEEDS + 1, device=now.x.device)[:, None, None] == now.pace[:, None]
        lanes = torch.cat([(now.x[:, None] == column)[None], trail & paces]).to(torch.uint8)
        chicken = cells(now.row, torch.full_like(now.row, COLUMN)).unflatten(0, (1, SIZE, SIZE))
        return torch.cat([chicken, torch.nn.functional.pad(lanes, (0, 0, 1, 1))])

    def reward(self, before: Road, action: Tensor, now: Road) -> Tensor:
        """1 for a crossing."""
        return now.crossed.to(torch.float32)

    def terminated(self, now: Road) -> Tensor:
        """Never."""
        return torch.zeros_like(now.row, dtype=torch.bool)


def _traffic(rng: dz.rng.Rng) -> tuple[Tensor, Tensor]:
    """(paces 1 to 5, whether to the right), `[8]` each."""
    drawn = rng.on("lanes", LANES).integers("traffic", 0, 2 * SPEEDS)
    return (1 + drawn % SPEEDS).int(), (drawn >= SPEEDS).to(torch.int8)
