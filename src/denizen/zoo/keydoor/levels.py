"""Levels of rooms in a row, made from their numbers, and the shortest way through one."""

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Cells = NDArray[np.int32]


class Levels(NamedTuple):
    """Places in levels, cell = row * columns + column.

    Attributes:
        start: int32 `[levels]`, in the first room.
        goal: int32 `[levels]`, in the last room.
        doors: int32 `[levels, rooms - 1]`, in the wall behind each room but the last.
        keys: int32 `[levels, rooms - 1]`, one in each room but the last; in its first box, if there are boxes.
        boxes: int32 `[levels, (rooms - 1) * boxes]`, room by room.
    """

    start: Cells
    goal: Cells
    doors: Cells
    keys: Cells
    boxes: Cells


def made(size: int, rooms: int, boxes: int, numbers: range) -> Levels:
    """Levels by their numbers; a level does not depend on the others.

    Args:
        size: rows of the board; a room has `size - 2` rows and columns.
        rooms: at least 2.
        boxes: in each room but the last.
        numbers: of the levels.
    """
    columns, inside = 1 + rooms * (size - 1), np.arange(1, size - 1)
    rows: list[tuple[int, int, list[int], list[int], list[int]]] = []
    for number in numbers:
        rng = np.random.default_rng([number, size, rooms, boxes])
        free = [
            rng.permutation((inside[:, None] * columns + room * (size - 1) + inside).ravel()).tolist()
            for room in range(rooms)
        ]
        doors = [int(rng.integers(1, size - 1)) * columns + (room + 1) * (size - 1) for room in range(rooms - 1)]
        start, goal = free[0].pop(), free[-1].pop()
        keys = [free[room].pop() for room in range(rooms - 1)]
        others = [[keys[room], *free[room][: boxes - 1]] if boxes else [] for room in range(rooms - 1)]
        rows.append((start, goal, doors, keys, [cell for some in others for cell in some]))
    return Levels(*[np.array(column, np.int32) for column in zip(*rows, strict=True)])


def walls(size: int, rooms: int) -> NDArray[np.bool_]:
    """Bool `[cells]`: the border, and between the rooms, doors included."""
    row, column = np.indices((size, 1 + rooms * (size - 1)))
    return ((row % (size - 1) == 0) | (column % (size - 1) == 0)).ravel()


def shortest(levels: Levels, which: int, size: int, rooms: int) -> int:
    """Moves of the shortest way to the goal of one level, for who knows where everything is: breadth first."""
    columns, wall = 1 + rooms * (size - 1), walls(size, rooms)
    goal, doors, keys, boxes = (part[which].tolist() for part in levels[1:])
    first = (int(levels.start[which]), 0, frozenset(doors), frozenset(keys), frozenset(boxes))
    far, waiting = {first: 0}, deque([first])
    while waiting:
        now = waiting.popleft()
        at, held, locked, lying, closed = now
        if at == goal:
            return far[now]
        for move in (-columns, columns, -1, 1):
            to = at + move
            if to in closed:
                then = (at, held, locked, lying, closed - {to})
            elif to in locked:
                then = (at, held - 1, locked - {to}, lying, closed) if held else now
            elif wall[to] and to not in doors:
                then = now
            else:
                then = (to, held + (to in lying), locked, lying - {to}, closed)
            if then not in far:
                far[then] = far[now] + 1
                waiting.append(then)
    raise AssertionError("every level has a way")
