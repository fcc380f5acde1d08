"""A grid of cells for agents and fields."""

import dataclasses

from denizen.space._cell_moves import CellMoves
from denizen.space._stencil import Stencils


@dataclasses.dataclass(frozen=True)
class Grid(CellMoves, Stencils):
    """Cells in rows and columns, numbered row by row: ``cell = row * columns + column``.

    A grid holds nothing but its geometry: make it a field of a model. What lies on its cells are fields of the state
    over an axis `cells`; where agents are is a field ``cell: Tensor = dz.count("agents")``. Cell -1 stands for no cell:
    what lies outside a closed grid. Methods take and give tensors of one world.

    Attributes:
        shape: (rows, columns), or (layers, rows, columns), or (cells,) for a line.
        torus: whether each side continues on the opposite one; False closes the grid.
        neighbours: ``"moore"``, the cells within `radius` along every axis, or ``"von_neumann"``, those within `radius`
            steps along the axes.
        radius: reach of the neighbourhood in cells.
    """
