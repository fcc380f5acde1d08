"""Stencils: sums, means and largest values over the neighbours of every cell of a grid, and diffusion between them.

A `Grid` takes them on. They are plain torch that a compiler fuses with what the step does beside them, and hold no list
of neighbours: a window is added up along one axis after the other.
"""

import dataclasses
import functools
import itertools
import math
import reprlib
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from denizen._arguments import number
from denizen.errors import ModelError
from denizen.ops import FRACTION_BITS
from denizen.rng import Rng
from denizen.space._exact import exact, sloped
from denizen.space._graph import Graph, fraction_bits
from denizen.space._lattice import Lattice, Offset
from denizen.space._origin import Origin, as_origin, lots, positive

_MOST_IN_INT16 = 256  # values of an int8, -128 among them, whose sum fits
_MOST_WITH_ALARM = 10  # binary digits of a number of neighbours for which the alarm leaves FRACTION_BITS as they are
_DIGITS = 23  # after the first one of a float32: whole numbers up to twice 2**23 are exact

Combine = Callable[[Tensor, Tensor], Tensor]
Look = Callable[[int], Tensor]


@dataclasses.dataclass(frozen=True)
class Stencils(Lattice):
    """What a grid computes over neighbouring cells; fields are flat, one value for each cell, row by row."""

    @property
    def num_neighbours(self) -> int:
        """Number of neighbours of a cell away from any side."""
        axes, reach = len(self.shape), self.radius
        if self.neighbours == "moore":
            return (2 * reach + 1) ** axes - 1
        return sum(2**k * math.comb(axes, k) * math.comb(reach, k) for k in range(1, axes + 1))

    def sum(
        self,
        values: Tensor,
        *,
        where: Tensor | None = None,
        needed: Tensor | None = None,
        max: float | None = None,
        step: Tensor | None = None,
    ) -> Tensor:
        """Sum of `values` over the neighbours of each cell: the bits of `Graph.sum` on the same neighbourhood.

        Whole numbers are summed as integers, exactly. Real values with a declared bound are summed in fixed point,
        exact to 2^-40 of the bound for each neighbour, and the same bits on every device. Other real values are added
        in ascending order of cells, which takes several times as long.

        Args:
            values: `[cells]`.
            where: mask `[cells]`; the others get 0.
            needed: mask `[cells]` of those whose sum the step uses, as for `Graph.sum`: like `where` in a hard run, in
                a relaxed one every sum is computed.
            max: largest |value| that can occur. Cells that see a larger one, or a NaN, get NaN.
            step: taken and not used, so that a model serves a grid, a graph and `Layers` alike.

        Returns:
            `[cells]`: int32 for a mask, int64 for wider integers, else float32.
        """
        self._check("sum", values, where, needed)
        if needed is not None and not needed.dtype.is_floating_point:
            where = needed
        if values.dtype.is_floating_point:
            values = values.to(torch.float32)
            total = self._ordered(values) if max is None else self._fixed(values, max)
        elif values.dtype in (torch.bool, torch.int8):
            narrow = torch.int16 if self.num_neighbours <= _MOST_IN_INT16 else torch.int32
            total = self._around(values.to(narrow), torch.add, 0).to(torch.int32)
        else:
            total = self._around(values.to(torch.int64), torch.add, 0)
        return total if where is None else torch.where(where != 0, total, torch.zeros_like(total))

    def mean(
        self,
        values: Tensor,
        *,
        where: Tensor | None = None,
        needed: Tensor | None = None,
        max: float | None = None,
    ) -> Tensor:
        """Mean of `values` over the neighbours of each cell: float32 `[cells]`; arguments as for `sum`."""
        self._check("mean", values, where, needed)
        total = self.sum(values, where=where, needed=needed, max=max).to(torch.float32)
        return total / self._degree(values.device)

    def max(self, values: Tensor, *, where: Tensor | None = None, empty: float = 0) -> Tensor:
        """Largest value among the neighbours of each cell, `empty` where `where` is 0: dtype of `values`."""
        self._check("max", values, where)
        whole = not values.dtype.is_floating_point
        if values.dtype == torch.bool:
            least: float = False
        else:
            least = torch.iinfo(values.dtype).min if whole else -torch.inf
        most = self._around(values, torch.maximum, least)
        return most if where is None else torch.where(where != 0, most, torch.full_like(most, empty))

    def any(self, values: Tensor, *, where: Tensor | None = None) -> Tensor:
        """Mask int8 `[cells]`: 1 where some neighbour's value is not 0."""
        self._check("any", values, where)
        found = self._around((values != 0).to(torch.int8), torch.maximum, 0)
        return found if where is None else torch.where(where != 0, found, torch.zeros_like(found))

    def beside(self, values: Tensor, offset: Offset, *, empty: float = 0) -> Tensor:
        """The value of the cell that lies `offset` away from each cell: `[cells]`, dtype of `values`.

        Args:
            values: `[cells]`.
            offset: steps along each axis: ``(0, 1)`` looks a column to the right.
            empty: what lies outside a closed grid.
        """
        self._check("beside", values)
        if len(offset) != len(self.shape):
            raise ModelError(f"Grid.beside: offset={offset}, expected {len(self.shape)} numbers on shape {self.shape}")
        seen = values.reshape(self.shape)
        for axis, (far, size) in enumerate(zip(offset, self.shape, strict=True)):
            if self.torus:
                seen = torch.roll(seen, -far, axis)
            elif far:
                kept = seen.narrow(axis, min(max(far, 0), size), max(size - abs(far), 0))
                sides = (min(max(-far, 0), size), min(max(far, 0), size))
                seen = pad(kept, (0, 0) * (len(self.shape) - 1 - axis) + sides, value=empty)
        return seen.reshape(-1)

    def diffuse(self, field: Tensor, rate: Tensor | float, *, max: float | None = None) -> Tensor:
        """The field after a step in which each cell passes the share `rate` of its value to each of its neighbours.

        On the von Neumann neighbourhood of radius 1 that is the diffusion equation with rate = D dt / h² for cells of
        side h: the variance of a point source grows by 2 · rate cells² in a step along each axis. Moore's grows by
        6 · rate. A closed grid reflects: what would leave stays where it is.

        With `max`, a cell passes on whole units of 2^-22 of it (of the power of 2 at or above it), and never more than
        it has. Then every sum is exact: the total of a field of whole units keeps to the last bit, and results have the
        same bits on every device; the first step rounds a field to whole units. Without `max` sums are rounded, in a
        smooth field all in one direction: the total drifts by up to 3e-8 of itself in a step.

        Either way a field that is not negative stays so.

        Args:
            field: `[cells]`, real.
            rate: share for each neighbour, from 0 to 1 / (number of neighbours): beyond that the step is unstable. A
                number or a 0-d tensor; one that is computed and lies outside makes the field NaN.
            max: largest |value| that can occur; rounding may exceed it by a millionth. Beyond twice that: NaN.

        Returns:
            float32 `[cells]`.

        Raises:
            ModelError: for a rate outside of that.
        """
        self._check("diffuse", field)
        if not field.dtype.is_floating_point:
            raise ModelError(f"Grid.diffuse: field is {field.dtype}, expected real numbers: dz.real('cells')")
        share = self._share(rate, field.device)
        field, degree = field.to(torch.float32), self._degree(field.device)
        if max is None:
            passed = field * share
            kept = field - degree * passed
            kept = torch.where((kept < 0) == (field < 0), kept, 0.0)  # rounding may pass on more than there is
            return kept + self._around(passed, torch.add, 0)
        bound = number("Grid.diffuse", "max", max, above=0)
        unit = 2.0 ** (math.ceil(math.log2(bound)) - _DIGITS + 1)
        scaled = torch.where(field.abs() <= 2 * bound, field, torch.nan) * (1 / unit)
        amount = sloped(torch.round(scaled), lambda: scaled)
        wanted, most = torch.round(amount * share), torch.trunc(amount * self._part)
        whole = torch.where(wanted.abs() <= most.abs(), wanted, most)
        passed = sloped(whole, lambda: amount * share)
        return (amount - degree * passed + self._around(passed, torch.add, 0)) * unit

    def graph(self) -> Graph:
        """The graph of the same neighbours, for what only graphs can do: 8 bytes an edge and more, on the CPU."""
        cell = torch.arange(self.num_cells)
        source = self.neighbour_cells(cell)
        there = source >= 0
        return Graph.from_edges(source[there], cell[:, None].expand(source.shape)[there], self.num_cells)

    def attribute(self, rng: Rng, name: str, happened: Tensor, values: Tensor, *, step: Tensor | None = None) -> Origin:
        """Who caused what happened to cells: one neighbour each, with probability in proportion to value.

        Args:
            rng: of the step.
            name: stream.
            happened: mask `[cells]` of those to whom it happened.
            values: `[cells]`, what was summed; see `Graph.attribute`.
            step: taken and not used, as by `sum`.

        Raises:
            ModelError: in a relaxed run.
        """
        self._check("attribute", values, happened)
        cell = torch.arange(self.num_cells, device=values.device)
        _, lot = lots("Grid.attribute", rng, name)
        wide = exact("Grid.attribute", positive(values), self.num_neighbours)
        near = self.neighbour_cells(cell)
        ends = torch.where(near >= 0, wide[near.clamp(min=0)], 0.0).cumsum(1)
        at = torch.minimum(lot * ends[:, -1], ends[:, -1] * (1 - 2.0**-52))
        pick = (ends <= at[:, None]).sum(1, keepdim=True).clamp(max=near.shape[1] - 1)
        return as_origin(near.gather(1, pick)[:, 0], (ends[:, -1] > 0) & (happened != 0))

    # --- inside -------------------------------------------------------------------------------------------------------

    @property
    def _part(self) -> float:
        """1 / neighbours, in float32 not above it, so that so many parts of a number are never more than the number."""
        exact = self.num_neighbours & (self.num_neighbours - 1) == 0
        return (1 if exact else 1 - 2.0**-_DIGITS) / self.num_neighbours

    def _share(self, rate: Tensor | float, device: torch.device) -> Tensor:
        most = 1 / self.num_neighbours
        if not isinstance(rate, Tensor):
            hint = f" (1 / {self.num_neighbours} neighbours): take a smaller rate or shorter steps"
            return torch.full((), number("Grid.diffuse", "rate", rate, 0, most, hint=hint), device=device)
        if rate.dim() != 0:
            raise ModelError(f"Grid.diffuse: rate has shape {tuple(rate.shape)}, expected a number or a 0-d tensor")
        rate = rate.to(torch.float32)
        return torch.where((rate >= 0) & (rate <= most * (1 + 2.0**-_DIGITS)), rate, torch.nan)

    def _degree(self, device: torch.device) -> Tensor:
        """Number of neighbours of each cell, float32: `[]` on a torus, `[cells]` on a closed grid."""
        if self.torus:
            return torch.full((), float(self.num_neighbours), device=device)
        if self.neighbours == "von_neumann" and self.radius > 1:
            return self._around(torch.ones(self.num_cells, device=device), torch.add, 0)
        sides = []
        for axis, size in enumerate(self.shape):
            place = torch.arange(size, device=device).to(torch.float32)
            sides.append(self._along(place.clamp(max=self.radius) + (size - 1 - place).clamp(max=self.radius), axis))
        if self.neighbours == "von_neumann":
            return functools.reduce(torch.add, sides).reshape(-1)
        return functools.reduce(torch.mul, [side + 1 for side in sides]).reshape(-1) - 1

    def _along(self, line: Tensor, axis: int) -> Tensor:
        """A tensor over one axis, so that it broadcasts over the others."""
        return line.reshape(-1, *[1] * (len(self.shape) - 1 - axis))

    def _around(self, values: Tensor, combine: Combine, fill: float) -> Tensor:
        """Values of the neighbours of each cell, combined in an order that is the same for every cell.

        From the last axis to the first. `found` is the window along the axes so far without its centre; `discs` are
        windows with it, which the next axis looks at: Moore's window is a product, von Neumann's shrinks by a cell for
        each step along another axis, so it has one of each reach below the radius.
        """
        values = values.reshape(self.shape)
        moore = self.neighbours == "moore"
        discs = [values] if moore else [values] * self.radius
        found: Tensor | None = None
        for axis in reversed(range(len(self.shape))):
            reach = min(self.radius, self.shape[axis] - 1)
            looks = self._looks(discs, axis, reach, fill)
            sizes = [self.radius] if moore else range(self.radius + 1)
            rings = [self._ring(looks, min(size, reach), 0 if moore else size, combine) for size in sizes]
            found = _joined(combine, found, rings[-1])
            discs = [d if ring is None else combine(d, ring) for d, ring in zip(discs, rings, strict=False) if axis]
        assert found is not None  # a grid's radius is less than its longest side
        return found.reshape(-1)

    def _ring(self, looks: list[Look], size: int, first: int, combine: Combine) -> Tensor | None:
        """What lies up to `size` off the centre along an axis, where the disc `far` away is number `first - far`."""
        parts = [looks[max(first - far, 0)](side * far) for far in range(1, size + 1) for side in (-1, 1)]
        return functools.reduce(combine, parts) if parts else None

    def _looks(self, discs: list[Tensor], axis: int, reach: int, fill: float) -> list[Look]:
        """For each disc a function of a distance along an axis that gives, for each cell, the value that far on."""
        made: dict[int, Look] = {}
        for disc in discs:
            if id(disc) not in made:
                made[id(disc)] = self._look(disc, axis, reach, fill)
        return [made[id(disc)] for disc in discs]

    def _look(self, values: Tensor, axis: int, reach: int, fill: float) -> Look:
        if self.torus and values.is_cuda:  # index arithmetic that fuses; on a CPU a padded copy costs less
            return lambda far: torch.roll(values, -far, axis)
        return self._padded(values, axis, reach, fill)

    def _padded(self, values: Tensor, axis: int, reach: int, fill: float) -> Look:
        size = self.shape[axis]
        if self.torus:
            ends = (values.narrow(axis, size - reach, reach), values, values.narrow(axis, 0, reach))
            padded = torch.cat(ends, dim=axis)
        else:
            padded = pad(values, (0, 0) * (len(self.shape) - 1 - axis) + (reach, reach), value=fill)
        return lambda far: padded.narrow(axis, reach + far, size)

    def _ordered(self, values: Tensor) -> Tensor:
        """Sums of real values in ascending order of the neighbours' numbers, as a graph pulls them.

        Along an axis, neighbour k of each place is the one with the k-th lowest number; at the sides of a torus that is
        another distance than in the middle.
        """
        square = values.reshape(self.shape)
        total = torch.zeros_like(square)
        norm = torch.maximum if self.neighbours == "moore" else torch.add
        ranks = [self._ranks(axis, values.device) for axis in range(len(self.shape))]
        for chosen in itertools.product(*ranks):
            piece = square
            for axis, (index, _) in enumerate(chosen):
                piece = piece.index_select(axis, index)
            far = functools.reduce(norm, [self._along(distance, axis) for axis, (_, distance) in enumerate(chosen)])
            total = total + torch.where((far > 0) & (far <= self.radius), piece, 0.0)
        return total.reshape(-1)

    def _ranks(self, axis: int, device: torch.device) -> list[tuple[Tensor, Tensor]]:
        """For each rank k the place of the neighbour of that rank, int64, and its distance, int32: `[size]` both."""
        size, width = self.shape[axis], 2 * self.radius + 1
        place = torch.arange(size, device=device)
        found = []
        for k in range(width):
            index = place + (k - self.radius)
            if self.torus:
                past = (place + self.radius - (size - 1)).clamp(min=0)  # so many come first, from the other side
                before = (self.radius - place).clamp(min=0)  # so many come last
                index = torch.where(k < past, k, index - past)
                index = torch.where(before == 0, index, torch.where(k < width - before, k, size - width + k))
                away = (index - place).abs()
                away = torch.minimum(away, size - away)
            else:
                inside = (index >= 0) & (index < size)
                away = torch.where(inside, (index - place).abs(), self.radius + 1)
                index = index.clamp(0, size - 1)
            found.append((index, away.to(torch.int32)))
        return found

    def _fixed(self, values: Tensor, bound: float) -> Tensor:
        """Sums in fixed point; a value beyond the bound is added as an alarm that no sum of others reaches."""
        most = self.num_neighbours
        digits = most.bit_length()
        spare = max(0, digits - _MOST_WITH_ALARM)
        bits = fraction_bits("Grid.sum", bound, most) - 2 * spare
        alarm = 2.0 ** (FRACTION_BITS - 2 * spare + 1 + digits)
        scaled = torch.where(values.abs() <= bound, torch.round(values * 2.0**bits), alarm)
        total = self._around(scaled.to(torch.int64), torch.add, 0).to(torch.float64)
        exact = torch.where(total.abs() < alarm / 2, (total * 2.0**-bits).to(torch.float32), torch.nan)
        return sloped(exact, lambda: self._around(values, torch.add, 0))

    def _check(self, method: str, values: Tensor, where: Tensor | None = None, needed: Tensor | None = None) -> None:
        if where is not None and needed is not None:
            raise ModelError(
                f"Grid.{method}: got where= and needed=, expected one: needed= for sums of others that nothing uses, "
                f"where= for sums of others that are 0"
            )
        for name, tensor in (
            ("values" if method != "diffuse" else "field", values),
            ("where", where),
            ("needed", needed),
        ):
            if tensor is None and name in ("where", "needed"):
                continue
            expected = f"({self.num_cells},), one for each cell"
            if not isinstance(tensor, Tensor):
                kind = type(tensor).__name__
                raise ModelError(
                    f"Grid.{method}: {name} is {kind} {reprlib.repr(tensor)}, expected a tensor {expected}"
                )
            if tensor.is_complex():
                raise ModelError(f"Grid.{method}: {name} is {tensor.dtype}, expected masks, whole or real numbers")
            if tuple(tensor.shape) == tuple(self.shape) and len(self.shape) > 1:
                raise ModelError(
                    f"Grid.{method}: {name} has shape {tuple(tensor.shape)}, expected {expected}: fields on a grid are "
                    f"flat, row by row; write {name}.flatten()"
                )
            if tuple(tensor.shape) != (self.num_cells,):
                raise ModelError(f"Grid.{method}: {name} has shape {tuple(tensor.shape)}, expected {expected}")


def _joined(combine: Combine, one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return combine(one, other)
