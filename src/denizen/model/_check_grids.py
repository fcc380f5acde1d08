"""What gives wrong neighbours on a grid without an error."""

import math
from typing import Any

from torch import Tensor

from denizen.model._guard import Hazard
from denizen.space import Grid

_BESIDE = "grid.beside(values, (0, -1)) for the cell to the left; it knows rows and borders"


def hazard_on_grids(grids: tuple[Grid, ...], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hazard | None:
    """A call of torch that mixes up rows, or wraps where it should not.

    Args:
        grids: those of the model; without any nothing is wrong.
        name: of the function.
        args: its arguments.
        kwargs: its named arguments.
    """
    values = args[0] if args else None
    if not grids or not isinstance(values, Tensor):
        return None
    if name == "fmod" and bool((values < 0).any()):
        return Hazard("fmod keeps the sign: -1 stays -1 and is no cell of a torus", "cell % columns, or grid.shift")
    if name != "roll":
        return None
    shifts = args[1] if len(args) > 1 else kwargs.get("shifts", 0)
    for grid in grids:
        if len(grid.shape) > 1 and values.shape == (grid.num_cells,):
            shift = shifts[0] if isinstance(shifts, tuple | list) else shifts
            if shift % math.prod(grid.shape[1:]):
                return Hazard("rolls a flat field: the last cell of each row moves into the next row", _BESIDE)
        elif values.shape != grid.shape:
            continue
        if not grid.torus:
            return Hazard("rolls over the border of a closed grid to its other side", _BESIDE)
    return None
