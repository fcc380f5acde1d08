"""Pairs of agents as single integers, and ways to draw many distinct ones at once.

A code numbers the unordered pairs i < j of n agents by 0 … n (n - 1) / 2 - 1. To avoid square roots, row i of the
triangle (n - 1 - i pairs) is laid beside a partner row so that all rows of the folded table have one width.
"""

from typing import TypeVar

import numpy as np

from denizen._arguments import whole
from denizen.space._edges import index_dtype

BLOCK = 1 << 12  # edges handled at once where temporaries would pile up; they stay in the cache


Count = TypeVar("Count", int, np.ndarray)


def generator(caller: str, seed: int) -> np.random.Generator:
    """A numpy generator for the seed that `caller` was given."""
    return np.random.default_rng(whole(caller, "seed", seed, low=0))


def num_pairs(size: Count) -> Count:
    """Unordered pairs among `size` agents."""
    return size * (size - 1) // 2


def split_pairs(code: np.ndarray, size: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs i < j numbered by `code`.

    Args:
        code: int64, each in 0 … num_pairs(size) - 1.
        size: number of agents that the code counts over, one for all or one for each code.
    """
    odd = size % 2
    width = size - 1 + odd
    row = code // width
    column = code - row * width
    folded = column >= size - 1 - row
    first = np.where(folded, size - 1 - odd - row, row)
    second = first + 1 + column - np.where(folded, size - 1 - row, 0)
    return first, second


def pair_code(first: np.ndarray, second: np.ndarray, num_agents: int) -> np.ndarray:
    """One int64 for the unordered pair, the same for (i, j) and (j, i); not the code of `split_pairs`."""
    code = np.minimum(first, second).astype(np.int64)
    code *= num_agents
    code += np.maximum(first, second)
    return code


def distinct_codes(rng: np.random.Generator, population: int, size: int) -> np.ndarray:
    """A uniformly random subset of `size` integers below `population`, sorted, int64.

    Only what is missing is drawn again, so the result is uniform over all subsets: permuting the integers permutes
    the procedure. Dense subsets are drawn by numpy without rejection.
    """
    if 4 * size > population:
        return np.sort(rng.choice(population, size, replace=False, shuffle=False))
    codes = np.sort(rng.integers(0, population, size))
    while True:
        codes = drop_repeats(codes)
        if codes.size == size:
            return codes
        codes = np.concatenate([codes, rng.integers(0, population, size - codes.size)])
        codes.sort()


def drop_repeats(ordered: np.ndarray) -> np.ndarray:
    """A sorted array without repeated values."""
    keep = np.ones(ordered.size, bool)
    np.not_equal(ordered[1:], ordered[:-1], out=keep[1:])
    return ordered if keep.all() else ordered[keep]


def fill_pairs(codes: np.ndarray, num_agents: int) -> tuple[np.ndarray, np.ndarray]:
    """`split_pairs` over one group of agents, block by block into the narrow arrays of an edge list."""
    dtype = index_dtype(num_agents)
    source, target = np.empty(codes.size, dtype), np.empty(codes.size, dtype)
    for start in range(0, codes.size, BLOCK):
        part = slice(start, start + BLOCK)
        source[part], target[part] = split_pairs(codes[part], num_agents)
    return source, target


def ragged_arange(counts: np.ndarray) -> np.ndarray:
    """`[0 … counts[0] - 1, 0 … counts[1] - 1, …]` as one int64 array."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if ends.size else 0) - np.repeat(ends - counts, counts)


def contains(ordered: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Whether each value occurs in the sorted array."""
    if ordered.size == 0:
        return np.zeros(values.size, bool)
    found = np.empty(values.size, bool)
    for start in range(0, values.size, BLOCK):
        part = values[start : start + BLOCK]
        at = np.minimum(np.searchsorted(ordered, part), ordered.size - 1)
        found[start : start + BLOCK] = ordered[at] == part
    return found


def repeats(codes: np.ndarray) -> np.ndarray:
    """Positions of all but the first occurrence of each value, ascending.

    Sorts values only (numpy's vectorised sort) and, where few are repeated, looks those up: seven times faster than a
    stable argsort.
    """
    ordered = np.sort(codes)
    twice = drop_repeats(ordered[1:][ordered[1:] == ordered[:-1]])
    del ordered
    if 64 * twice.size > codes.size:
        order = np.argsort(codes, kind="stable")
        return np.sort(order[1:][codes[order[1:]] == codes[order[:-1]]])
    where = np.flatnonzero(contains(twice, codes))
    _, first = np.unique(codes[where], return_index=True)
    return np.delete(where, first)
