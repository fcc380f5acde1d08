"""Agents that move between the cells of a grid, conflicts settled by draws, and the choice of where to go.

Draws belong to identities and everything else is whole numbers, so outcomes depend neither on the order in which agents
are laid out nor on the device.
"""

import dataclasses

import torch
from torch import Tensor

from denizen import ops
from denizen._arguments import whole
from denizen.errors import ModelError
from denizen.rng import Rng
from denizen.space._cells import AgentsInCells
from denizen.space._lattice import NO_CELL

_WORD = 31  # bits of a draw


@dataclasses.dataclass(frozen=True)
class CellMoves(AgentsInCells):
    """Moves and choices of agents `[agents]` between cells.

    Each draws under a name of its own, so a step that calls one of them twice gives the second a scope:
    ``rng["home"]``.
    """

    # --- moves --------------------------------------------------------------------------------------------------------

    def settle(
        self,
        cell: Tensor,
        target: Tensor,
        rng: Rng,
        *,
        capacity: int | Tensor = 1,
        rounds: int = 1,
        alive: Tensor | None = None,
    ) -> Tensor:
        """Move agents to the cells that they want, as far as there is room.

        Each agent draws a priority. In a round every cell takes, of the agents that want it, those of the lowest
        priorities, as many as it has room for when the round begins; the others try again in the next round, when
        places have been left. After the last round they stay where they are. So two agents never change places in full
        cells, and a queue of full cells moves up by one cell in a round, from its head.

        Args:
            cell: `[agents]`, where each is.
            target: `[agents]`, where each wants to be; -1, or its own cell, to stay.
            rng: of the step; of the agents' axis.
            capacity: agents that fit into a cell: a number, or whole numbers `[cells]`.
            rounds: how often the losers try.
            alive: mask `[agents]` of those who are there; the others neither move nor take room.

        Returns:
            int64 `[agents]`: where each is now. A cell that holds more agents than its capacity to begin with, or an
            agent outside the grid, stops the run with a `ModelError` at the end of the chunk.
        """
        rounds = whole("Grid.settle", "rounds", rounds, 1)
        place, limit = self._seen("settle", cell, rng), self._limit("settle", capacity, rng)
        self._same("settle", "target", target, cell)
        if alive is not None:
            self._same("settle", "alive", alive, cell)
        after, bad = ops.settle_cells(
            place,
            self._whole("settle", target),
            alive,
            limit,
            self.num_cells,
            rounds,
            isinstance(capacity, int) and capacity == 1,
            *self._draws(rng),
            rng._stream("priority"),
        )
        self._flag("settle", capacity, rng, bad)
        rng._bad.append((f"grid: settle was given a target beyond its {self.num_cells:,} cells; {_BEYOND}", bad[2]))
        return after

    def to_empty(
        self,
        cell: Tensor | None,
        who: Tensor | None,
        rng: Rng,
        *,
        capacity: int = 1,
        alive: Tensor | None = None,
    ) -> Tensor:
        """Move agents to free places drawn at random, no two to the same: a random matching of movers and places.

        Places are those that are free before anybody moves. Every way of matching as many as can be matched has the
        same probability; movers for whom no place is left stay.

        Args:
            cell: `[agents]`, where each is; None before anybody is anywhere, in `init`.
            who: mask `[agents]` of those who move; None for all.
            rng: of the step; of the agents' axis.
            capacity: agents that fit into a cell.
            alive: mask `[agents]` of those who are there.

        Returns:
            int64 `[agents]`: where each is now.

        Raises:
            ModelError: for more agents than places.
        """
        agents, places = rng._num, self.num_cells * whole("Grid.to_empty", "capacity", capacity, 1)
        if places >= 1 << _WORD:
            raise ModelError(f"Grid.to_empty: capacity={capacity} makes {places:,} places, expected fewer than 2**31")
        if alive is None and agents > places:
            raise ModelError(
                f"Grid.to_empty: {agents:,} agents for {places:,} places (shape {self.shape}, capacity={capacity}), "
                f"expected at most as many; take a larger grid or fewer agents"
            )
        for name, mask in (("who", who), ("alive", alive)):
            if mask is not None:
                self._same("to_empty", name, mask, rng._num)
        place = torch.zeros(agents, dtype=torch.int64, device=rng._key.device)
        if cell is not None:
            place = self._seen("to_empty", cell, rng)
        streams = rng._stream("turn"), rng.on("cells", places)._stream("place")
        after, bad = ops.fill_cells(
            place, who, alive, cell is None, self.num_cells, capacity, *self._draws(rng), *streams
        )
        self._flag("to_empty", capacity, rng, bad)
        return after

    # --- where to go --------------------------------------------------------------------------------------------------

    def random_neighbour(
        self, cell: Tensor, rng: Rng, *, where: Tensor | None = None, who: Tensor | None = None
    ) -> Tensor:
        """A neighbouring cell drawn at random, each with the same probability; its own where there is none.

        Args:
            cell: `[agents]`, where each is.
            rng: of the step; of the agents' axis.
            where: mask `[cells]` of those that may be drawn, such as ``occupants == 0``.
            who: mask `[agents]` of those who move, such as the living; the others stay, and cost nothing on a CPU.

        Returns:
            int64 `[agents]`, for `settle`.
        """
        place = self._seen("random_neighbour", cell, rng)
        if who is not None:
            self._same("random_neighbour", "who", who, cell)
        if where is None and self.neighbours == "moore":
            if ops.variant(place.device) == "numba":
                mask = None if who is None else (who != 0).to(torch.int8)[None]
                ids, key, step = self._draws(rng)
                grid = list(self.shape), self.radius, self.torus
                return ops.step_rows(place[None], mask, *grid, ids, key, step, rng._stream("neighbour"))[0]
            moved = self._step_aside(place, rng.integers("neighbour", 0, 1 << _WORD))
        else:
            near = self.neighbour_cells(cell)
            score = (near >= 0).to(torch.int32) if where is None else self._hit(where, near)
            best = _drawn(score, near, rng.integers("neighbour", 0, 1 << _WORD))
            moved = torch.where(score.amax(-1) > 0, best, place)
        return moved if who is None else torch.where(who != 0, moved, place)

    def best_visible(
        self, field: Tensor, cell: Tensor, rng: Rng, *, vision: Tensor | int, most: int, where: Tensor | None = None
    ) -> Tensor:
        """The cell of the largest value that an agent sees along the lines of the grid, its own cell included.

        Of equally good ones the nearest, of equally near ones one drawn at random. NaN is the worst value of all.

        Args:
            field: `[cells]`.
            cell: `[agents]`, where each is.
            rng: of the step; of the agents' axis.
            vision: how many cells far each sees: a number, or whole numbers `[agents]`. One above `most` stops the run.
            most: the farthest that anybody sees.
            where: mask `[cells]` of those that may be chosen besides its own, such as ``occupants == 0``.

        Returns:
            int64 `[agents]`, for `settle`.
        """
        place = self._seen("best_visible", cell, rng)
        self._a_field("best_visible", "field", field)
        most = whole("Grid.best_visible", "most", most, 1, max(self.shape) - 1)
        if isinstance(vision, Tensor):
            self._same("best_visible", "vision", vision, cell)
            rng._bad.append((_TOO_FAR.format(most), (vision > most).any().to(torch.int8)))
        else:
            whole("Grid.best_visible", "vision", vision, 0, most)
        seen, far, once = self._lines(place, most)
        allowed = (seen >= 0) & once & (far <= (vision[:, None] if isinstance(vision, Tensor) else vision))
        if where is not None:
            allowed = allowed & (self.at(where, seen) != 0)
        own = torch.ones_like(place, dtype=torch.bool)[:, None]
        seen, allowed = torch.cat([place[:, None], seen], 1), torch.cat([own, allowed], 1)
        far = torch.cat([torch.zeros_like(far[:1]), far])
        value = self.at(field.to(torch.int8) if field.dtype == torch.bool else field, seen)
        worst = -torch.inf if value.is_floating_point() else torch.iinfo(value.dtype).min
        value = torch.where(value == value, value, torch.full_like(value, worst))
        value = torch.where(allowed, value, torch.full_like(value, worst))
        good = allowed & (value == value.amax(-1, keepdim=True))
        return _drawn(torch.where(good, most - far, -1), seen, rng.integers("best", 0, 1 << _WORD))

    def nearest(self, where: Tensor, cell: Tensor, rng: Rng, *, radius: int, own: bool = True) -> Tensor:
        """The nearest cell of some kind, of equally near ones one drawn at random; -1 where none is within `radius`.

        Distances are those of `neighbours`. The work grows with the cells within `radius`, for each agent.

        Args:
            where: mask `[cells]`: where a resource lies, or ``grid.occupants(cell, women)``.
            cell: `[agents]`, where each is.
            rng: of the step; of the agents' axis.
            radius: how far to look.
            own: whether its own cell counts.

        Returns:
            int64 `[agents]`.
        """
        self._seen("nearest", cell, rng)
        radius = whole("Grid.nearest", "radius", radius, 1, (min(self.shape) - 1) // 2 if self.torus else None)
        box, far = self._cells_of_box(self._whole("nearest", cell), radius), self._box(radius)
        kept = [place for place, offset in enumerate(far) if (own or any(offset)) and self.distance(offset) <= radius]
        near = torch.stack([box[:, place] for place in kept], dim=-1)
        score = torch.stack(
            [self._hit(where, near[:, k]) * (radius + 1 - self.distance(far[place])) for k, place in enumerate(kept)],
            dim=-1,
        )
        best = _drawn(score, near, rng.integers("nearest", 0, 1 << _WORD))
        return torch.where(score.amax(-1) > 0, best, NO_CELL)

    # --- plumbing -----------------------------------------------------------------------------------------------------

    def _step_aside(self, place: Tensor, word: Tensor) -> Tensor:
        """The neighbour that a word draws of Moore's: what `_drawn` draws, without looking at every one.

        They are a box around the cell, which a closed grid cuts off at its sides, so their numbers in it are enough.
        """
        places, box = self.coordinates(place), []
        for at, size in zip(places, self.shape, strict=True):  # cells before it along an axis, and all of them
            before: Tensor | int = self.radius
            many: Tensor | int = 2 * self.radius + 1
            if not self.torus:
                before = at.clamp(0, self.radius)
                many = before + (size - 1 - at).clamp(0, self.radius) + 1
            box.append((at, before, many))
        cells, own = torch.ones_like(place), torch.zeros_like(place)
        for _, before, many in box:
            cells, own = cells * many, own * many + before
        number = (word * (cells - 1)) >> _WORD
        number = number + (number >= own)
        moved: list[Tensor] = []
        for at, before, many in reversed(box):
            moved.append(at + number % many - before)
            number = torch.div(number, many, rounding_mode="floor")
        alone = (place < 0) | (place >= self.num_cells) | (cells == 1)
        return torch.where(alone, place, self.cell(*reversed(moved)))

    def _hit(self, where: Tensor, cell: Tensor) -> Tensor:
        return (self.at(where, cell) != 0).to(torch.int32)

    def _lines(self, place: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """Cells along the axes in both directions, nearest first: int64 `[agents, seen]`, and how far they are.

        Besides, which are to be counted: on a torus a cell that is seen both ways is only where it is nearer, and
        halfway round only one way, or it would be drawn twice as often.
        """
        axes = len(self.shape)
        number = torch.arange(2 * axes * most, device=place.device)
        far, way = torch.div(number, 2 * axes, rounding_mode="floor") + 1, number % (2 * axes)
        step = torch.where(way % 2 == 0, -far, far)
        places = self.coordinates(place[:, None])
        moved = [
            p + torch.where(torch.div(way, 2, rounding_mode="floor") == axis, step, 0) for axis, p in enumerate(places)
        ]
        once = torch.ones_like(far, dtype=torch.bool)
        if self.torus:
            for axis, size in enumerate(self.shape):
                there = (2 * far < size) | ((2 * far == size) & (way % 2 == 0))
                once = once & (there | (torch.div(way, 2, rounding_mode="floor") != axis))
        return torch.where(place[:, None] >= 0, self.cell(*moved), NO_CELL), far, once

    def _seen(self, method: str, cell: Tensor, rng: Rng) -> Tensor:
        place = self._whole(method, cell)
        self._own_axis(method, cell, rng)
        return place

    def _own_axis(self, method: str, cell: Tensor, rng: Rng) -> None:
        if not isinstance(rng, Rng) or cell.shape != (rng._num,):
            got = f"one for {rng._num} on {rng._axis!r}" if isinstance(rng, Rng) else type(rng).__name__
            raise ModelError(
                f"Grid.{method}: cell has shape {tuple(cell.shape)} and rng is {got}, expected the rng of the agents "
                f"that move, one entry of cell for each; agents of another axis: rng.on(axis, num)"
            )

    def _draws(self, rng: Rng) -> tuple[Tensor, Tensor, Tensor]:
        """Identities, key and step, as operations take them."""
        return rng._id_row(), rng._key[None], rng._step

    def _limit(self, method: str, capacity: int | Tensor, rng: Rng) -> Tensor:
        """Capacities: int64 `[cells]`, or `[1]` where all cells have the same."""
        most = rng._num  # as good as any number above: room is counted in int32
        if not isinstance(capacity, Tensor):
            number = min(whole(f"Grid.{method}", "capacity", capacity, 1), most)
            return torch.full((1,), number, dtype=torch.int64, device=rng._key.device)
        self._a_field(method, "capacity", capacity)
        if capacity.is_floating_point():
            raise ModelError(f"Grid.{method}: capacity is {capacity.dtype}, expected whole numbers")
        return capacity.to(torch.int64).clamp(-1, most)

    def _flag(self, method: str, capacity: int | Tensor, rng: Rng, bad: Tensor) -> None:
        """What stops the run at the end of the chunk, as an operation found it."""
        rng._bad.append((f"grid: {method} was given an agent outside its {self.num_cells:,} cells; {_OUTSIDE}", bad[0]))
        limit = "its capacity" if isinstance(capacity, Tensor) else f"capacity={capacity}"
        rng._bad.append((f"grid: {method} was given a cell with more agents than {limit}; {_FULL}", bad[1]))


_BEYOND = "expected numbers of cells, or -1 to stay; grid.cell(row, column) gives them"
_OUTSIDE = "expected cells from 0 on for all that are alive; give alive= where places of agents are free"
_TOO_FAR = "grid: best_visible was given a vision beyond most={}; raise most"
_FULL = (
    "spread the agents in init, with grid.to_empty(None, None, rng), or raise the capacity; of children that are born "
    "into one cell pairing(…, cells=free) takes one"
)


def _drawn(score: Tensor, options: Tensor, word: Tensor) -> Tensor:
    """One of the options of the highest score in each row, each with the same probability: `[rows]`.

    Args:
        score: `[rows, options]`.
        options: int64 `[rows, options]`.
        word: int64 `[rows]` in 0 … 2**31 - 1.
    """
    tied = score == score.amax(-1, keepdim=True)
    rank = tied.cumsum(-1)
    chosen = (word * rank[:, -1]) >> _WORD
    hit = tied & (rank == chosen[:, None] + 1)
    return torch.where(hit, options, 0).sum(-1)
