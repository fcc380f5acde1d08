"""Keys, doors and boxes: rooms in a row, whose locked doors take keys that may lie in boxes; levels by number."""

from typing import ClassVar

import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError
from denizen.model import whole
from denizen.zoo._picture import BLUE, GREEN, INK, RED, Colour, tiles
from denizen.zoo.keydoor import levels as generated

MOST = 2**31 - 1


class House(dz.State):
    """The level, and what has changed in it: where the player is, what is still locked, lying and closed."""

    level: Tensor = dz.count()
    at: Tensor = dz.count()
    held: Tensor = dz.count()
    locked: Tensor = dz.mask("doors")
    lying: Tensor = dz.mask("doors")
    closed: Tensor = dz.mask("boxes")


class KeyDoor(dz.Env):
    """Move up (0), down (1), left (2), right (3); whoever moves against a box opens it, against a door unlocks it.

    Attributes:
        start: int32 `[levels]`: cells.
        goal: int32 `[levels]`.
        doors: int32 `[levels, rooms - 1]`.
        keys: int32 `[levels, rooms - 1]`.
        boxes: int32 `[levels, boxes]`, of all rooms.
        wall: bool `[cells]`: also where doors are.
        size: rows of the board.
        rooms: in a row.
        max_steps: of a life.
    """

    start: Tensor
    goal: Tensor
    doors: Tensor
    keys: Tensor
    boxes: Tensor
    wall: Tensor
    size: int = 6
    rooms: int = 2
    max_steps: int = 120

    action_space = dz.rl.Discrete(4)
    planes: ClassVar[dict[str, Colour]] = {
        "wall": INK,
        "door": (160, 100, 50),
        "key": (250, 210, 80),
        "box": (190, 140, 90),
        "goal": GREEN,
        "player": RED,
        "held": BLUE,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("keydoor", "max_steps", self.max_steps, 1)
        if self.wall.numel() != self.size * self.columns:
            told = f"size={self.size} and rooms={self.rooms} do not go with levels of {self.wall.numel()} cells"
            raise InputError(f"keydoor: {told}; make it by keydoor(size=…, rooms=…)")

    @property
    def columns(self) -> int:
        """Of the board."""
        return 1 + self.rooms * (self.size - 1)

    @property
    def time_limit(self) -> int:
        """The limit."""
        return self.max_steps

    @property
    def observation_space(self) -> dz.rl.Box:
        """Planes of 0 and 1."""
        return dz.rl.Box(0, 1, (len(self.planes), self.size, self.columns), torch.uint8)

    def init(self, rng: dz.rng.Rng) -> House:
        """A level of those that there are, each as likely; everything locked, lying and closed."""
        level = rng.on("start", 1).integers("level", 0, len(self.start))[0]
        one = torch.ones_like(level)
        return House(
            level=level,
            at=_of(self.start, level),
            held=one - 1,
            locked=one.expand(self.doors.shape[1]),
            lying=one.expand(self.keys.shape[1]),
            closed=one.expand(self.boxes.shape[1]),
        )

    def step(self, now: House, action: Tensor, rng: dz.rng.Rng) -> House:
        """Against a closed box: it opens. Against a locked door: a key unlocks it. Else the player moves, if it can."""
        doors, boxes = _of(self.doors, now.level), _of(self.boxes, now.level)
        there = now.at + torch.where(action < 2, (2 * action - 1) * self.columns, 2 * action - 5).to(now.at.dtype)
        opens = (now.closed != 0) & (boxes == there)
        door = doors == there
        unlocks = door & (now.locked != 0) & (now.held > 0)
        wall = (self.wall & (torch.arange(len(self.wall), device=there.device) == there)).any()
        stays = opens.any() | (door & (now.locked != 0)).any() | (wall & ~door.any())
        takes = (now.lying != 0) & (_of(self.keys, now.level) == there) & ~stays
        return now.replace(
            at=torch.where(stays, now.at, there),
            held=now.held + takes.sum() - unlocks.sum(),
            locked=(now.locked != 0) & ~unlocks,
            lying=(now.lying != 0) & ~takes,
            closed=(now.closed != 0) & ~opens,
        )

    def observe(self, now: House) -> Tensor:
        """uint8 `[7, size, columns]`: walls, locked doors, keys in sight, boxes, goal, player, a key in the hand."""
        doors, boxes = _of(self.doors, now.level), _of(self.boxes, now.level)
        keys = _of(self.keys, now.level)
        hidden = ((keys[:, None] == boxes) & (now.closed != 0)).any(1)
        cell = torch.arange(len(self.wall), device=now.at.device)
        everywhere = torch.ones_like(doors)
        planes = [
            self.wall & ~_shown(doors, everywhere, cell),
            _shown(doors, now.locked, cell),
            _shown(keys, (now.lying != 0) & ~hidden, cell),
            _shown(boxes, now.closed, cell),
            cell == _of(self.goal, now.level),
            cell == now.at,
            (now.held > 0).expand(len(self.wall)),
        ]
        return torch.stack([plane.to(torch.uint8) for plane in planes]).unflatten(1, (self.size, self.columns))

    def reward(self, before: House, action: Tensor, now: House) -> Tensor:
        """At the goal 1 less 0.9 of the share of the steps that were used; else 0."""
        late = 0.9 * now.time.step / self.max_steps
        return torch.where(self.terminated(now), 1 - late, 0.0).to(torch.float32)

    def terminated(self, now: House) -> Tensor:
        """The goal is reached."""
        return now.at == _of(self.goal, now.level)

    def draw(self, now: House) -> Tensor:
        """The planes in their colours; the wall blue while a key is held."""
        planes = dict(zip(self.planes, self.observe(now), strict=True))
        held = planes.pop("held") * planes["wall"]
        shown = [(plane, self.planes[name]) for name, plane in planes.items()]
        return tiles([shown[0], (held, self.planes["held"]), *shown[1:]], ground=(245, 245, 240))


def _of(table: Tensor, level: Tensor) -> Tensor:
    return table.index_select(0, level.reshape(1)).squeeze(0)


def _shown(places: Tensor, there: Tensor, cell: Tensor) -> Tensor:
    """Bool `[cells]`."""
    return ((places[:, None] == cell) & (there[:, None] != 0)).any(0)


def keydoor(
    size: int = 6, rooms: int = 2, boxes: int = 1, levels: int = 1_000, first: int = 0, max_steps: int | None = None
) -> KeyDoor:
    """The world over a range of levels; take another range to see how a policy does in levels that it has not met.

    Args:
        size: rows of the board, which are also a room's columns with its walls; at least 4.
        rooms: at least 2.
        boxes: in each room but the last, one of which hides its key; 0: keys lie open.
        levels: how many levels.
        first: number of the first.
        max_steps: of a life; None: 4 for each cell within the rooms.

    Raises:
        InputError: an argument is out of range, or a room is too small for its boxes.
    """
    size, rooms = whole("keydoor", "size", size, 4, 64), whole("keydoor", "rooms", rooms, 2, 16)
    boxes, levels = whole("keydoor", "boxes", boxes, 0), whole("keydoor", "levels", levels, 1, 1_000_000)
    first = whole("keydoor", "first", first, 0, MOST)
    room = (size - 2) ** 2
    if boxes > room - 2:
        raise InputError(f"keydoor: boxes={boxes} do not fit into rooms of {room} cells; at most {room - 2}")
    limit = 4 * room * rooms if max_steps is None else whole("keydoor", "max_steps", max_steps, 1)
    made = generated.made(size, rooms, boxes, range(first, first + levels))
    tables = [torch.from_numpy(part.reshape(levels, *part.shape[1:])) for part in made]
    wall = torch.from_numpy(generated.walls(size, rooms))
    return KeyDoor(*tables, wall=wall, size=size, rooms=rooms, max_steps=limit)
