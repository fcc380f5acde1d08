"""Sizes and neighbourhoods of the forest, and its critical densities."""

from typing import TYPE_CHECKING, Any

from denizen.model import whole
from denizen.space import Grid
from denizen.zoo._contacts import check_params

if TYPE_CHECKING:
    from .model import ForestFire

# Site percolation on the square lattice (Newman and Ziff, Phys. Rev. Lett. 85, 4104, 2000); that of the eight
# neighbours is what is left of 1, since the lattices match (Sykes and Essam, J. Math. Phys. 5, 1117, 1964).
CRITICAL = {"von_neumann": 0.592746, "moore": 0.407254}


def forest_fire(*, rows: int = 72, columns: int = 72, neighbours: str = "von_neumann", **params: Any) -> "ForestFire":
    """A forest of `rows` times `columns` cells with closed borders.

    Args:
        rows: of the grid.
        columns: of the grid.
        neighbours: `von_neumann` for four, `moore` for eight.
        **params: `density`.

    Raises:
        InputError: for an unknown parameter or a value that does not fit.
    """
    from .model import ForestFire

    check_params("forest_fire", ForestFire, params)
    shape = (whole("forest_fire", "rows", rows, 2), whole("forest_fire", "columns", columns, 2))
    return ForestFire(Grid(shape, torus=False, neighbours=neighbours), **params)  # type: ignore[arg-type]  # checked there
