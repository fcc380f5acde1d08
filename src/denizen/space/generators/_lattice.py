"""Graphs laid out in space: rings with shortcuts, and grids."""

from typing import Literal

import numpy as np

from denizen._arguments import one_of, share, whole
from denizen.errors import InputError
from denizen.space._edges import EdgeList, index_dtype
from denizen.space.generators._pairs import contains, drop_repeats, generator, pair_code, repeats

# Half of the neighbours of a cell as (row, column) steps; the other half are the same contacts seen from the other end.
# Hexagonal cells are in axial coordinates: the triangular lattice, six neighbours each.
_STEPS = {
    "von_neumann": ((0, 1), (1, 0)),
    "moore": ((0, 1), (1, -1), (1, 0), (1, 1)),
    "hexagonal": ((0, 1), (1, -1), (1, 0)),
}
_BATCHES = 16  # edges spread over the ring move together; more batches come closer to one after another
_ROUNDS = 200  # after so many refusals an edge has, in all likelihood, nowhere to go


def grid(
    rows: int,
    cols: int,
    neighbourhood: Literal["von_neumann", "moore", "hexagonal"] = "von_neumann",
    periodic: bool = False,
) -> EdgeList:
    """Agents on a grid, each in contact with the cells around it; agent id = row * cols + column.

    Args:
        rows: number of rows.
        cols: number of columns.
        neighbourhood: "von_neumann" (4 neighbours), "moore" (8) or "hexagonal" (6; axial coordinates: a step to
            the next row also reaches the column before).
        periodic: join opposite borders. A border that would meet itself (fewer than 3 cells across) gives each
            contact once and no self-loop.

    Raises:
        InputError: for an empty grid or an unknown neighbourhood.
    """
    rows, cols = whole("grid", "rows", rows, low=1), whole("grid", "cols", cols, low=1)
    one_of("grid", "neighbourhood", neighbourhood, _STEPS)
    cells = np.arange(rows * cols, dtype=index_dtype(rows * cols)).reshape(rows, cols)
    sources, targets = [], []
    for down, right in _STEPS[neighbourhood]:
        if periodic:
            here, there = cells, np.roll(cells, (-down, -right), axis=(0, 1))
        else:
            here = cells[: rows - down, max(-right, 0) : cols - max(right, 0)]
            there = cells[down:, max(right, 0) : cols - max(-right, 0)]
        sources.append(here.ravel())
        targets.append(there.ravel())
    source, target = np.concatenate(sources), np.concatenate(targets)
    if periodic and min(rows, cols) < 3:
        _, first = np.unique(pair_code(source, target, rows * cols), return_index=True)
        first = first[source[first] != target[first]]
        source, target = source[first], target[first]
    return EdgeList(rows * cols, source, target, directed=False)


def watts_strogatz(num_agents: int, neighbours: int, rewire_prob: float, seed: int = 0) -> EdgeList:
    """A ring in which everyone knows the nearest `neighbours` others, with a share of the edges rewired.

    Each edge keeps its first end and, with probability `rewire_prob`, gets another second end: uniform over agents
    that are not yet in contact with the first. Edges are moved in batches instead of one by one; places left by one
    batch are free for the next. An edge that finds no free place stays where it is (only on nearly complete graphs).

    Args:
        num_agents: number of agents.
        neighbours: contacts of each agent on the ring, even, below `num_agents`; the mean degree.
        rewire_prob: probability of each edge to be rewired.
        seed: equal seeds give equal graphs.

    Raises:
        InputError: for an odd or too large `neighbours`, or a probability outside 0 … 1.

    Source: Watts and Strogatz 1998; clustering 3 (k - 2) / (4 (k - 1)) at probability 0, times about (1 - p)^3.
    """
    num_agents = whole("watts_strogatz", "num_agents", num_agents, low=1)
    neighbours = whole("watts_strogatz", "neighbours", neighbours, low=0, high=num_agents - 1)
    if neighbours % 2:
        raise InputError(
            f"watts_strogatz: neighbours={neighbours}, expected an even number, half of them on each side of the ring"
        )
    rewire_prob = share("watts_strogatz", "rewire_prob", rewire_prob)
    rng, half, dtype = generator("watts_strogatz", seed), neighbours // 2, index_dtype(num_agents)
    source = np.repeat(np.arange(num_agents, dtype=dtype), half)
    target = source - np.tile(num_agents - np.arange(1, half + 1, dtype=dtype), num_agents)  # no sum beyond int32
    target[target < 0] += num_agents
    at_home = np.ones(source.size, bool)
    pending = np.flatnonzero(rng.random(source.size, np.float32) < rewire_prob)
    taken = np.empty(0, np.int64)
    for batch in (pending[first::_BATCHES] for first in range(_BATCHES)):
        waiting = batch
        for _ in range(_ROUNDS):
            if waiting.size == 0:
                break
            start = source[waiting]
            goal = rng.integers(0, num_agents, waiting.size, dtype=dtype)
            free = (goal != start) & ~_on_ring(start, goal, num_agents, half, at_home)
            code = pair_code(start, goal, num_agents)
            free = np.flatnonzero(free)
            first, taken = _settle(taken, code[free])
            moved = free[first]
            target[waiting[moved]] = goal[moved]
            at_home[waiting[moved]] = False
            waiting = np.delete(waiting, moved)
    return EdgeList(num_agents, source, target, directed=False)


def _settle(taken: np.ndarray, code: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the first of equal codes that are not taken, and the sorted array of all that are taken then.

    One sort finds the few values that clash; looking up every code in `taken` costs far more.
    """
    merged = np.sort(np.concatenate([taken, code]))
    clash = drop_repeats(merged[1:][merged[1:] == merged[:-1]])
    suspects = np.flatnonzero(contains(clash, code))
    refused = contains(taken, code[suspects])
    refused[repeats(code[suspects])] = True
    return np.delete(np.arange(code.size), suspects[refused]), drop_repeats(merged)


def _on_ring(start: np.ndarray, goal: np.ndarray, num_agents: int, half: int, at_home: np.ndarray) -> np.ndarray:
    """Whether start and goal are joined by an edge of the ring that is still in place.

    Edge a * half + d - 1 joins a and a + d.
    """
    ahead = (goal - start) % num_agents
    behind = num_agents - ahead
    near = (ahead >= 1) & ((ahead <= half) | (behind <= half))
    where = np.flatnonzero(near)
    ahead, behind = ahead[where].astype(np.int64), behind[where].astype(np.int64)
    edge = np.where(ahead <= half, start[where] * np.int64(half) + ahead, goal[where] * np.int64(half) + behind) - 1
    near[where] = at_home[edge]
    return near
