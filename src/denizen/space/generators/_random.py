"""Random graphs without structure: pairs at random, or in-neighbours at random for each agent."""

from typing import Literal

import numpy as np

from denizen._arguments import number, one_of, whole
from denizen.errors import InputError
from denizen.space._edges import EdgeList, index_dtype
from denizen.space.generators._pairs import (
    BLOCK,
    distinct_codes,
    fill_pairs,
    generator,
    num_pairs,
)


def erdos_renyi(num_agents: int, mean_degree: float, seed: int = 0, directed: bool = False) -> EdgeList:
    """G(n, p), exactly: each pair is an edge with probability p = mean_degree / (n - 1), independently.

    The number of edges is drawn from its binomial law, then that many distinct pairs.

    Args:
        num_agents: number of agents.
        mean_degree: expected contacts of an agent; with `directed`, expected in-neighbours (and out-neighbours).
        seed: equal seeds give equal graphs.
        directed: draw the two directions of a pair independently.

    Raises:
        InputError: for a mean degree outside 0 … num_agents - 1.

    Source: Gilbert 1959; giant component S = 1 - exp(-mean_degree S).
    """
    num_agents = whole("erdos_renyi", "num_agents", num_agents, low=1)
    mean_degree = number("erdos_renyi", "mean_degree", mean_degree, 0, num_agents - 1, hint=" (num_agents - 1)")
    rng = generator("erdos_renyi", seed)
    population = num_pairs(num_agents) * (2 if directed else 1)
    chance = mean_degree / max(num_agents - 1, 1)
    codes = distinct_codes(rng, population, rng.binomial(population, chance))
    if directed:
        target, source = _split_ordered(codes, num_agents)
    else:
        source, target = fill_pairs(codes, num_agents)
    return EdgeList(num_agents, source, target, directed=directed)


def random_in_neighbours(
    num_agents: int, mean_in_degree: float, seed: int = 0, law: Literal["poisson", "fixed"] = "poisson"
) -> EdgeList:
    """A directed graph in which every agent draws its in-neighbours: how many from `law`, who uniformly and distinct.

    Edges come grouped by target in ascending order.

    Args:
        num_agents: number of agents.
        mean_in_degree: expected in-neighbours of an agent; a whole number for the law "fixed".
        seed: equal seeds give equal graphs.
        law: "poisson" (cut off at num_agents - 1) or "fixed" (everyone the same number).

    Raises:
        InputError: for a mean outside 0 … num_agents - 1, a fractional fixed number, or an unknown law.
    """
    caller = "random_in_neighbours"
    num_agents = whole(caller, "num_agents", num_agents, low=1)
    mean = number(caller, "mean_in_degree", mean_in_degree, 0, num_agents - 1, hint=" (num_agents - 1)")
    one_of(caller, "law", law, ("poisson", "fixed"))
    rng = generator(caller, seed)
    if law == "poisson":
        counts = np.minimum(rng.poisson(mean, num_agents), num_agents - 1)
    else:
        if mean != int(mean):
            raise InputError(f"{caller}: mean_in_degree={mean_in_degree!r}, expected a whole number with law='fixed'")
        counts = np.full(num_agents, int(mean))
    if 4 * mean > num_agents - 1:  # rejection would take many rounds; the full table is at most 4 times the edges
        table = rng.permuted(np.broadcast_to(np.arange(num_agents - 1), (num_agents, num_agents - 1)), axis=1)
        codes = table + np.arange(num_agents)[:, None] * (num_agents - 1)
        codes = np.sort(codes[np.arange(num_agents - 1) < counts[:, None]])
    else:
        codes = _distinct_in_rows(rng, counts, num_agents - 1)
    target, source = _split_ordered(codes, num_agents)
    return EdgeList(num_agents, source, target)


def _distinct_in_rows(rng: np.random.Generator, counts: np.ndarray, width: int) -> np.ndarray:
    """Sorted codes row * width + column with `counts[row]` distinct uniform columns in each row."""
    codes = np.repeat(np.arange(counts.size) * width, counts)
    codes += rng.integers(0, max(width, 1), codes.size)
    while True:
        codes.sort()
        again = np.flatnonzero(codes[1:] == codes[:-1])
        if again.size == 0:
            return codes
        codes[again] += rng.integers(0, width, again.size) - codes[again] % width


def _split_ordered(codes: np.ndarray, num_agents: int) -> tuple[np.ndarray, np.ndarray]:
    """Agents (i, j), i != j, of the codes i * (n - 1) + rank of j among the others."""
    dtype = index_dtype(num_agents)
    first, second = np.empty(codes.size, dtype), np.empty(codes.size, dtype)
    width = max(num_agents - 1, 1)
    for start in range(0, codes.size, BLOCK):
        part = slice(start, start + BLOCK)
        row = codes[part] // width
        column = codes[part] - row * width
        column += column >= row
        first[part], second[part] = row, column
    return first, second
