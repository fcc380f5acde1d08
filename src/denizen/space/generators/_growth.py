"""Graphs with a given or a grown degree sequence: configuration model and preferential attachment."""

import numpy as np
from numpy.typing import ArrayLike

from denizen._arguments import whole
from denizen.errors import InputError
from denizen.space._edges import EdgeList, index_dtype
from denizen.space.generators._pairs import contains, fill_pairs, generator, num_pairs, pair_code, repeats

_PATIENCE = 100  # looks at the whole graph without progress; sparse sequences need two looks in all
_HUBS = 256  # agents that choose one after another, a pass over all agents each
_SWAPS = 20  # rounds of swaps between two looks at the whole graph


def configuration_model(degrees: ArrayLike, seed: int = 0) -> EdgeList:
    """A random simple graph in which agent i has exactly `degrees[i]` contacts.

    Hubs choose distinct partners first. The other half-edges are matched at random; self-loops and repeated contacts
    are then swapped with random edges, (a, b) and (c, d) becoming (a, d) and (c, b), wherever that makes two new, good
    contacts. Degrees are exact; the law over graphs is uniform only up to these repairs. More than half of all pairs
    are drawn as the complement of a sparse graph.

    Args:
        degrees: `[agents]` non-negative integers with an even sum.
        seed: equal seeds give equal graphs.

    Raises:
        InputError: for degrees that no simple graph has (Erdős and Gallai 1960), or so close to that bound that the
            swaps find no such graph.

    Source: Newman 2002 (cond-mat/0205009).
    """
    degrees = _checked_degrees(degrees)
    rng, num_agents = generator("configuration_model", seed), degrees.size
    if 2 * degrees.sum() > num_agents * (num_agents - 1):
        sparse = _simple(rng, num_agents - 1 - degrees)
        pairs = fill_pairs(np.arange(num_pairs(num_agents)), num_agents)
        missing = contains(np.sort(pair_code(*sparse, num_agents)), pair_code(*pairs, num_agents))
        source, target = (ends[~missing] for ends in pairs)
    else:
        source, target = _simple(rng, degrees)
    return EdgeList(num_agents, source, target, directed=False)


def _checked_degrees(degrees: ArrayLike) -> np.ndarray:
    """The degrees as int64, or an InputError where no simple graph has them."""
    array = np.asarray(degrees)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InputError(
            f"configuration_model: degrees, expected a non-empty one-dimensional integer array, got {array.dtype} "
            f"{array.shape}"
        )
    array = array.astype(np.int64)
    wrong = np.flatnonzero((array < 0) | (array >= array.size))
    if wrong.size:
        raise InputError(
            f"configuration_model: degrees[{wrong[0]}]={array[wrong[0]]}, expected 0 … {array.size - 1}, contacts "
            f"with distinct others ({wrong.size} such values)"
        )
    if array.sum() % 2:
        raise InputError(
            f"configuration_model: the sum of degrees {array.sum()} is odd, and each contact has two ends; change one "
            "degree by one"
        )
    falling = np.sort(array)[::-1]
    rank = np.arange(1, array.size + 1)
    total = np.concatenate([[0], np.cumsum(falling)])
    capped = np.maximum(array.size - np.searchsorted(falling[::-1], rank), rank)  # the first `capped` count as rank
    if (total[rank] > rank * (rank - 1) + (capped - rank) * rank + total[-1] - total[capped]).any():
        raise InputError(
            "configuration_model: no simple graph has these degrees (Erdős-Gallai); lower the largest ones"
        )
    return array


