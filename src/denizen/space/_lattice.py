"""The geometry of a grid: its cells, its borders and which cells are neighbours."""

import dataclasses
import itertools
import math
import reprlib
from typing import Literal

import torch
from torch import Tensor

from denizen._arguments import one_of, switch, whole
from denizen.errors import InputError, ModelError
from denizen.space._structure import Structure

_MOST_CELLS = 2**31 - 1  # a cell's number fits an int32, the kind of a count
NO_CELL = -1
_MOST_FLOAT_CELLS = 2**24  # whole numbers that float32, the form of counts in a relaxed run, tells apart

Offset = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Lattice(Structure):
    """What `Grid` says of cells, without anybody in them.

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
        object.__setattr__(self, "torus", switch("Grid", "torus", self.torus))
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
        return math.prod(self.shape)

    @property
    def offsets(self) -> tuple[Offset, ...]:
        """Steps from a cell to each of its neighbours, in canonical order: ascending, the first axis first."""
        return tuple(offset for offset in self._box(self.radius) if self._within(offset))

    def distance(self, offset: Offset) -> int:
        """Cells from one to another: the longest side for ``"moore"``, the sum of sides for ``"von_neumann"``."""
        sides = [abs(by) for by in offset]
        return max(sides) if self.neighbours == "moore" else sum(sides)

    def _whole(self, method: str, cell: Tensor) -> Tensor:
        """Numbers of cells as int64; counts are float32 in a relaxed run. What is not whole is no cell."""
        if not isinstance(cell, Tensor):
            raise ModelError(
                f"Grid.{method}: cell is {type(cell).__name__} {reprlib.repr(cell)}, expected a tensor of cells"
            )
        if cell.is_floating_point() and self.num_cells > _MOST_FLOAT_CELLS:
            raise ModelError(
                f"Grid.{method}: cell is {cell.dtype}, which does not tell {self.num_cells:,} cells apart; run without "
                f"relax=, or take a smaller grid"
            )
        if cell.is_floating_point():
            cell = torch.where(cell == cell.trunc(), cell.detach(), NO_CELL)
        return cell.to(torch.int64)

    def _box(self, radius: int) -> list[Offset]:
        return list(itertools.product(range(-radius, radius + 1), repeat=len(self.shape)))

    def _within(self, offset: Offset) -> bool:
        return 0 < self.distance(offset) <= self.radius

    def coordinates(self, cell: Tensor) -> tuple[Tensor, ...]:
        """Place of each cell along each axis: (row, column) on a plane, int64, each of the shape of `cell`.

        Cell -1 has the coordinates of no cell: `cell` leads back to -1 on a closed grid only.
        """
        cell = self._whole("coordinates", cell)  # a narrow one would wrap at 127 or below 0
        places: list[Tensor] = []
        for size in reversed(self.shape[1:]):
            places.append(cell % size)
            cell = torch.div(cell, size, rounding_mode="floor")
        return (cell, *reversed(places))

    def cell(self, *coordinates: Tensor) -> Tensor:
        """The cell at (row, column): int64; coordinates beyond a side wrap on a torus and are -1 on a closed grid.

        Real coordinates are those of a point, and the cell is the one that it lies in; -1 where one is not finite.
        """
        if len(coordinates) != len(self.shape):
            raise ModelError(
                f"Grid.cell: got {len(coordinates)} coordinates, expected {len(self.shape)} on shape {self.shape}"
            )
        flat, inside = torch.zeros_like(coordinates[0], dtype=torch.int64), None
        for place, size in zip(coordinates, self.shape, strict=True):
            within = None
            if place.is_floating_point():
                within = torch.isfinite(place)
                place = torch.where(within, place.detach(), NO_CELL).floor()
            place = place.to(torch.int64)
            if self.torus:
                place = place % size
            else:
                within = (place >= 0) & (place < size)
            if within is not None:
                inside = within if inside is None else inside & within
            flat = flat * size + place
        return flat if inside is None else torch.where(inside, flat, NO_CELL)

    def shift(self, cell: Tensor, offset: Offset) -> Tensor:
        """The cell that lies `offset` away from each of `cell`: int64 of its shape; -1 outside, and for cell -1."""
        if len(offset) != len(self.shape):
            raise ModelError(f"Grid.shift: offset={offset}, expected {len(self.shape)} numbers on shape {self.shape}")
        moved = self.cell(*[place + by for place, by in zip(self.coordinates(cell), offset, strict=True)])
        return torch.where(cell >= 0, moved, NO_CELL)

    def neighbour_cells(self, cell: Tensor) -> Tensor:
        """Neighbours of each cell in the order of `offsets`: int64 `[…, neighbours]`, -1 outside, and for cell -1."""
        box = self._cells_of_box(cell, self.radius)
        kept = [place for place, offset in enumerate(self._box(self.radius)) if self._within(offset)]
        return torch.stack([box[..., place] for place in kept], dim=-1)

    def _cells_of_box(self, cell: Tensor, radius: int) -> Tensor:
        """Cells of the box around each cell, itself among them: int64 `[…, (2 radius + 1)**axes]`."""
        side = 2 * radius + 1
        rest, steps = torch.arange(side ** len(self.shape), device=cell.device), []  # made there: no list is copied
        for _ in self.shape:
            steps.append(rest % side - radius)
            rest = torch.div(rest, side, rounding_mode="floor")
        places = self.coordinates(cell[..., None])
        moved = self.cell(*[place + by for place, by in zip(places, reversed(steps), strict=True)])
        return torch.where(cell[..., None] >= 0, moved, NO_CELL)


def _shape(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, tuple | list) or not 1 <= len(shape) <= 3:
        raise InputError(f"Grid: shape={shape!r}, expected (rows, columns) or (layers, rows, columns)")
    sides = tuple(whole("Grid", f"shape[{axis}]", side, 1) for axis, side in enumerate(shape))
    if math.prod(sides) > _MOST_CELLS:
        raise InputError(f"Grid: shape={shape!r} has more than {_MOST_CELLS:,} cells; take a smaller one")
    return sides
