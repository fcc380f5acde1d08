"""A stand-in for Astoria: the same size, marginals and degree distribution, made from published totals only.

Columns hold exactly the counts of the original, in random order and independent of each other (their joint law is
not recorded). Networks are contact graphs: a configuration model over the agents that take part, each contact
directed from the agent that a breadth-first search finds first to the other one, which is how the original's
one-way contact lists look. Everything is numpy; there is no loop over agents or edges.
"""

from collections.abc import Sequence

import numpy as np

from denizen._arguments import one_of, whole
from denizen.population._columns import STAGES
from denizen.population._population import Population
from denizen.space.generators._pairs import contains, pair_code

_ASTORIA = 37_518
_COUNTS = {
    "age": (6723, 11573, 5724, 4647, 3910, 4941),
    "gender": (18467, 19051),
    "ethnicity": (27240, 2404, 920, 5503, 1433, 18),
    STAGES: (37473, 45),
    "area": (37518,),
    "county": (37518,),
    "region": (37518,),
}
_LABELS = {
    "age": ["20-29", "30-39", "40-49", "50-64", "65+", "under 19"],
    "gender": ["male", "female"],
    "ethnicity": ["white", "other", "black", "hispanic", "asian", "native"],
}
_PARTICIPANTS = 31_038
_EDGES = {"0": 136_378, "1": 272_654}
_SHAPE = 1.333
"""Shape of the negative binomial of degrees: `1 + NegBin(1.333, p)` has mean 8.79 and sd 7.3 at p = 0.1461."""
_SMALLEST = 200


def synthetic(
    name: str = "astoria", size: int | None = None, seed: int = 0, networks: Sequence[str] | None = None
) -> Population:
    """Make a stand-in population.

    Args:
        name: which one; only `"astoria"` exists.
        size: number of agents, at least 200; default that of the original (37,518). Other sizes scale every count.
        seed: the same seed gives the same population with the same numpy.
        networks: which of `"0"` (3.6 contacts an agent) and `"1"` (twice as many) to make; default both.

    Raises:
        InputError: an unknown name or network, or a size below 200.

    Examples:
        >>> population = synthetic("astoria", size=1000)
        >>> population.size, len(population.networks["0"][0])
        (1000, 3635)
    """
    one_of("synthetic", "name", name, ["astoria"])
    size = _ASTORIA if size is None else size
    size = whole("synthetic", "size", size, low=_SMALLEST, high=2**31 - 1)
    seed = whole("synthetic", "seed", seed, low=0)
    wanted = list(_EDGES) if networks is None else list(networks)
    for network in wanted:
        one_of("synthetic", "networks", network, _EDGES)
    columns = {
        column: _shuffled(_scaled(counts, size), np.random.default_rng([seed, place]))
        for place, (column, counts) in enumerate(_COUNTS.items())
    }
    columns[STAGES] = columns[STAGES].astype(np.int8)
    scale = size / _ASTORIA
    # both networks leave the same agents isolated, as the original's do
    ids = _permutation(np.random.default_rng([seed, 99]), size)[: round(_PARTICIPANTS * scale)]
    edges = {network: _contacts(ids, round(_EDGES[network] * scale), [seed, 100, int(network)]) for network in wanted}
    return Population(
        name=name,
        size=size,
        columns=columns,
        labels={column: list(labels) for column, labels in _LABELS.items()},
        networks=edges,
        report=(
            f"Synthetic stand-in for Astoria of {size:,} agents, seed {seed}: "
            "columns have the original's counts and are independent.",
            "Contacts are written once, so infection runs one way along each; "
            "symmetrize=True adds the other direction.",
        ),
        source=f"synthetic:{name}",
    )


def _scaled(counts: tuple[int, ...], size: int) -> np.ndarray:
    """Counts in the same proportions with the sum `size`: largest remainders are rounded up."""
    exact = np.array(counts) * (size / sum(counts))
    whole = np.floor(exact).astype(np.int64)
    order = np.argsort(whole - exact, kind="stable")
    whole[order[: size - int(whole.sum())]] += 1
    return whole