def _simple(rng: np.random.Generator, degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The contacts of hubs, then those of all others among themselves.

    Two agents of more than sqrt(sum of degrees) would be matched more than once on average, which swaps hardly mend.
    Such hubs choose first, one by one, distinct partners in proportion to the half-edges that these have left.
    """
    hubs = np.argsort(-degrees, kind="stable")[:_HUBS]
    hubs = hubs[degrees[hubs] > np.sqrt(degrees.sum())]
    left, chosen = degrees.copy(), []
    for hub in hubs:
        wanted, left[hub] = left[hub], 0
        open_ = np.flatnonzero(left)
        if wanted > open_.size:
            raise _too_tight(wanted - open_.size)
        haste = rng.standard_exponential(open_.size) / left[open_]
        chosen.append(open_[np.argpartition(haste, wanted - 1)[:wanted]] if wanted else open_[:0])
        left[chosen[-1]] -= 1
    source, target = _matched(rng, left)
    starts = np.repeat(hubs, [partners.size for partners in chosen]).astype(source.dtype)
    ends = np.concatenate([np.empty(0, source.dtype), *chosen]).astype(source.dtype)
    return np.concatenate([source, starts]), np.concatenate([target, ends])


def _too_tight(count: int) -> InputError:
    return InputError(
        f"degrees: {count} contacts found no place; hardly any simple graph has these degrees; lower the largest ones "
        f"or try another seed"
    )


def _matched(rng: np.random.Generator, degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Random matching of half-edges, repaired into a simple graph."""
    stubs = np.repeat(np.arange(degrees.size, dtype=index_dtype(degrees.size)), degrees)
    rng.shuffle(stubs)
    source, target = stubs[: stubs.size // 2].copy(), stubs[stubs.size // 2 :].copy()
    del stubs
    fewest, stalled, strict = source.size + 1, 0, True
    while stalled < _PATIENCE:
        codes = pair_code(source, target, degrees.size)
        bad = np.union1d(np.flatnonzero(source == target), repeats(codes))
        if bad.size == 0:
            return source, target
        stalled = 0 if bad.size < fewest else stalled + 1
        fewest = min(fewest, bad.size)
        taken = [np.sort(codes)]
        for _ in range(_SWAPS if strict else 1):
            bad = _swap(rng, source, target, degrees.size, bad, taken, strict)
            if bad.size == 0:
                break
        strict = not strict
    raise _too_tight(fewest)


def _swap(
    rng: np.random.Generator,
    source: np.ndarray,
    target: np.ndarray,
    num_agents: int,
    movers: np.ndarray,
    taken: list[np.ndarray],
    strict: bool,
) -> np.ndarray:
    """Swap ends, in place, between bad edges and random partners.

    Args:
        rng: draws the partners.
        source: `[edges]`, changed in place.
        target: `[edges]`, changed in place.
        num_agents: number of agents.
        movers: the bad edges, which look for a partner.
        taken: sorted arrays of pair codes that are not free, at least those of all edges; the new ones are appended.
        strict: both new contacts must be good. Otherwise one is enough: the number of bad edges does not grow, and
            the search leaves places where no strict swap exists.

    Returns:
        The edges that found no partner.
    """
    movers = rng.permutation(movers)
    partner = rng.integers(0, source.size, movers.size)
    flip = rng.random(movers.size) < 0.5
    near = np.where(flip, target[partner], source[partner])
    far = np.where(flip, source[partner], target[partner])
    first = pair_code(source[movers], far, num_agents)
    second = pair_code(near, target[movers], num_agents)
    first_good, second_good = source[movers] != far, near != target[movers]
    for codes in taken:
        first_good &= ~contains(codes, first)
        second_good &= ~contains(codes, second)
    good = first_good & second_good & (first != second) if strict else first_good | second_good
    good = np.flatnonzero(good & (movers != partner))
    good = good[_undisputed(movers[good], partner[good])]
    good = good[_undisputed(first[good], second[good])]
    left, right = movers[good], partner[good]
    source[right], target[right] = near[good], target[left]
    target[left] = far[good]
    taken.append(np.sort(np.concatenate([first[good], second[good]])))
    return np.delete(movers, good)


def _undisputed(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Whether a row is the earliest to name each of its two values: such rows can be carried out all at once."""
    _, earliest, place = np.unique(np.stack([first, second], axis=1), return_index=True, return_inverse=True)
    owner = (earliest // 2)[place].reshape(-1, 2)
    return (owner == np.arange(first.size)[:, None]).all(axis=1)


def barabasi_albert(num_agents: int, edges_per_agent: int, seed: int = 0) -> EdgeList:
    """Preferential attachment: each new agent joins `edges_per_agent` distinct others in proportion to their degree.

    It starts with a star of edges_per_agent + 1 agents. A new agent copies the end of a random earlier edge, which is
    the same as choosing by degree; the chains of copies are followed for all agents of a generation at once, and
    generations double in size. Where an agent would meet another twice the later choice is drawn again. Choices that
    were copied from it within the same generation follow the new one; they are not drawn anew, which deviates from
    one agent after another in less than a thousandth of the edges.

    Args:
        num_agents: number of agents, more than `edges_per_agent`.
        edges_per_agent: contacts that a new agent starts with; the mean degree tends to twice that.
        seed: equal seeds give equal graphs.

    Returns:
        Contacts from the newer agent (source, ascending) to the older (target).

    Raises:
        InputError: for fewer than two agents or `edges_per_agent` outside 1 … num_agents - 1.

    Source: Barabási and Albert 1999; copying: Batagelj and Brandes 2005. P(degree = k) = 2 m (m + 1) /
    (k (k + 1) (k + 2)).
    """
    num_agents = whole("barabasi_albert", "num_agents", num_agents, low=2)
    each = whole("barabasi_albert", "edges_per_agent", edges_per_agent, low=1, high=num_agents - 1)
    rng, dtype = generator("barabasi_albert", seed), index_dtype(num_agents)
    source = np.repeat(np.arange(each, num_agents, dtype=dtype), each)
    target = np.empty(source.size, dtype)
    target[:each] = np.arange(each)
    bounds = [num_agents - each]  # halved from the top, so that the last generation is half of all, whatever the size
    while bounds[-1] > 1:
        bounds.append((bounds[-1] + 1) // 2)
    for upto, grown in zip(bounds[-2::-1], bounds[:0:-1], strict=True):
        _grow(rng, target[: upto * each].reshape(upto, each), grown)
    return EdgeList(num_agents, source, target, directed=False)


def _grow(rng: np.random.Generator, target: np.ndarray, grown: int) -> None:
    """Fill rows `grown …` of `target` `[agents, each]`, in place; agent `each + row` owns a row."""
    rows, each = target.shape
    flat, start = target.ravel(), grown * each
    ends = np.repeat(np.arange(grown, rows) * (2 * each), each)  # ends of edges before each agent: two an edge
    spot = (rng.random(ends.size) * ends).astype(np.int64)
    while True:
        _follow(flat, spot, start, each)
        again = _met_twice(target[grown:])
        if again.size == 0:
            return
        spot[again] = rng.integers(0, ends[again])


def _follow(flat: np.ndarray, spot: np.ndarray, start: int, each: int) -> None:
    """Resolve `flat[start:]`, in place: spot 2 e is the source of edge e, spot 2 e + 1 its target.

    Chains of targets within the generation are halved in each round (pointer jumping).
    """
    edge = spot >> 1
    flat[start:] = np.where(spot & 1, flat[edge], each + edge // each)
    link = np.where((spot & 1) & (edge >= start), edge - start, -1)
    open_ = np.flatnonzero(link >= 0)
    while open_.size:
        at = link[open_]
        flat[start + open_] = flat[start + at]
        link[open_] = link[at]
        open_ = open_[link[open_] >= 0]


def _met_twice(target: np.ndarray) -> np.ndarray:
    """Flat positions of the choices that repeat an earlier one of the same row."""
    ordered = np.sort(target, axis=1)
    rows = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    where = np.argsort(target[rows], axis=1, kind="stable")
    ordered = np.take_along_axis(target[rows], where, axis=1)
    row, rank = np.nonzero(ordered[:, 1:] == ordered[:, :-1])
    return rows[row] * target.shape[1] + where[row, rank + 1]
