"""People in places: sums over those who are in the same room, household or bus, which may change at every step."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from denizen._arguments import whole
from denizen.errors import InputError, ModelError
from denizen.rng import Rng
from denizen.space._exact import exact
from denizen.space._origin import Origin, as_origin, lots, one_of_group, positive
from denizen.space._structure import Structure, bind

_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, init=False)
class Places(Structure):
    """Places that agents are in, one each at a time; who is where is a field of the state.

    Such a field is declared as ``place: Tensor = dz.count("agents", max=num_places)``. The number `num_places` itself
    stands for nowhere: who is there meets nobody.

    Attributes:
        num_places: number of places.
        capacity: int64 `[places]`, how many `admit` lets in; None for any number.

    Examples:
        >>> rooms = Places(3)
        >>> place = torch.tensor([0, 0, 0, 1, 3])
        >>> rooms.sum(torch.tensor([1, 1, 0, 1, 1], dtype=torch.int8), place)
        tensor([1., 1., 2., 0., 0.])
    """

    num_places: int
    capacity: Tensor | None

    def __init__(self, num_places: int, capacity: Any = None) -> None:
        """Args:
        num_places: number of places.
        capacity: of every place, or `[places]`.

        Raises:
            InputError: no places, or capacities that are negative or not whole numbers.
        """
        num = whole("Places", "num_places", num_places, 1, 2**31 - 2)
        if capacity is not None:
            try:
                given = torch.as_tensor(capacity)
            except (TypeError, ValueError, RuntimeError) as error:
                raise InputError(f"Places: capacity={capacity!r}, expected a whole number or one a place") from error
            if given.shape not in ((), (num,)) or given.dtype not in _WHOLE or bool((given < 0).any()):
                raise InputError(
                    f"Places: capacity is {given.dtype} {tuple(given.shape)}, expected whole numbers of at least 0, "
                    f"one for all or ({num},)"
                )
            capacity = given.to(torch.int64).expand(num).contiguous()
        bind(self, num_places=num, capacity=capacity)

    def sum(self, values: Tensor, place: Tensor, *, where: Tensor | None = None, max: float | None = None) -> Tensor:
        """Sum of `values` over the others in each agent's place: float32 `[agents]`.

        Exact and independent of order, so the bits are the same on any device: sums of whole numbers, and of real ones
        rounded to 32 binary digits (for a million agents) of the largest, or of `max`.

        Args:
            values: `[agents]`: a mask, counts or real numbers. Who is not there (the dead) has 0.
            place: whole numbers `[agents]`, 0 … num_places. Another one makes the result NaN.
            where: mask `[agents]`; agents with 0 receive 0.
            max: largest |value| that can occur among real values; a larger one makes the result NaN. None looks.
        """
        _check("sum", values, place, where)
        wide, (place, bad) = exact("Places.sum", values, values.shape[0], max), self._inside(place)
        total = self._totals(wide, place)
        total = torch.where(place < self.num_places, total[place] - wide, 0.0)
        out = torch.where(bad, torch.nan, total).to(torch.float32)
        return out if where is None else torch.where(where != 0, out, 0.0)

    def mean(
        self,
        values: Tensor,
        place: Tensor,
        *,
        where: Tensor | None = None,
        max: float | None = None,
        alive: Tensor | None = None,
    ) -> Tensor:
        """Mean of `values` over the others in each agent's place, 0 for who is alone: float32 `[agents]`.

        Args:
            values: as for `sum`.
            place: as for `sum`.
            where: as for `sum`.
            max: as for `sum`.
            alive: mask `[agents]` of those who are there, where some are not.
        """
        there = torch.ones_like(place, dtype=torch.int8) if alive is None else (alive != 0).to(torch.int8)
        values = values if alive is None else torch.where(there != 0, values, torch.zeros_like(values))
        others = self.sum(there, place)
        mean = self.sum(values, place, where=where, max=max) / others.clamp(min=1.0)
        return torch.where(others == 0, 0.0, mean)  # NaN stays

    def occupancy(self, place: Tensor, *, alive: Tensor | None = None) -> Tensor:
        """How many agents are in each place: int32 `[places]`; all of it -1 where a place does not exist.

        Args:
            place: as for `sum`.
            alive: mask `[agents]` of those who are there, where some are not.
        """
        there = torch.ones_like(place) if alive is None else (alive != 0)
        _check("occupancy", there, place, None)
        inside, bad = self._inside(place)
        return torch.where(bad, -1, self._totals(there.to(torch.int64), inside)[: self.num_places].to(torch.int32))

    def attribute(self, rng: Rng, name: str, happened: Tensor, values: Tensor, place: Tensor) -> Origin:
        """Who caused what happened: one of the others in the agent's place, with probability in proportion to value.

        Args:
            rng: of the step.
            name: stream.
            happened: mask `[agents]` of those to whom it happened.
            values: `[agents]`, what `sum` or `mean` was given; who is not there has 0.
            place: as for `sum`.

        Raises:
            ModelError: in a relaxed run.
        """
        _check("attribute", values, place, happened)
        ids, lot = lots("Places.attribute", rng, name)
        wide, (place, bad) = exact("Places.attribute", positive(values), values.shape[0]), self._inside(place)
        source, found = one_of_group(wide, place, self.num_places + 1, ids, place, lot, others=True)
        return as_origin(source, found & (place < self.num_places) & (happened != 0) & ~bad)

    def admit(self, rng: Rng, name: str, place: Tensor, wanted: Tensor, *, alive: Tensor | None = None) -> Tensor:
        """Where agents are after those who want to be elsewhere went there, as far as there is room.

        Whoever stays keeps the room. Free room goes to those who want it in random order, which depends on their
        identities and not on their order; room that is left in the same step is free in the next one. Who finds none
        stays.

        Args:
            rng: of the step.
            name: stream.
            place: int64 `[agents]`, where they are.
            wanted: `[agents]`, where they want to be, for some the same.
            alive: mask `[agents]` of those who are there, where some are not: the others take no room and stay.

        Returns:
            dtype of `place`, `[agents]`.
        """
        if self.capacity is None:
            raise ModelError("Places.admit: the places have no capacity; give one: Places(num_places, capacity=…)")
        _check("admit", wanted, place, None)
        room = torch.nn.functional.pad(
            self.capacity - self.occupancy(place, alive=alive), (0, 1), value=2**31 - 1
        )  # nowhere has room
        (goal, bad), moves = self._inside(wanted), wanted != place
        moves = moves if alive is None else moves & (alive != 0)
        bad = bad | self._inside(place)[1]
        goal = torch.where(moves, goal, self.num_places + 1)  # who stays is last, for nothing
        turn = rng.permutation(name)
        order = turn[torch.argsort(goal[turn], stable=True)]
        seekers = self._totals(moves.to(torch.int64), goal.clamp(max=self.num_places))
        first = seekers.cumsum(0) - seekers  # in the queue of all, of those who want each place
        queue = goal[order].clamp(max=self.num_places)
        rank = torch.arange(place.shape[0], device=place.device) - first[queue]
        enters = torch.zeros_like(moves).scatter(0, order, rank < room[queue])
        after = torch.where(moves & enters, goal.to(place.dtype), place)
        return torch.where(bad, -1, after)  # a place that does not exist is found as a fault of the field

    def _inside(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """Places as int64 within the table, and whether one was outside (0-d)."""
        whole = place.detach().to(torch.int64)  # a relaxed run holds counts as real numbers
        bad = ((whole != place.detach()) | (whole < 0) | (whole > self.num_places)).any()
        return whole.clamp(0, self.num_places), bad

    def _totals(self, values: Tensor, place: Tensor) -> Tensor:
        table = torch.zeros(self.num_places + 1, dtype=values.dtype, device=values.device)
        return table.scatter_add(0, place, values)

    def __repr__(self) -> str:
        return f"Places({self.num_places:,}{'' if self.capacity is None else ', with capacities'})"


def _check(method: str, values: Any, place: Any, where: Any) -> None:
    if not isinstance(place, Tensor) or place.dim() != 1 or place.is_complex():
        got = f"{place.dtype} {tuple(place.shape)}" if isinstance(place, Tensor) else type(place).__name__
        raise ModelError(f"Places.{method}: place is {got}, expected whole numbers (agents,), the place of each")
    for what, tensor in (("values", values), ("where", where)):
        if tensor is None and what == "where":
            continue
        if not isinstance(tensor, Tensor) or tensor.shape != place.shape or tensor.is_complex():
            got = f"{tensor.dtype} {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ModelError(f"Places.{method}: {what} is {got}, expected numbers {tuple(place.shape)}, as place has")
