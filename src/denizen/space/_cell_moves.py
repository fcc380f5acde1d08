"""Agents that move between the cells of a grid, conflicts settled by draws, and the choice of where to go.

Draws belong to identities and everything else is whole numbers, so outcomes depend neither on the order in which agents
are laid out nor on the device.
"""

import dataclasses

import torch
from torch import Tensor

from denizen._arguments import whole
from denizen.errors import ModelError
from denizen.rng import Rng
from denizen.space._cells import AgentsInCells
from denizen.space._lattice import NO_CELL

_WORD = 31  # bits of a priority; as many are left for an identity, in an int64 without its sign
_LAST = torch.iinfo(torch.int64).max


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
        here, held = self._held("settle", cell, rng, capacity, alive)
        self._same("settle", "target", target, cell)
        goal = self._bins("settle", target, alive)
        beyond = (self._whole("settle", target) >= self.num_cells) & (goal == self.num_cells)
        rng._bad.append(
            (f"grid: settle was given a target beyond its {self.num_cells:,} cells; {_BEYOND}", _flag(beyond.any()))
        )
        goal = torch.where((goal < self.num_cells) & (here < self.num_cells) & (goal != here), goal, self.num_cells)
        room = self._room(capacity, held)
        priority = rng.integers("priority", 0, 1 << _WORD)
        one = isinstance(capacity, int) and capacity == 1
        for _ in range(rounds):
            won = (self._first if one else self._lowest)(goal, room, priority, rng._ids)
            left = won.to(torch.int32)
            room = room.scatter_add(0, here, left).scatter_add(0, goal, -left)
            room = torch.cat([room[: self.num_cells], torch.zeros_like(room[self.num_cells :])])
            here, goal = torch.where(won, goal, here), torch.where(won, self.num_cells, goal)
        return torch.where(here < self.num_cells, here, self._whole("settle", cell))

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
        device = rng._key.device
        anywhere = torch.full((agents,), self.num_cells, device=device)
        if cell is None:
            here, held = anywhere, torch.zeros(self.num_cells + 2, dtype=torch.int32, device=device)
            most = places
            moves = torch.ones_like(here, dtype=torch.bool) if alive is None else alive != 0
        else:
            here, held = self._held("to_empty", cell, rng, capacity, alive)
            most = places - agents if alive is None else places
            moves = here < self.num_cells
        if who is not None:
            self._same("to_empty", "who", who, anywhere)
            moves = moves & (who != 0)
        if most:
            place = self._shuffled_places(held, rng, capacity, most)
            agent = _shuffled(moves, rng)
            pairs = min(place.numel(), agent.numel())
            place, agent = place[:pairs], agent[:pairs]
            taken = (place < places) & (agent < agents)
            new = torch.cat([here, here[:1]])  # one more, for pairs that are none
            new = new.scatter(0, torch.where(taken, agent, agents), torch.div(place, capacity, rounding_mode="floor"))
            here = new[:agents]
        return torch.where(here < self.num_cells, here, 0 if cell is None else self._whole("to_empty", cell))

    # --- where to go --------------------------------------------------------------------------------------------------

    def random_neighbour(self, cell: Tensor, rng: Rng, *, where: Tensor | None = None) -> Tensor:
        """A neighbouring cell drawn at random, each with the same probability; its own where there is none.

        Args:
            cell: `[agents]`, where each is.
            rng: of the step; of the agents' axis.
            where: mask `[cells]` of those that may be drawn, such as ``occupants == 0``.

        Returns:
            int64 `[agents]`, for `settle`.
        """
        place = self._seen("random_neighbour", cell, rng)
        if where is None and self.torus and self.neighbours == "moore":
            return self._step_aside(place, rng.integers("neighbour", 0, 1 << _WORD))
        near = self.neighbour_cells(cell)
        score = (near >= 0).to(torch.int32) if where is None else self._hit(where, near)
        best = _drawn(score, near, rng.integers("neighbour", 0, 1 << _WORD))
        return torch.where(score.amax(-1) > 0, best, place)

    def best_visible(
        self, field: Tensor, cell: Tensor, rng: Rng, *, vision: Tensor | int, most: int, where: Tensor | None = None
    ) -> Tensor:
        """The cell of the largest value that an agent sees along the lines of the grid, its own cell included.

        Of equally good ones the nearest, of equally near ones one drawn at random.

        Args:
            field: `[cells]`.
            cell: `[agents]`, where each is.
            rng: of the step; of the agents' axis.
            vision: how many cells far each sees: a number, or whole numbers `[agents]`.
            most: the farthest that anybody sees.
            where: mask `[cells]` of those that may be chosen besides its own, such as ``occupants == 0``.

        Returns:
            int64 `[agents]`, for `settle`.
        """
        place = self._seen("best_visible", cell, rng)
        self._a_field("best_visible", "field", field)
        most = whole("Grid.best_visible", "most", most, 1, max(self.shape) - 1)
        seen, far = self._lines(place, most)
        allowed = (seen >= 0) & (far <= (vision if isinstance(vision, int) else vision[:, None]))
        if where is not None:
            allowed = allowed & (self.at(where, seen) != 0)
        own = torch.ones_like(place, dtype=torch.bool)[:, None]
        seen, allowed = torch.cat([place[:, None], seen], 1), torch.cat([own, allowed], 1)
        far = torch.cat([torch.zeros_like(far[:1]), far])
        value = self.at(field, seen)
        worst = -torch.inf if value.is_floating_point() else torch.iinfo(value.dtype).min
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
        """The neighbour that a word draws, where all are there: what `_drawn` draws, without looking at every one."""
        side = 2 * self.radius + 1
        number = (word * len(self.offsets)) >> _WORD
        number = number + (number >= len(self.offsets) // 2)  # over the cell itself, in the middle
        steps: list[Tensor] = []
        for _ in self.shape:
            steps.append(number % side - self.radius)
            number = torch.div(number, side, rounding_mode="floor")
        moved = self.cell(*[at + by for at, by in zip(self.coordinates(place), reversed(steps), strict=True)])
        return torch.where(place >= 0, moved, place)

    def _hit(self, where: Tensor, cell: Tensor) -> Tensor:
        return (self.at(where, cell) != 0).to(torch.int32)

    def _lines(self, place: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Cells along the axes in both directions, nearest first: int64 `[agents, seen]`, and how far they are."""
        axes = len(self.shape)
        number = torch.arange(2 * axes * most, device=place.device)
        far, way = torch.div(number, 2 * axes, rounding_mode="floor") + 1, number % (2 * axes)
        step = torch.where(way % 2 == 0, -far, far)
        places = self.coordinates(place[:, None])
        moved = [
            p + torch.where(torch.div(way, 2, rounding_mode="floor") == axis, step, 0) for axis, p in enumerate(places)
        ]
        return torch.where(place[:, None] >= 0, self.cell(*moved), NO_CELL), far

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

    def _held(
        self, method: str, cell: Tensor, rng: Rng, capacity: int | Tensor, alive: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The bin of each agent, and agents by bin, int32 `[cells + 2]`; flags what cannot be."""
        here = self._bins(method, cell, alive)
        self._own_axis(method, cell, rng)
        if isinstance(capacity, Tensor):
            self._a_field(method, "capacity", capacity)
            if capacity.is_floating_point():
                raise ModelError(f"Grid.{method}: capacity is {capacity.dtype}, expected whole numbers")
        else:
            capacity = whole(f"Grid.{method}", "capacity", capacity, 1)
        held = self._added(here, torch.ones_like(here, dtype=torch.int32))
        outside, full = held[self.num_cells] > 0, (held[: self.num_cells] > capacity).any()
        rng._bad.append(
            (f"grid: {method} was given an agent outside its {self.num_cells:,} cells; {_OUTSIDE}", _flag(outside))
        )
        limit = "its capacity" if isinstance(capacity, Tensor) else f"capacity={capacity}"
        rng._bad.append((f"grid: {method} was given a cell with more agents than {limit}; {_FULL}", _flag(full)))
        return here, held

    def _room(self, capacity: int | Tensor, held: Tensor) -> Tensor:
        """Free places by bin: int32 `[cells + 2]`, none outside."""
        room = (capacity - held[: self.num_cells]).clamp(min=0).to(torch.int32)
        return torch.cat([room, torch.zeros_like(held[self.num_cells :])])

    def _first(self, goal: Tensor, room: Tensor, priority: Tensor, ids: Tensor | None) -> Tensor:
        """Who gets the one place of each cell: the lowest priority, of equal ones the lowest id. Bool `[agents]`."""
        tries = room.gather(0, goal) > 0
        number = torch.arange(goal.numel(), device=goal.device) if ids is None else 0
        key = torch.where(tries, (priority << _WORD) | number, _LAST)
        best = torch.full(room.shape, _LAST, device=goal.device).scatter_reduce(0, goal, key, "amin")
        won = tries & (best.gather(0, goal) == key)
        if ids is None:
            return won
        key = torch.where(won, ids, _LAST)
        best = torch.full(room.shape, _LAST, device=goal.device).scatter_reduce(0, goal, key, "amin")
        return won & (best.gather(0, goal) == key)

    def _lowest(self, goal: Tensor, room: Tensor, priority: Tensor, ids: Tensor | None) -> Tensor:
        """Who gets the places of each cell: as many of the lowest priorities as there are places. Bool `[agents]`."""
        by_id = None if ids is None else torch.argsort(ids, stable=True)
        code = (goal << _WORD) | priority
        code, order = torch.sort(code if by_id is None else code[by_id], stable=True)
        order = order if by_id is None else by_id[order]
        wanted = code >> _WORD
        rank = torch.arange(goal.numel(), device=goal.device) - torch.searchsorted(code, wanted << _WORD)
        return torch.zeros_like(goal, dtype=torch.bool).scatter(0, order, rank < room.gather(0, wanted))

    def _shuffled_places(self, held: Tensor, rng: Rng, capacity: int, most: int) -> Tensor:
        """Free places in random order, int64 `[most]`, those that are none last and beyond the number of places."""
        places = self.num_cells * capacity
        number = torch.arange(places, device=held.device)
        free = held.gather(0, torch.div(number, capacity, rounding_mode="floor")) <= number % capacity
        rank = free.cumsum(0) - 1
        listed = torch.full((most + 1,), places, device=held.device)
        listed = listed.scatter(0, torch.where(free & (rank < most), rank, most), number)[:most]
        return _by_priority(listed < places, listed, rng.on("cells", most, ids=listed).integers("place", 0, 1 << _WORD))


_BEYOND = "expected numbers of cells, or -1 to stay; grid.cell(row, column) gives them"
_OUTSIDE = "expected cells from 0 on for all that are alive; give alive= where places of agents are free"
_FULL = "spread the agents in init, with grid.to_empty(None, None, rng), or raise the capacity"


def _flag(wrong: Tensor) -> Tensor:
    return wrong.to(torch.int8)


def _shuffled(moves: Tensor, rng: Rng) -> Tensor:
    """Agents that move in random order, int64 `[agents]`, then numbers that are none."""
    turn, number = rng.integers("turn", 0, 1 << _WORD), torch.arange(moves.numel(), device=moves.device)
    if rng._ids is None:
        return _by_priority(moves, number, turn)
    by_id = torch.argsort(rng._ids, stable=True)
    rank = _by_priority(moves[by_id], number, turn[by_id])
    return torch.where(rank < moves.numel(), by_id[rank.clamp(max=moves.numel() - 1)], rank)


def _by_priority(taken: Tensor, number: Tensor, priority: Tensor) -> Tensor:
    """Numbers below 2**31 by priority, of equal ones the lowest first; those not taken last, as 2**31 - 1."""
    key = torch.where(taken, (priority << _WORD) | number, _LAST)
    return torch.sort(key)[0] & ((1 << _WORD) - 1)


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
