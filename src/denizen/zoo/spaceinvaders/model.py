"""SpaceInvaders on a board of 10 x 10, by the rules of MinAtar (Young and Tian 2019)."""

from typing import ClassVar

import torch
from torch import Tensor

import denizen as dz
from denizen.zoo._minatar import FIRE, LEFT, NOTHING, RIGHT, SIZE, Game, board, cells

RELOAD, MOVE, SHOT, FASTEST = 5, 12, 10, 6
BOTTOM = SIZE - 1


class Sky(dz.State):
    """Cannon, aliens and bullets, places row by row; row 9 is the cannon's. Timers tell the steps that are left."""

    cannon: Tensor = dz.count()
    aliens: Tensor = dz.mask("places")
    ours: Tensor = dz.mask("places")
    theirs: Tensor = dz.mask("places")
    right: Tensor = dz.mask()
    to_fire: Tensor = dz.count()
    to_move: Tensor = dz.count()
    to_shoot: Tensor = dz.count()
    move_every: Tensor = dz.count()
    killed: Tensor = dz.count()
    dead: Tensor = dz.mask()
    last: Tensor = dz.count()


class SpaceInvaders(Game):
    """Nothing (0), left (1), right (2), fire (3); 1 for every alien that is shot, until a bullet or an alien hits.

    Attributes:
        ramping: let every new wave move faster.
    """

    ramping: bool = True

    moves = (NOTHING, LEFT, RIGHT, FIRE)
    planes: ClassVar = {
        "cannon": (90, 160, 250),
        "alien": (120, 200, 90),
        "moving left": (120, 200, 90),
        "moving right": (90, 200, 160),
        "our bullet": (250, 250, 250),
        "their bullet": (240, 90, 80),
    }

    def init(self, rng: dz.rng.Rng) -> Sky:
        """A full wave, moving left. Nothing is random but actions that stick."""
        zero = rng.on("start", 1).integers("none", 0, 1)[0]
        nothing = zero.expand(SIZE * SIZE)
        return Sky(
            cannon=zero + 5,
            aliens=_wave(zero),
            ours=nothing,
            theirs=nothing,
            right=zero,
            to_fire=zero,
            to_move=zero + MOVE,
            to_shoot=zero + SHOT,
            move_every=zero + MOVE,
            killed=zero,
            dead=zero,
            last=zero,
        )

    def step(self, now: Sky, action: Tensor, rng: dz.rng.Rng) -> Sky:
        """The cannon acts, bullets fly, aliens move and shoot, hits count."""
        code = self.played(now, action, rng)
        fires = (code == FIRE) & (now.to_fire == 0)
        cannon = (now.cannon + (code == RIGHT).int() - (code == LEFT).int()).clamp(0, BOTTOM)
        at_cannon = cells(torch.full_like(cannon, BOTTOM), cannon) != 0

        place = torch.arange(SIZE * SIZE, device=cannon.device)
        ours = ((now.ours != 0) | (fires & at_cannon)).roll(-SIZE) & (place < BOTTOM * SIZE)
        theirs = (now.theirs != 0).roll(SIZE) & (place >= SIZE)
        aliens = now.aliens != 0
        dead = ((theirs | aliens) & at_cannon).any()
        moves = now.to_move == 0
        marched, right, landed = _march(aliens, now.right != 0)
        dead = dead | (moves & (landed | (marched & at_cannon).any()))
        to_move = torch.where(moves, torch.minimum(aliens.sum(), now.move_every), now.to_move)
        aliens = torch.where(moves, marched, aliens)

        shoots = now.to_shoot == 0
        theirs = theirs | (shoots & _muzzle(aliens, cannon))
        hits = aliens & ours
        aliens = aliens & ~hits
        cleared = ~aliens.any()
        faster = cleared & (now.move_every > FASTEST) & self.ramping
        return now.replace(
            cannon=cannon,
            aliens=aliens | (cleared & _wave(cannon)),
            ours=ours & ~hits,
            theirs=theirs,
            right=torch.where(moves, right, now.right != 0),
            to_fire=(torch.where(fires, RELOAD, now.to_fire) - 1).clamp(min=0),
            to_move=to_move - 1,
            to_shoot=torch.where(shoots, SHOT, now.to_shoot) - 1,
            move_every=now.move_every - faster.int(),
            killed=hits.sum(),
            dead=dead,
            last=self.kept(now, code),
        )

    def observe(self, now: Sky) -> Tensor:
        """uint8 `[6, 10, 10]`: cannon, aliens, aliens if they move left, if right, our bullets, theirs."""
        cannon = cells(torch.full_like(now.cannon, BOTTOM), now.cannon)
        aliens, right = now.aliens.to(torch.uint8), now.right.to(torch.uint8)
        bullets = [now.ours.to(torch.uint8), now.theirs.to(torch.uint8)]
        return board([cannon, aliens, aliens * (1 - right), aliens * right, *bullets])

    def reward(self, before: Sky, action: Tensor, now: Sky) -> Tensor:
        """1 for every alien that was shot."""
        return now.killed.to(torch.float32)

    def terminated(self, now: Sky) -> Tensor:
        """The cannon was hit, or the aliens have landed."""
        return now.dead


def _wave(like: Tensor) -> Tensor:
    """Four rows of six aliens: bool `[100]`."""
    place = torch.arange(SIZE * SIZE, device=like.device)
    return (place < 4 * SIZE) & (place % SIZE >= 2) & (place % SIZE < 8)


def _march(aliens: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(aliens after a move, whether they go to the right then, whether they land by it)."""
    rows = aliens.unflatten(0, (SIZE, SIZE))
    turns = (rows[:, 0].any() & ~right) | (rows[:, BOTTOM].any() & right)
    aside = torch.where(right, aliens.roll(1), aliens.roll(-1))  # where they do not turn, none is at the edge
    return torch.where(turns, aliens.roll(SIZE), aside), right ^ turns, turns & rows[BOTTOM].any()


def _muzzle(aliens: Tensor, cannon: Tensor) -> Tensor:
    """The lowest alien of the nearest column, the left one of two as near: bool `[100]`."""
    places, rows = torch.arange(SIZE, device=aliens.device), aliens.unflatten(0, (SIZE, SIZE))
    distance = 2 * (places - cannon).abs() + (places > cannon).int()
    column = torch.where(rows.any(0), distance, 3 * SIZE).argmin()
    held = (rows & (places == column)).any(1)
    return cells(torch.where(held, places, -1).amax(), column) != 0
