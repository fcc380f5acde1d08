"""Agents in the cells of a grid: how many stand in each, sums of their values, and values of cells for agents.

Sums are of whole numbers, so their bits depend neither on the order of agents nor on the device.
"""

import dataclasses
import reprlib

import torch
from torch import Tensor

from denizen import ops
from denizen._arguments import number
from denizen.errors import ModelError
from denizen.space._exact import sloped
from denizen.space._lattice import Lattice

_FRACTION_BITS = 62  # of an int64 without its sign, shared between a bound and as many agents as there are


@dataclasses.dataclass(frozen=True)
class AgentsInCells(Lattice):
    """Sums and look-ups between agents `[agents]` and cells `[cells]`."""

    def occupants(self, cell: Tensor, alive: Tensor | None = None) -> Tensor:
        """Number of agents in each cell: int32 `[cells]`.

        Args:
            cell: `[agents]`, the cell of each.
            alive: mask `[agents]` of those who count: the living, or those of a group.

        Returns:
            int32 `[cells]`; all of it -1 where an agent that counts is outside the grid.
        """
        place, counts, outside = self._counted("occupants", cell, alive)
        return torch.where(outside, -1, self._added(place, counts.to(torch.int32)))

    def per_cell(
        self, cell: Tensor, values: Tensor, alive: Tensor | None = None, *, max: float | None = None
    ) -> Tensor:
        """Sum of a value over the agents in each cell, exactly.

        Args:
            cell: `[agents]`, the cell of each.
            values: `[agents]`: whole numbers or masks, or real numbers with a bound.
            alive: mask `[agents]` of those who count.
            max: largest |value| that can occur, for real numbers: they are added in fixed point, exact to 2^-62 of the
                bound times the number of agents. A larger value, or a NaN, makes the whole result NaN. Gradients go
                through to the values.

        Returns:
            `[cells]`: int64, or float32 for real numbers; all of it -2**31, or NaN, where an agent that
            counts is outside the grid.
        """
        place, counts, outside = self._counted("per_cell", cell, alive)
        self._same("per_cell", "values", values, cell)
        if not values.is_floating_point():
            return torch.where(outside, -(2**31), self._added(place, values.to(torch.int64) * counts))
        if max is None:
            raise ModelError(
                "Grid.per_cell: values are real numbers, expected a bound: per_cell(…, max=largest value), so that the "
                "order of agents changes no bit; or whole numbers"
            )
        bits = _FRACTION_BITS - (cell.numel() + 1).bit_length()
        unit = number("Grid.per_cell", "max", max, above=0) * 2.0**-bits
        bounded = values.abs() <= max
        fixed = torch.where(counts & bounded, (values.to(torch.float64) / unit).round(), 0).to(torch.int64)
        total = (self._added(place, fixed).to(torch.float64) * unit).to(torch.float32)
        total = sloped(total, lambda: self._added(place, torch.where(counts & bounded, values, 0.0).to(torch.float32)))
        return torch.where(outside | (counts & ~bounded).any(), torch.nan, total)

    def at(self, field: Tensor, cell: Tensor, outside: float = 0) -> Tensor:
        """The value of a field at cells: dtype of the field, shape of `cell`.

        Args:
            field: `[cells]`.
            cell: of any shape, such as `[agents]`, or `[agents, neighbours]` from `neighbour_cells`.
            outside: what cell -1, and what else is no cell of the grid, has.
        """
        self._a_field("at", "field", field)
        place = self._whole("at", cell).flatten()
        inside = (place >= 0) & (place < self.num_cells)
        found = field.gather(0, torch.where(inside, place, 0))
        return torch.where(inside, found, torch.full_like(found, outside)).reshape(cell.shape)

    def empty_neighbours(self, occupants: Tensor, cell: Tensor) -> Tensor:
        """Which neighbours of each cell are empty, in the order of `offsets`: mask int8 `[…, neighbours]`.

        Args:
            occupants: `[cells]`, of `occupants`.
            cell: of any shape.
        """
        return (self.at(occupants, self.neighbour_cells(cell), outside=1) == 0).to(torch.int8)

    # --- plumbing -----------------------------------------------------------------------------------------------------

    def _counted(self, method: str, cell: Tensor, alive: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """A cell for each agent, int64 `[agents]`; who is in it and counts, bool; whether one who counts is in none."""
        place = self._whole(method, cell)
        if place.dim() != 1:
            raise ModelError(
                f"Grid.{method}: cell has shape {tuple(cell.shape)}, expected (agents,), a number of a cell for each; "
                f"grid.cell(row, column) gives it"
            )
        if alive is not None:
            self._same(method, "alive", alive, cell)
        counts, outside = ops.counted(place, alive, self.num_cells)
        return ops.aside(place, counts, self.num_cells), counts, outside.any()

    def _added(self, place: Tensor, values: Tensor) -> Tensor:
        """Sums of values by cell: `[cells]`."""
        zeros = torch.zeros(self.num_cells, dtype=values.dtype, device=values.device)
        return zeros.scatter_add(0, place, values)

    def _a_field(self, method: str, name: str, field: Tensor) -> None:
        if not isinstance(field, Tensor) or field.shape != (self.num_cells,):
            got = f"has shape {tuple(field.shape)}" if isinstance(field, Tensor) else f"is {reprlib.repr(field)}"
            raise ModelError(
                f"Grid.{method}: {name} {got}, expected ({self.num_cells},), one value for each cell, row by row"
            )

    def _same(self, method: str, name: str, value: Tensor, cell: Tensor | int) -> None:
        agents = cell if isinstance(cell, int) else cell.shape[0]
        if not isinstance(value, Tensor) or value.shape != (agents,):
            got = f"has shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"is {reprlib.repr(value)}"
            raise ModelError(f"Grid.{method}: {name} {got}, expected ({agents},), one for each agent")
