"""The landscape and the numbers of Epstein and Axtell, "Growing Artificial Societies" (1996), chapter II."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from denizen.space import Grid

if TYPE_CHECKING:
    from .model import Sugarscape

HILLS = ((0.22, 0.78), (0.70, 0.30))  # (row, column) of the summits, as shares of the sides
TERRACES = (0.12, 0.22, 0.34, 0.47)  # how far from a summit there is sugar of 4, 3, 2, 1, in shares of the longer side


def landscape(grid: Grid) -> Tensor:
    """The most sugar that each cell bears, from 0 to 4 in terraces around two summits: int32 `[cells]`.

    Places and sizes of the terraces are those of the book's map, drawn as circles; hills do not go on over a side.
    """
    row, column = grid.coordinates(torch.arange(grid.num_cells))
    level = torch.zeros(grid.num_cells, dtype=torch.int32)
    for up, left in HILLS:
        distance = torch.hypot(row + 0.5 - up * grid.shape[0], column + 0.5 - left * grid.shape[1])
        reached = [distance < share * max(grid.shape) for share in TERRACES]
        level = torch.maximum(level, torch.stack(reached).sum(0, dtype=torch.int32))
    return level


def sugarscape(
    rows: int = 50, columns: int = 50, *, num_agents: int = 400, vision: int = 6, metabolism: int = 4, growth: int = 4
) -> "Sugarscape":
    """The model on its two hills; the defaults are the book's with immediate growback.

    Args:
        rows: of the torus.
        columns: of the torus.
        num_agents: how many there are at the start, one in a cell.
        vision: cells that the most far-sighted see; everybody's is drawn from 1 on.
        metabolism: sugar that the hungriest need in a step; everybody's is drawn from 1 on.
        growth: sugar that grows in a step on a cell that has not got all it bears; 4 is all at once.
    """
    from .model import Sugarscape

    grid = Grid((rows, columns), neighbours="von_neumann")
    return Sugarscape(
        grid,
        landscape(grid),
        num_agents=num_agents,
        vision=vision,
        metabolism=metabolism,
        growth=growth,
    )
