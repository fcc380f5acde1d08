"""Asterix on a board of 10 x 10, by the rules of MinAtar (Young and Tian 2019)."""

from typing import ClassVar

import torch
from torch import Tensor

import denizen as dz
from denizen.zoo._minatar import DOWN, LEFT, NOTHING, RIGHT, SIZE, UP, Game, cells

SLOTS, SPAWN, MOVE, RAMP, GOLD_SHARE = 8, 10, 5, 100, 1 / 3


class Field(dz.State):
    """The player, and at most one thing in each of the rows 1 to 8; timers tell the steps that are left."""

    x: Tensor = dz.count()
    y: Tensor = dz.count()
    there: Tensor = dz.mask("slots")
    thing_x: Tensor = dz.count("slots")
    right: Tensor = dz.mask("slots")
    gold: Tensor = dz.mask("slots")
    to_spawn: Tensor = dz.count()
    to_move: Tensor = dz.count()
    to_ramp: Tensor = dz.count()
    spawn_every: Tensor = dz.count()
    move_every: Tensor = dz.count()
    ramps: Tensor = dz.count()
    found: Tensor = dz.mask()
    dead: Tensor = dz.mask()
    last: Tensor = dz.count()


class Asterix(Game):
    """Nothing (0), left (1), up (2), right (3), down (4); 1 for every piece of gold, until an enemy is touched.

    Attributes:
        ramping: make things appear and move faster with time.
    """

    ramping: bool = True

    moves = (NOTHING, LEFT, UP, RIGHT, DOWN)
    planes: ClassVar = {"trail": (90, 90, 90), "enemy": (220, 70, 60), "gold": (250, 210, 80), "player": (90, 160, 250)}

    def init(self, rng: dz.rng.Rng) -> Field:
        """The player in the middle, nothing else."""
        zero = rng.on("start", 1).integers("none", 0, 1)[0]
        none = zero.expand(SLOTS)
        return Field(
            x=zero + 5,
            y=zero + 5,
            there=none,
            thing_x=none,
            right=none,
            gold=none,
            to_spawn=zero + SPAWN,
            to_move=zero + MOVE,
            to_ramp=zero + RAMP + 1,
            spawn_every=zero + SPAWN,
            move_every=zero + MOVE,
            ramps=zero,
            found=zero,
            dead=zero,
            last=zero,
        )

    def step(self, now: Field, action: Tensor, rng: dz.rng.Rng) -> Field:
        """Something appears, the player moves, things move."""
        code = self.played(now, action, rng)
        born, right, gold = _spawn(now, rng)
        there = (now.there != 0) | born
        right, gold = torch.where(born, right, now.right != 0), torch.where(born, gold, now.gold != 0)
        thing_x = torch.where(born, torch.where(right, 0, SIZE - 1), now.thing_x)
        x = (now.x + (code == RIGHT).int() - (code == LEFT).int()).clamp(0, SIZE - 1)
        y = (now.y + (code == DOWN).int() - (code == UP).int()).clamp(1, SIZE - 2)

        row = torch.arange(1, SLOTS + 1, device=y.device) == y
        met = there & row & (thing_x == x)
        there = there & ~(met & gold)
        moves = now.to_move == 0
        moved = torch.where(moves, thing_x + torch.where(right, 1, -1), thing_x)
        there = there & (moved >= 0) & (moved < SIZE)
        met_then = moves & there & row & (moved == x)
        there = there & ~(met_then & gold)
        met = met | met_then
        return now.replace(
            x=x,
            y=y,
            there=there,
            thing_x=moved.clamp(0, SIZE - 1),
            right=right,
            gold=gold,
            to_spawn=torch.where(now.to_spawn == 0, now.spawn_every, now.to_spawn) - 1,
            to_move=torch.where(moves, now.move_every, now.to_move) - 1,
            found=(met & gold).any(),
            dead=(met & ~gold).any(),
            last=self.kept(now, code),
            **self._ramped(now),
        )

    def _ramped(self, now: Field) -> dict[str, Tensor]:
        """Intervals and what counts down to their next change."""
        if not self.ramping:
            return {}
        can = (now.spawn_every > 1) | (now.move_every > 1)
        ramps = can & (now.to_ramp == 0)
        faster = ramps & (now.move_every > 1) & (now.ramps % 2 == 1)
        return {
            "to_ramp": torch.where(ramps, RAMP + 1, torch.where(can, now.to_ramp - 1, now.to_ramp)),
            "spawn_every": now.spawn_every - (ramps & (now.spawn_every > 1)).int(),
            "move_every": now.move_every - faster.int(),
            "ramps": now.ramps + ramps.int(),
        }

    def observe(self, now: Field) -> Tensor:
        """uint8 `[4, 10, 10]`: trails, enemies, gold, player."""
        column, there, gold = torch.arange(SIZE, device=now.x.device), now.there[:, None] != 0, now.gold[:, None] != 0
        behind = now.thing_x - torch.where(now.right != 0, 1, -1)
        things = there & (now.thing_x[:, None] == column)
        planes = torch.stack([there & (behind[:, None] == column), things & ~gold, things & gold]).to(torch.uint8)
        player = cells(now.y, now.x).unflatten(0, (1, SIZE, SIZE))
        return torch.cat([torch.nn.functional.pad(planes, (0, 0, 1, 1)), player])

    def reward(self, before: Field, action: Tensor, now: Field) -> Tensor:
        """1 for gold."""
        return now.found.to(torch.float32)

    def terminated(self, now: Field) -> Tensor:
        """An enemy was touched."""
        return now.dead


def _spawn(now: Field, rng: dz.rng.Rng) -> tuple[Tensor, Tensor, Tensor]:
    """(where something appears, whether it goes to the right, whether it is gold); bool, `[8]`, `[]`, `[]`."""
    side, kind, where = rng.on("spawn", 3).uniform("what").unbind()
    free = now.there == 0
    count = free.sum()
    chosen = (where * count).int()  # of the free slots, in their order
    born = (now.to_spawn == 0) & free & (free.cumsum(0) == chosen + 1)
    return born, side < 0.5, kind < GOLD_SHARE