def _shuffled(counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    values = np.repeat(np.arange(len(counts), dtype=np.uint8), counts)
    rng.shuffle(values)
    return values


def _contacts(ids: np.ndarray, edges: int, seed: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """A one-way contact list over the agents `ids`: (source, target), int32 [edges] each, no loops, no repeats."""
    rng = np.random.default_rng(seed)
    participants = len(ids)
    degrees = _degrees(rng, participants, 2 * edges)
    owner = np.repeat(np.arange(participants, dtype=np.int32), degrees)
    other = _pairing(rng, owner, participants)
    rank = _discovery(degrees, other)
    earlier = rank[owner] < rank[other]
    return ids[owner[earlier]], ids[other[earlier]]


def _degrees(rng: np.random.Generator, participants: int, total: int) -> np.ndarray:
    """Degrees `1 + NegBin`, single agents changed by one until they sum to `total`. int64 [participants]"""
    mean = total / participants - 1
    degrees = 1 + rng.negative_binomial(_SHAPE, _SHAPE / (_SHAPE + mean), participants)
    np.minimum(degrees, participants // 4, out=degrees)  # bites only in populations of a few hundred
    while (missing := total - int(degrees.sum())) != 0:
        free = np.flatnonzero(degrees < participants // 4 if missing > 0 else degrees > 1)
        chosen = rng.choice(free, min(abs(missing), len(free)), replace=False)
        degrees[chosen] += 1 if missing > 0 else -1
    return degrees


def _permutation(rng: np.random.Generator, count: int) -> np.ndarray:
    """A random order of 0..count-1, int32 `[count]`: random bits above the number, sorted (faster than a shuffle)."""
    bits = np.uint64(count.bit_length())
    keys = rng.bit_generator.random_raw(count)
    keys <<= bits
    keys |= np.arange(count, dtype=np.uint64)
    keys.sort()
    keys &= (np.uint64(1) << bits) - np.uint64(1)
    return keys.astype(np.int32)


def _pairing(rng: np.random.Generator, owner: np.ndarray, participants: int) -> np.ndarray:
    """Pair the stubs at random so that no pair is a self-loop or repeats another.

    Bad pairs swap an end with a random pair until none is left; a swap is taken only if it makes two new, good pairs.

    Args:
        rng: the source of randomness.
        owner: the participant of each stub, int32 `[stubs]`, ascending.
        participants: their number.

    Returns:
        The participant at the other end of each stub, int32 `[stubs]`: as stubs are grouped by owner, these are the
        neighbour lists in CSR order.
    """
    order = _permutation(rng, len(owner))
    first, second = order[0::2], order[1::2]
    one, two = owner[first], owner[second]
    keys = pair_code(one, two, participants)
    known = np.sort(keys)
    bad = _bad_pairs(keys, known, one == two)
    del keys
    extra = np.zeros(0, dtype=np.int64)
    while len(bad):
        mate = rng.integers(0, len(first), len(bad))
        usable = ~np.isin(mate, bad)
        _, once = np.unique(mate, return_index=True)
        usable &= np.isin(np.arange(len(mate)), once)
        a, b, c, d = one[bad], two[bad], one[mate], two[mate]
        crossed, other = pair_code(a, d, participants), pair_code(c, b, participants)
        usable &= (a != d) & (c != b)
        usable &= _is_new(crossed, known, extra) & _is_new(other, known, extra) & _unrepeated(crossed, other)
        left, right = bad[usable], mate[usable]
        for ends in (second, two):
            ends[left], ends[right] = ends[right], ends[left]
        extra = np.concatenate([extra, crossed[usable], other[usable]])
        bad = bad[~usable]
    neighbour = np.empty_like(owner)
    neighbour[first], neighbour[second] = two, one
    return neighbour


def _bad_pairs(keys: np.ndarray, known: np.ndarray, loops: np.ndarray) -> np.ndarray:
    """Places of self-loops and of all but one of equal pairs."""
    repeated = np.unique(known[1:][known[1:] == known[:-1]])
    marks = np.zeros(1 << 16, dtype=np.bool_)  # a coarse sieve first: searching every key costs more than the sort
    marks[repeated & 0xFFFF] = True
    candidates = np.flatnonzero(marks[keys & 0xFFFF])
    candidates = candidates[np.isin(keys[candidates], repeated)]
    _, keep = np.unique(keys[candidates], return_index=True)
    return np.union1d(np.flatnonzero(loops), np.delete(candidates, keep))


def _is_new(keys: np.ndarray, known: np.ndarray, extra: np.ndarray) -> np.ndarray:
    return ~contains(known, keys) & ~np.isin(keys, extra)


def _unrepeated(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Which proposals share no pair with another proposal of the same round."""
    _, inverse, counts = np.unique(np.concatenate([one, two]), return_inverse=True, return_counts=True)
    alone = counts[inverse] == 1
    return alone[: len(one)] & alone[len(one) :]


def _discovery(degrees: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Breadth-first ranks, from the participant of highest degree; other components follow. int32 [participants]"""
    starts = np.concatenate([[0], np.cumsum(degrees)])
    rank = np.full(len(degrees), -1, dtype=np.int32)
    found = _search(np.array([np.argmax(degrees)]), starts, other, rank, 0)
    rest = np.flatnonzero(rank < 0)
    if len(rest):
        _search(_roots(rest, starts, other), starts, other, rank, found)
    return rank


def _search(roots: np.ndarray, starts: np.ndarray, other: np.ndarray, rank: np.ndarray, found: int) -> int:
    """Rank everything reachable from the roots, one frontier at a time; returns the next free rank."""
    place = np.empty(len(rank), dtype=np.int64)
    frontier = roots
    while len(frontier):
        rank[frontier] = np.arange(found, found + len(frontier))
        found += len(frontier)
        reached = other[_ranges(starts[frontier], starts[frontier + 1])]
        reached = reached[rank[reached] < 0]
        seen = np.arange(len(reached))
        place[reached[::-1]] = seen[::-1]  # the last write wins: the first occurrence in frontier order
        frontier = reached[place[reached] == seen]
    return found


def _ranges(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The integers of all half-open ranges, one range after the other."""
    lengths = end - begin
    offsets = np.repeat(begin - (np.cumsum(lengths) - lengths), lengths)
    return offsets + np.arange(len(offsets))


def _roots(rest: np.ndarray, starts: np.ndarray, other: np.ndarray) -> np.ndarray:
    """One participant of each remaining component: labels spread along contacts until they stand still."""
    label = np.arange(len(starts) - 1)
    stubs = _ranges(starts[rest], starts[rest + 1])
    owner, neighbour = np.repeat(rest, starts[rest + 1] - starts[rest]), other[stubs]
    while True:
        before = label[rest].copy()
        np.minimum.at(label, owner, label[neighbour])
        if (label[rest] == before).all():
            return rest[label[rest] == rest]
