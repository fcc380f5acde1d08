"""A grid of cells: its shape, its borders and which cells are neighbours.

Holds no values. Fields on cells are tensors `[cells]`, and so are sums, moves and stencils over them in `_cells`,
`_cell_moves` and `_stencil`.
"""

import dataclasses
import functools
import itertools
from typing import Literal

import torch
from torch import Tensor

from denizen import _tree
from denizen._arguments import one_of, switch, whole
from denizen.errors import InputError, ModelError

_MOST_CELLS = 2**31 - 1  # a cell's number fits an int32, the kind of a count
_NO_CELL = -1

Offset = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Grid:
    """Cells in rows and columns, numbered row by row: ``cell = row * columns + column``.

    A grid holds nothing but its geometry: make it a field of a model, and what lies on its cells fields of the state,
    over an axis `cells`. Cell -1 stands for no cell: outside a closed grid, or where an agent that is not there stands.

    Attributes:
        shape: (rows, columns), or (layers, rows, columns), or (cells,) for a line.
        torus: whether each side continues on the opposite one; False closes the grid.
        neighbours: ``"moore"``, the cells within `radius` along every axis, or ``"von_neumann"``, those within `radius`
            steps along the axes.
        radius: reach of the neighbourhood in cells.
    """

    shape: tuple[int, ...]
    torus: bool = True
    neighbours: Literal["moore", "von_neumann"] = "moore"
    radius: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _shape(self.shape))
        switch("Grid", "torus", self.torus)
        one_of("Grid", "neighbours", self.neighbours, ("moore", "von_neumann"))
        object.__setattr__(self, "radius", whole("Grid", "radius", self.radius, 1))
        shortest = min(self.shape)
        if self.torus and 2 * self.radius + 1 > shortest:
            raise InputError(
                f"Grid: radius={self.radius} on a torus of shape {self.shape}, expected at most {(shortest - 1) // 2}: "
                f"a neighbourhood that meets itself would count cells twice; take torus=False or a larger shape"
            )
        if self.radius >= max(self.shape):
            raise InputError(
                f"Grid: radius={self.radius} on shape {self.shape}, expected less than the longest side; every cell "
                f"would be a neighbour of every other"
            )

    @property
    def num_cells(self) -> int:
        """Number of cells."""
        return functools.reduce(int.__mul__, self.shape)

    @functools.cached_property
    def offsets(self) -> tuple[Offset, ...]:
        """Steps from a cell to each of its neighbours, in canonical order: ascending, the first axis first."""
        reach = range(-self.radius, self.radius + 1)
        every = (offset for offset in itertools.product(reach, repeat=len(self.shape)) if any(offset))
        if self.neighbours == "moore":
            return tuple(every)
        return tuple(offset for offset in every if sum(map(abs, offset)) <= self.radius)

    def coordinates(self, cell: Tensor) -> tuple[Tensor, ...]:
        """Place of each cell along each axis: (row, column) on a plane, each of the shape of `cell`.

        Cell -1 has the coordinates of no cell: `cell` leads back to -1 on a closed grid only.
        """
        places: list[Tensor] = []
        for size in reversed(self.shape[1:]):
            places.append(cell % size)
            cell = torch.div(cell, size, rounding_mode="floor")
        return (cell, *reversed(places))

    def cell(self, *coordinates: Tensor) -> Tensor:
        """The cell at (row, column): int64; coordinates beyond a side wrap on a torus and are -1 on a closed grid."""
        if len(coordinates) != len(self.shape):
            raise ModelError(
                f"Grid.cell: got {len(coordinates)} coordinates, expected {len(self.shape)} on shape {self.shape}"
            )
        flat, inside = torch.zeros_like(coordinates[0], dtype=torch.int64), None
        for place, size in zip(coordinates, self.shape, strict=True):
            if self.torus:
                place = place % size
            else:
                within = (place >= 0) & (place < size)
                inside = within if inside is None else inside & within
            flat = flat * size + place
        return flat if inside is None else torch.where(inside, flat, _NO_CELL)

    def shift(self, cell: Tensor, offset: Offset) -> Tensor:
        """The cell that lies `offset` away from each of `cell`: int64 of its shape; -1 outside, and for cell -1."""
        if len(offset) != len(self.shape):
            raise ModelError(f"Grid.shift: offset={offset}, expected {len(self.shape)} numbers on shape {self.shape}")
        moved = self.cell(*[place + by for place, by in zip(self.coordinates(cell), offset, strict=True)])
        return torch.where(cell >= 0, moved, _NO_CELL)

    def neighbour_cells(self, cell: Tensor) -> Tensor:
        """Neighbours of each cell in the order of `offsets`: int64 `[…, neighbours]`, -1 outside, and for cell -1."""
        return torch.stack([self.shift(cell, offset) for offset in self.offsets], dim=-1)


def _shape(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, tuple | list) or not 1 <= len(shape) <= 3:
        raise InputError(f"Grid: shape={shape!r}, expected (rows, columns) or (layers, rows, columns)")
    sides = tuple(whole("Grid", f"shape[{axis}]", side, 1) for axis, side in enumerate(shape))
    if functools.reduce(int.__mul__, sides) > _MOST_CELLS:
        raise InputError(f"Grid: shape={shape!r} has more than {_MOST_CELLS:,} cells; take a smaller one")
    return sides


_tree.register(Grid, lambda grid: ([], grid), lambda children, grid: grid)
