"""Seaquest on a board of 10 x 10, by the rules of MinAtar (Young and Tian 2019)."""

from typing import ClassVar

import torch
from torch import Tensor

import denizen as dz
from denizen.zoo._minatar import DOWN, FIRE, LEFT, NOTHING, RIGHT, SIZE, UP, Game, board, cells

AIR, CREW, RELOAD, DIVER_SPAWN, DIVER_MOVE, SHOT = 200, 6, 5, 30, 5, 10
SPAWN, MOVE, FASTEST = 20, 5, 2
FOES, DIVERS, SHOTS = 32, 2, 2  # more never live at once: one comes in a step at most, and each crosses in time


class Sea(dz.State):
    """The player's boat; foes, divers and shots, the newest first; shells by place. Timers tell the steps left."""

    x: Tensor = dz.count()
    y: Tensor = dz.count()
    right: Tensor = dz.mask()
    air: Tensor = dz.count()
    crew: Tensor = dz.real()  # MinAtar's falls below 0 where the boat surfaces with six
    surfaced: Tensor = dz.mask()
    foe: Tensor = dz.mask("foes")
    foe_x: Tensor = dz.count("foes")
    foe_y: Tensor = dz.count("foes")
    foe_right: Tensor = dz.mask("foes")
    foe_armed: Tensor = dz.mask("foes")
    foe_move: Tensor = dz.count("foes")
    foe_shoot: Tensor = dz.count("foes")
    diver: Tensor = dz.mask("divers")
    diver_x: Tensor = dz.count("divers")
    diver_y: Tensor = dz.count("divers")
    diver_right: Tensor = dz.mask("divers")
    diver_move: Tensor = dz.count("divers")
    shot: Tensor = dz.mask("shots")
    shot_x: Tensor = dz.count("shots")
    shot_y: Tensor = dz.count("shots")
    shot_right: Tensor = dz.mask("shots")
    shells_left: Tensor = dz.mask("places")
    shells_right: Tensor = dz.mask("places")
    to_spawn: Tensor = dz.count()
    to_dive: Tensor = dz.count()
    to_fire: Tensor = dz.count()
    spawn_every: Tensor = dz.count()
    move_every: Tensor = dz.count()
    ramps: Tensor = dz.count()
    paid: Tensor = dz.count()
    dead: Tensor = dz.mask()
    last: Tensor = dz.count()


