"""Random mixing by groups: sums over everybody, weighted by a contact matrix, in place of sums over edges."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen import _arguments, ops
from denizen.errors import DataError, InputError, ModelError
from denizen.rng import Rng
from denizen.space._exact import exact
from denizen.space._origin import Origin, as_origin, lots, one_of_group, positive
from denizen.space._structure import Structure, bind, with_fields
from denizen.space.files import finite, lines

MOST_GROUPS = 127
_LANES = 512  # counters of each group on a GPU, where a million additions would queue for one


@dataclasses.dataclass(frozen=True, eq=False, repr=False, init=False)
class Mixing(Structure):
    """Everybody meets everybody at random, at rates by group.

    An agent of group i has ``matrix[i, j]`` contacts in a unit of time with members of group j, spread evenly over them
    all: the sum of a mask over an agent's contacts is ``matrix[i, j] * (share of group j with 1)``, summed over j. One
    group is homogeneous mixing.

    Attributes:
        group: int8 `[agents]`, the group of each agent.
        matrix: float32 `[groups, groups]`: mean contacts of one member of the row's group with the column's group.
        size: int64 `[groups]`: number of agents in each.

    Examples:
        >>> mixing = Mixing([0, 0, 1, 1], [[4.0, 1.0], [1.0, 2.0]])
        >>> mixing.sum(torch.tensor([1, 0, 1, 1], dtype=torch.int8))
        tensor([3.0000, 3.0000, 2.5000, 2.5000])
    """

    group: Tensor
    matrix: Tensor
    size: Tensor

    def __init__(self, group: Any, matrix: Any) -> None:
        """Args:
        group: whole numbers `[agents]`, 0 … groups - 1.
        matrix: `[groups, groups]`, or one number for one group: not negative. May carry gradient.

        Raises:
            InputError: a matrix that is not square, negative or not finite, or a group outside it.
        """
        try:
            rates = torch.as_tensor(matrix, dtype=torch.float32)
            codes = torch.as_tensor(group)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"Mixing: group or matrix is no array of numbers ({error})") from error
        rates = rates.reshape(1, 1) if rates.dim() == 0 else rates
        num = rates.shape[0]
        if rates.dim() != 2 or rates.shape[1] != num or not 1 <= num <= MOST_GROUPS:
            raise InputError(
                f"Mixing: matrix has shape {tuple(rates.shape)}, expected a square one with a row for each group, 1 to "
                f"{MOST_GROUPS}"
            )
        _not_negative(rates)
        if codes.dim() != 1 or codes.dtype.is_floating_point or codes.is_complex():
            raise InputError(
                f"Mixing: group is {codes.dtype} {tuple(codes.shape)}, expected whole numbers (agents,), the row of "
                f"each agent in the matrix"
            )
        outside = (codes < 0) | (codes >= num)
        if bool(outside.any()):
            at = int(outside.nonzero()[0])
            raise InputError(f"Mixing: group[{at}]={int(codes[at])}, expected 0 to {num - 1}, a row of the matrix")
        codes = codes.to(torch.int8)
        bind(self, group=codes, matrix=rates.to(codes.device), size=torch.bincount(codes.long(), minlength=num))

    @classmethod
    def from_file(cls, path: str | Path, group: Any) -> "Mixing":
        """Read the contact matrix from a CSV file.

        Args:
            path: rows are who was asked, columns whom they met, as POLYMOD and its successors are published; a line of
                names above and a column of names on the left may be there.
            group: as for `Mixing`.

        Raises:
            DataError: the file holds no square table of numbers; names the line.
        """
        return cls(group, read_contact_matrix(path))

    @property
    def num_agents(self) -> int:
        """Number of agents."""
        return self.group.shape[0]

    @property
    def device(self) -> torch.device:
        """Where the mixing lives."""
        return self.group.device

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return self.matrix.shape[0]

    @property
    def imbalance(self) -> float:
        """How far contacts are from being mutual: largest |N_i M_ij - N_j M_ji| relative to the larger; 0 to 1."""
        total = (self.matrix.detach() * self.size[:, None]).double()
        larger = torch.maximum(total, total.T)
        return float(((total - total.T).abs() / torch.where(larger > 0, larger, 1.0)).max())

    def balanced(self) -> "Mixing":
        """The mixing in which contacts are mutual: both groups of a pair report the mean of both totals.

        ``M'_ij = (N_i M_ij + N_j M_ji) / (2 N_i)``, as socialmixr's option `symmetric` does.
        """
        total = self.matrix * self.size[:, None]
        return self.with_matrix((total + total.T) / (2 * self.size.clamp(min=1)[:, None]))

    def with_matrix(self, matrix: Tensor) -> "Mixing":
        """The mixing with another matrix, for example a parameter of the model; its numbers are not looked at.

        Args:
            matrix: float32 `[groups, groups]`.
        """
        if not isinstance(matrix, Tensor) or matrix.shape != self.matrix.shape:
            got = tuple(matrix.shape) if isinstance(matrix, Tensor) else type(matrix).__name__
            raise InputError(f"Mixing.with_matrix: matrix is {got}, expected a tensor {tuple(self.matrix.shape)}")
        return with_fields(self, matrix=matrix)

    def renumber(self, order: Tensor) -> "Mixing":
        """The same mixing with agents laid out anew: agent `order[k]` moves to place k."""
        return with_fields(self, group=self.group[order.to(self.group.device)])

    def sum(
        self,
        values: Tensor,
        *,
        where: Tensor | None = None,
        needed: Tensor | None = None,
        max: float | None = None,
        step: Tensor | None = None,
        alive: Tensor | None = None,
    ) -> Tensor:
        """Sum of `values` over the contacts that each agent has in a unit of time: float32 `[agents]`.

        Sums are exact and independent of order, so the bits are the same on any device: of whole numbers, and of real
        ones rounded to 32 binary digits (for a million agents) of the largest, or of `max`. An agent's own value counts
        like that of others.

        Args:
            values: `[agents]`: a mask, counts or real numbers.
            where: mask `[agents]`; agents with 0 receive 0.
            needed: mask `[agents]` of those whose sum the step uses; taken as `Graph.sum` takes it.
            max: largest |value| that can occur among real values; a larger one makes the result NaN. None looks.
            step: taken and not used, as by `Graph.sum`.
            alive: mask `[agents]` of those who are there, where that changes: the others neither count as members of
                their group nor send.
        """
        self._check("sum", values, where, needed, alive)
        if alive is not None:
            there = alive != 0
            values = torch.where(there, values, torch.zeros_like(values))
            size = self._totals(there, None)
        else:
            size = self.size.to(torch.float64)
        share = self._totals(values, max) / torch.where(size > 0, size, 1.0)
        met = exact("Mixing.sum", self.matrix.to(torch.float64) * share, self.num_groups)
        out = self._spread(met.sum(dim=1).to(torch.float32))
        return out if where is None else torch.where(where != 0, out, 0.0)

    def attribute(
        self,
        rng: Rng,
        name: str,
        happened: Tensor,
        values: Tensor,
        *,
        step: Tensor | None = None,
        alive: Tensor | None = None,
    ) -> Origin:
        """Who caused what happened: one agent each, with probability in proportion to its part of the agent's sum.

        Args:
            rng: of the step.
            name: stream.
            happened: mask `[agents]` of those to whom it happened.
            values: `[agents]`, what was summed; see `Graph.attribute`.
            step: taken and not used, as by `sum`.
            alive: as `sum` was given it.

        Raises:
            ModelError: in a relaxed run.
        """
        self._check("attribute", values, None, happened, alive)
        ids, lot = lots("Mixing.attribute", rng, name)
        there = torch.ones_like(self.group) if alive is None else (alive != 0).to(torch.int8)
        wide = exact("Mixing.attribute", positive(values) * there, self.num_agents)
        group = self.group.to(torch.int64)

        def totals(of: Tensor) -> Tensor:
            return torch.zeros(self.num_groups, dtype=torch.float64, device=of.device).scatter_add(0, group, of)

        size = totals(there.to(torch.float64)).clamp(min=1)
        matrix = self.matrix.detach().to(torch.float64)
        met = exact("Mixing.attribute", matrix * (totals(wide) / size), self.num_groups)
        ends = met.cumsum(1)
        at = lot * ends[:, -1][group]
        pick, before = torch.zeros_like(group), torch.zeros_like(at)
        for end in ends[:, :-1].unbind(1):
            passed = at >= end[group]
            pick, before = pick + passed, torch.where(passed, end[group], before)
        part = met[group, pick]
        share = (at - before) / torch.where(part > 0, part, 1.0)
        source, found = one_of_group(wide, group, self.num_groups, ids, pick, share, others=False)
        return as_origin(source, found & (part > 0) & (happened != 0))

    def _totals(self, values: Tensor, max: float | None) -> Tensor:
        """Sum of values in each group: float64 `[groups]`."""
        wide = exact("Mixing.sum", values, self.num_agents, max)
        if self.num_groups == 1:
            return wide.sum()[None]
        lanes = _LANES if values.is_cuda else 1
        place = self.group.to(torch.int64) * lanes
        if lanes > 1:
            place = place + torch.arange(self.num_agents, device=values.device) % lanes
        counters = torch.zeros(self.num_groups * lanes, dtype=torch.float64, device=values.device)
        return counters.index_add(0, place, wide).view(self.num_groups, lanes).sum(dim=1)

    def _spread(self, per_group: Tensor) -> Tensor:
        """One number for each group, given to its members: float32 `[agents]`."""
        if self.num_groups == 1:
            return per_group.expand(self.num_agents)
        if not torch.is_grad_enabled():
            return ops.lookup(per_group[None, None], self.group[None], None)[0]
        out = per_group[0].expand(self.num_agents)
        for g in range(1, self.num_groups):
            out = torch.where(self.group == g, per_group[g], out)
        return out

    def _check(
        self,
        method: str,
        values: Tensor,
        where: Tensor | None,
        needed: Tensor | None = None,
        alive: Tensor | None = None,
    ) -> None:
        if where is not None and needed is not None:
            raise ModelError(f"Mixing.{method}: got where= and needed=, expected one")
        for name, tensor in (("values", values), ("where", where), ("needed", needed), ("alive", alive)):
            if tensor is None and name != "values":
                continue
            if not isinstance(tensor, Tensor) or tensor.shape != self.group.shape or tensor.is_complex():
                got = f"{tensor.dtype} {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
                raise ModelError(
                    f"Mixing.{method}: {name} is {got}, expected numbers ({self.num_agents},), one for each agent"
                )

    def __repr__(self) -> str:
        groups = "1 group" if self.num_groups == 1 else f"{self.num_groups} groups"
        return f"Mixing({self.num_agents:,} agents in {groups}, {self.device})"


def read_contact_matrix(path: str | Path) -> np.ndarray:
    """A square table of numbers from a CSV file, with or without names above and on the left: float64 `[n, n]`.

    Raises:
        DataError: names the line.
    """
    path = _arguments.path("read_contact_matrix", "path", path)
    rows = [(number, row) for number, row in lines(path, str(path)) if any(row)]
    header = len(rows) > 1 and all(finite(cell) is None for cell in rows[0][1])
    rows = rows[header:]  # below the names of groups
    size = len(rows)
    if not 1 <= size <= MOST_GROUPS:
        raise DataError(f"{path}: {size} rows of numbers, expected 1 to {MOST_GROUPS}, one for each group")
    named = all(len(row) == size + 1 for _, row in rows)
    if named and not header and all(finite(row[0]) is not None for _, row in rows):
        raise DataError(
            f"{path}: {size} rows of {size + 1} numbers, expected a square table; where the first are names, put names "
            f"above the columns too"
        )
    table = np.zeros((size, size))
    for place, (number, row) in enumerate(rows):
        cells = row[1:] if named else row
        if len(cells) != size:
            raise DataError(f"{path}, line {number}: {len(cells)} entries, expected {size}: the table is square")
        for column, cell in enumerate(cells):
            value = finite(cell)
            if value is None or value < 0:
                raise DataError(
                    f"{path}, line {number}, column {column + 1 + named}: {cell!r}, expected a number that is not "
                    f"negative, such as 0.5"
                )
            table[place, column] = value
    return table


def _not_negative(matrix: Tensor) -> None:
    bad = ~(torch.isfinite(matrix.detach()) & (matrix.detach() >= 0))
    if bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        raise InputError(
            f"Mixing: matrix[{row}, {column}]={float(matrix[row, column].detach()):g}, expected finite numbers, not "
            f"negative"
        )
