"""Where the nest and the food are: the arrangement of NetLogo's Ants, scaled to the grid."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from denizen.model import whole
from denizen.space import Grid
from denizen.zoo._contacts import check_params

if TYPE_CHECKING:
    from .model import Ants

SOURCES = ((0.0, 0.6), (-0.6, -0.6), (0.8, -0.8))  # (up, right) of the nest, as shares of half a side
SOURCE_RADIUS = 5.0 / 35  # of a source, as a share of half a side
COMPASS = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))  # (rows, columns), clockwise from up


def ants(size: int = 71, *, num_agents: int = 125, portions: int = 2, **params: Any) -> "Ants":
    """A colony in the middle of a closed square with three sources of food, each farther off than the one before.

    Args:
        size: cells along a side.
        num_agents: ants.
        portions: of food on each cell of a source.
        **params: `drop`, `evaporation`, `diffusion`, `wander`.

    Raises:
        InputError: for an unknown parameter or a value that does not fit.
    """
    from .model import Ants

    check_params("ants", Ants, params)
    grid = Grid((whole("ants", "size", size, 15), size), torus=False)
    return Ants(
        grid,
        far=_distances(grid, 0.0, 0.0),
        larder=_larder(grid, whole("ants", "portions", portions, 1)),
        compass=torch.tensor(COMPASS),
        num_agents=num_agents,
        **params,
    )


def _distances(grid: Grid, up: float, right: float) -> Tensor:
    """Distance of each cell from a place, in cells: float32 `[cells]`."""
    row, column = grid.coordinates(torch.arange(grid.num_cells))
    half = (grid.shape[0] - 1) / 2
    return torch.hypot(row - half * (1 - up), column - half * (1 + right))


def _larder(grid: Grid, portions: int) -> Tensor:
    """Portions of food that each cell has at the start: int32 `[cells]`."""
    radius = SOURCE_RADIUS * grid.shape[0] / 2
    return sum(((_distances(grid, *at) < radius).to(torch.int32) for at in SOURCES), torch.zeros(1)).int() * portions