class Seaquest(Game):
    """Nothing (0), left (1), up (2), right (3), down (4), fire (5); 1 a foe that is shot, up to 10 for six divers.

    Attributes:
        ramping: make foes come and move faster with every surfacing.
    """

    ramping: bool = True

    moves = (NOTHING, LEFT, UP, RIGHT, DOWN, FIRE)
    planes: ClassVar = {
        "front": (90, 160, 250),
        "back": (60, 110, 180),
        "our shot": (250, 250, 250),
        "trail": (90, 90, 90),
        "shell": (240, 90, 80),
        "fish": (120, 200, 90),
        "submarine": (220, 140, 60),
        "air": (130, 220, 230),
        "crew": (250, 210, 80),
        "diver": (250, 180, 220),
    }

    def init(self, rng: dz.rng.Rng) -> Sea:
        """The boat at the surface with full air. Nothing is random yet."""
        zero = rng.on("start", 1).integers("none", 0, 1)[0]
        values = {name: zero.expand([_LENGTHS[axis] for axis in kind.axes]) for name, kind in Sea.kinds.items()}
        start = {"x": 5, "air": AIR, "surfaced": 1, "to_spawn": SPAWN, "to_dive": DIVER_SPAWN}
        start |= {"spawn_every": SPAWN, "move_every": MOVE}
        return Sea(**{name: value + start.get(name, 0) for name, value in values.items()})

    def step(self, now: Sea, action: Tensor, rng: dz.rng.Rng) -> Sea:
        """Foes and divers come; the boat acts; shots, divers, armed foes, shells, other foes; air."""
        code = self.played(now, action, rng)
        now = _arrivals(now, rng)
        fires = (code == FIRE) & (now.to_fire == 0)
        turned = torch.where(code == RIGHT, 1, torch.where(code == LEFT, 0, now.right))
        shots = _pushed(now, "shot", fires, {"": 1, "_x": now.x, "_y": now.y, "_right": now.right})
        now = now.replace(
            **shots,
            x=(now.x + (code == RIGHT).int() - (code == LEFT).int()).clamp(0, SIZE - 1),
            y=(now.y + (code == DOWN).int() - (code == UP).int()).clamp(0, SIZE - 2),
            right=turned,
            to_fire=(torch.where(fires, RELOAD, now.to_fire) - 1).clamp(min=0),
            to_spawn=(now.to_spawn - 1).clamp(min=0),
            to_dive=(now.to_dive - 1).clamp(min=0),
            paid=torch.zeros_like(now.paid),
            dead=torch.zeros_like(now.dead),
            last=self.kept(now, code),
        )
        now = _foes(_rescue(_hits(now)))
        return self._breathed(now)

    def _breathed(self, now: Sea) -> Sea:
        under = now.y > 0
        comes = ~under & (now.surfaced == 0)
        safe, full = comes & (now.crew != 0), now.crew == CREW
        hard = (now.spawn_every > 1) | (now.move_every > FASTEST)
        ramps = safe & hard if self.ramping else torch.zeros_like(safe)
        return now.replace(
            dead=(now.dead != 0) | (now.air == 0) | (comes & (now.crew == 0)),
            paid=now.paid + torch.where(safe & full, now.air * 10 // AIR, 0),
            crew=torch.where(safe, torch.where(full, 0.0, now.crew) - 1, now.crew),
            air=torch.where(safe, AIR, (now.air - under.int()).clamp(min=0)),
            surfaced=torch.where(safe, 1, torch.where(under, 0, now.surfaced)),
            move_every=now.move_every - (ramps & (now.move_every > FASTEST) & (now.ramps % 2 == 1)).int(),
            spawn_every=now.spawn_every - (ramps & (now.spawn_every > 1)).int(),
            ramps=now.ramps + ramps.int(),
        )

    def observe(self, now: Sea) -> Tensor:
        """uint8 `[10, 10, 10]`: front, back, our shots, trails, shells, fish, submarines, air, crew, divers."""
        foe, armed = now.foe != 0, now.foe_armed != 0
        column = torch.arange(SIZE * SIZE, device=now.x.device) - SIZE * (SIZE - 1)  # of the lowest row
        trail = _shown(foe, now.foe_y, now.foe_x - _ahead(now.foe_right))
        trail = trail | _shown(now.diver != 0, now.diver_y, now.diver_x - _ahead(now.diver_right))
        planes = [
            _shown(now.shot != 0, now.shot_y, now.shot_x),
            trail,
            (now.shells_left | now.shells_right) != 0,
            _shown(foe & ~armed, now.foe_y, now.foe_x),
            _shown(foe & armed, now.foe_y, now.foe_x),
            (column >= 0) & (column < now.air * 10 // AIR),
            (column >= SIZE - 1 - now.crew) & (column < SIZE - 1),
            _shown(now.diver != 0, now.diver_y, now.diver_x),
        ]
        boat = [cells(now.y, now.x), cells(now.y, now.x - _ahead(now.right))]
        return board([*boat, *[plane.to(torch.uint8) for plane in planes]])

    def reward(self, before: Sea, action: Tensor, now: Sea) -> Tensor:
        """1 a foe that is shot; for surfacing with six divers the air that is left, in tenths of a full boat's."""
        return now.paid.to(torch.float32)

    def terminated(self, now: Sea) -> Tensor:
        """The boat was hit, ran out of air, or surfaced with nobody aboard."""
        return now.dead


_LENGTHS = {"foes": FOES, "divers": DIVERS, "shots": SHOTS, "places": SIZE * SIZE}


def _ahead(right: Tensor) -> Tensor:
    """A step ahead: 1 to the right, -1 to the left."""
    return 2 * right.int() - 1


def _shown(there: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Bool `[100]`: places of those that are on the board."""
    place = torch.where(there & (x >= 0) & (x < SIZE), SIZE * y + x, -1)
    return (place[:, None] == torch.arange(SIZE * SIZE, device=x.device)).any(0)


def _newest(mask: Tensor) -> Tensor:
    return mask & (mask.cumsum(0) == 1)


def _oldest(mask: Tensor) -> Tensor:
    return _newest(mask.flip(0)).flip(0)


def _pushed(now: Sea, prefix: str, born: Tensor, values: dict) -> dict[str, Tensor]:
    """Fields of a list with one more at its head, where one is born; the last, long gone, falls off."""
    fields = {}
    for name, value in values.items():
        old = getattr(now, prefix + name)
        fields[prefix + name] = torch.where(born, torch.cat([(old[:1] * 0 + value).to(old.dtype), old[:-1]]), old)
    return fields


def _arrivals(now: Sea, rng: dz.rng.Rng) -> Sea:
    """A foe in a row where none comes from the other side, and a diver, when their time has come."""
    side, kind, row, diver_side, diver_row = rng.on("spawn", 5).uniform("what").unbind()
    y, right = 1 + (row * 8).int(), side < 0.5
    due, dives = now.to_spawn == 0, now.to_dive == 0
    against = ((now.foe != 0) & (now.foe_y == y) & ((now.foe_right != 0) != right)).any()
    foe = {"": 1, "_x": torch.where(right, 0, SIZE - 1), "_y": y, "_right": right, "_armed": kind < 1 / 3}
    foe |= {"_move": now.move_every, "_shoot": SHOT}
    right = diver_side < 0.5
    diver = {"": 1, "_x": torch.where(right, 0, SIZE - 1), "_y": 1 + (diver_row * 8).int(), "_right": right}
    return now.replace(
        **_pushed(now, "foe", due & ~against, foe),
        **_pushed(now, "diver", dives, diver | {"_move": DIVER_MOVE}),
        to_spawn=torch.where(due, now.spawn_every, now.to_spawn),
        to_dive=torch.where(dives, DIVER_SPAWN, now.to_dive),
    )


def _hits(now: Sea) -> Sea:
    """Our shots fly on, the newest first; each takes a fish where it comes to, else a submarine, the oldest."""
    foe, armed, paid = now.foe != 0, now.foe_armed != 0, now.paid
    x = now.shot_x + _ahead(now.shot_right)
    flies = (now.shot != 0) & (x >= 0) & (x < SIZE)
    left = []
    for one in range(SHOTS):
        met = foe & flies[one] & (now.foe_x == x[one]) & (now.foe_y == now.shot_y[one])
        fish = met & ~armed
        struck = torch.where(fish.any(), _oldest(fish), _oldest(met & armed))
        foe, paid = foe & ~struck, paid + struck.sum()
        left.append(flies[one] & ~struck.any())
    return now.replace(foe=foe, shot=torch.stack(left), shot_x=x.clamp(0, SIZE - 1), paid=paid)


def _rescue(now: Sea) -> Sea:
    """Divers come aboard where the boat is and has room; the others swim on."""
    crew, there, places = now.crew, [], []
    moves = now.diver_move == 0
    x = now.diver_x + torch.where(moves, _ahead(now.diver_right), 0)
    for one in range(DIVERS):
        level = (now.diver[one] != 0) & (now.diver_y[one] == now.y)
        met = level & (now.diver_x[one] == now.x) & (crew < CREW)
        crew = crew + met
        met_then = level & ~met & moves[one] & (x[one] == now.x) & (crew < CREW)
        crew = crew + met_then
        there.append((now.diver[one] != 0) & ~met & ~met_then & (x[one] >= 0) & (x[one] < SIZE))
        places.append(x[one].clamp(0, SIZE - 1))
    timers = torch.where(moves, DIVER_MOVE, now.diver_move - 1)
    return now.replace(crew=crew, diver=torch.stack(there), diver_x=torch.stack(places), diver_move=timers)


def _foes(now: Sea) -> Sea:
    """Foes move, submarines shoot, shells fly; who touches the boat ends the life."""
    foe, armed, level = now.foe != 0, now.foe_armed != 0, now.foe_y == now.y
    moves = foe & (now.foe_move == 0)
    x = now.foe_x + torch.where(moves, _ahead(now.foe_right), 0)
    inside = (x >= 0) & (x < SIZE)
    touched = foe & level & ((now.foe_x == now.x) | (moves & (x == now.x)))
    runs_in = moves & inside & ~(level & (x == now.x))  # into a shot, maybe
    shot, paid, left = now.shot != 0, now.paid, foe & inside
    for kind in (armed, ~armed):
        for one in reversed(range(SHOTS)):
            met = runs_in & left & kind & shot[one] & (x == now.shot_x[one]) & (now.foe_y == now.shot_y[one])
            left, paid = left & ~_newest(met), paid + met.any().int()
            shot = shot & ~(torch.arange(SHOTS, device=shot.device) == one).logical_and(met.any())

    shoots, right = foe & armed & (now.foe_shoot == 0), now.foe_right != 0
    boat = cells(now.y, now.x) != 0
    column = torch.arange(SIZE * SIZE, device=x.device) % SIZE
    fired = [
        (now.shells_left != 0) | _shown(shoots & ~right, now.foe_y, x),
        (now.shells_right != 0) | _shown(shoots & right, now.foe_y, x),
    ]
    flown = [fired[0].roll(-1) & (column < SIZE - 1), fired[1].roll(1) & (column > 0)]
    struck = ((fired[0] | fired[1] | flown[0] | flown[1]) & boat).any()
    return now.replace(
        foe=left,
        foe_x=x.clamp(0, SIZE - 1),
        foe_move=torch.where(moves, now.move_every, (now.foe_move - 1).clamp(min=0)),
        foe_shoot=torch.where(shoots, SHOT, (now.foe_shoot - 1).clamp(min=0)),
        shells_left=flown[0],
        shells_right=flown[1],
        shot=shot,
        paid=paid,
        dead=touched.any() | struck,
    )
