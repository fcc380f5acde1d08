"""Patterns and rules of the Game of Life by name, and how they become a model."""

import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from denizen.errors import InputError
from denizen.model import one_of, whole
from denizen.space import Grid
from denizen.zoo._contacts import check_params

if TYPE_CHECKING:
    from .model import Life

# Rows from top to bottom; what becomes of each is in the README.
PATTERNS = {
    "blinker": ("OOO",),
    "glider": (".O.", "..O", "OOO"),
    "r_pentomino": (".OO", "OO.", ".O."),
    "lightweight_spaceship": (".O..O", "O....", "O...O", "OOOO."),
    "acorn": (".O.....", "...O...", "OO..OOO"),
}


def life(
    *,
    rows: int = 80,
    columns: int = 80,
    pattern: str = "soup",
    rule: str = "B3/S23",
    torus: bool = True,
    **params: Any,
) -> "Life":
    """A game on a grid of `rows` times `columns` cells.

    Args:
        rows: of the grid.
        columns: of the grid.
        pattern: `soup`, or one of `PATTERNS`, which then lies in the middle.
        rule: numbers of living neighbours with which a cell is born, and with which it survives: `B36/S23`.
        torus: whether each side continues on the opposite one; else everything outside is dead.
        **params: `share`, alive at the start in a soup.

    Raises:
        InputError: for a pattern that is unknown or does not fit, or a rule of another form.
    """
    from .model import Life

    check_params("life", Life, params)

    one_of("life", "pattern", pattern, ("soup", *PATTERNS))
    grid = Grid((whole("life", "rows", rows, 3), whole("life", "columns", columns, 3)), torus=torus)
    found = re.fullmatch(r"[Bb]([0-8]*)/[Ss]([0-8]*)", rule) if isinstance(rule, str) else None
    if found is None:
        raise InputError(f"life: rule={rule!r}, expected numbers of neighbours such as 'B3/S23'")
    born, survive = (tuple(sorted({int(digit) for digit in digits})) for digits in found.groups())
    start = None if pattern == "soup" else placed(PATTERNS[pattern], grid)
    return Life(grid, pattern=start, born=born, survive=survive, **params)


def placed(rows: tuple[str, ...], grid: Grid) -> Tensor:
    """A pattern of ``O`` and ``.`` in the middle of a grid: mask int8 `[cells]`.

    Raises:
        InputError: it is larger than the grid.
    """
    if len(rows) > grid.shape[0] or len(rows[0]) > grid.shape[1]:
        raise InputError(f"life: a pattern of {len(rows)} × {len(rows[0])} cells does not fit on {grid.shape}")
    top, left = (grid.shape[0] - len(rows)) // 2, (grid.shape[1] - len(rows[0])) // 2
    field = torch.zeros(grid.shape, dtype=torch.int8)
    for row, line in enumerate(rows):
        for column, letter in enumerate(line):
            field[top + row, left + column] = letter == "O"
    return field.flatten()
