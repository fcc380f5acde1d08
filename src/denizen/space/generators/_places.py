"""Layers of contacts as people have them: at home, at work, at school and in the community."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from denizen._arguments import number, whole
from denizen.errors import InputError
from denizen.space._edges import EdgeList, index_dtype
from denizen.space.generators._pairs import num_pairs, ragged_arange, split_pairs
from denizen.space.generators._random import erdos_renyi

HOUSEHOLD_SIZES: Mapping[int, float] = MappingProxyType({1: 0.28, 2: 0.35, 3: 0.15, 4: 0.13, 5: 0.06, 6: 0.03})
WORKPLACE_SIZES: Mapping[int, float] = MappingProxyType(
    {2: 0.35, 5: 0.3, 10: 0.17, 20: 0.1, 50: 0.05, 100: 0.02, 500: 0.01}
)
CLASS_SIZES: Mapping[int, float] = MappingProxyType({20: 0.25, 25: 0.5, 30: 0.25})
_CALLER = "households_and_workplaces"


def households_and_workplaces(
    num_agents: int,
    *,
    household_sizes: Mapping[int, float] = HOUSEHOLD_SIZES,
    workplace_sizes: Mapping[int, float] = WORKPLACE_SIZES,
    class_sizes: Mapping[int, float] = CLASS_SIZES,
    workers: float | np.ndarray = 0.5,
    pupils: float | np.ndarray = 0.18,
    community_degree: float = 4.0,
    max_contacts: int = 20,
    seed: int = 0,
) -> dict[str, EdgeList]:
    """Four layers of contacts: cliques at home, at work and at school, random contacts in the community.

    Households are runs of neighbouring ids; workers and pupils are spread over workplaces and classes at random. A
    group of more than max_contacts + 1 members is a random graph with that mean degree instead of a clique, so that
    memory stays linear in the agents. The last group takes who is left and may be smaller. Each layer has its own
    random stream: changing one leaves the others as they are. A pair may meet in several layers.

    The default size tables are round numbers in the shape of those of large cities; give your own for a place.

    Args:
        num_agents: number of agents.
        household_sizes: share of households by size.
        workplace_sizes: share of workplaces by number of workers.
        class_sizes: share of school classes by number of pupils.
        workers: share of agents who work (drawn at random), or a boolean mask `[agents]`.
        pupils: share of agents who go to school, drawn among those who do not work, or a boolean mask `[agents]`.
        community_degree: mean number of random contacts of an agent.
        max_contacts: mean contacts of an agent in a group too large to be a clique.
        seed: equal seeds give equal layers.

    Returns:
        Undirected edge lists under "household", "work", "school" and "community".

    Raises:
        InputError: for an empty or negative size table, shares outside 0 … 1 or adding up to more than 1, or masks of
            another length.
    """
    num_agents = whole(_CALLER, "num_agents", num_agents, low=1)
    max_contacts = whole(_CALLER, "max_contacts", max_contacts, low=1)
    number(_CALLER, "community_degree", community_degree, 0, num_agents - 1, hint=" (num_agents - 1)")
    seed = whole(_CALLER, "seed", seed, low=0)
    roles, home, work, school, community = np.random.SeedSequence(seed).spawn(5)
    working, learning = _roles(np.random.default_rng(roles), num_agents, workers, pupils)

    def layer(name: str, members: np.ndarray, sizes: Mapping[int, float], rng: np.random.Generator) -> EdgeList:
        source, target = _meet(rng, _group_sizes(name, rng, members.size, sizes), max_contacts)
        return EdgeList(num_agents, members[source], members[target], directed=False)

    at_home = np.arange(num_agents, dtype=index_dtype(num_agents))
    work_rng, school_rng = np.random.default_rng(work), np.random.default_rng(school)
    return {
        "household": layer("household_sizes", at_home, household_sizes, np.random.default_rng(home)),
        "work": layer("workplace_sizes", work_rng.permutation(working), workplace_sizes, work_rng),
        "school": layer("class_sizes", school_rng.permutation(learning), class_sizes, school_rng),
        "community": erdos_renyi(num_agents, community_degree, seed=int(community.generate_state(1, np.uint64)[0])),
    }


def _roles(
    rng: np.random.Generator, num_agents: int, workers: float | np.ndarray, pupils: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ids of those who work and of those who go to school."""
    order = rng.permutation(num_agents).astype(index_dtype(num_agents))
    ids = []
    for name, role in (("workers", workers), ("pupils", pupils)):
        if isinstance(role, np.ndarray):
            if role.dtype != bool or role.shape != (num_agents,):
                raise InputError(
                    f"{_CALLER}: {name}, expected a share or a bool array ({num_agents},), got {role.dtype} "
                    f"{role.shape}"
                )
            ids.append(np.flatnonzero(role).astype(order.dtype))
        else:
            size = round(number(_CALLER, name, role, 0, 1, hint=" (a share) or a boolean array [agents]") * num_agents)
            free = order if not ids else order[~np.isin(order, ids[0])]
            if size > free.size:
                raise InputError(
                    f"{_CALLER}: {name}={role!r}, expected at most {free.size / num_agents:g}, the share who "
                    "do not work"
                )
            ids.append(free[:size])
    return ids[0], ids[1]


def _group_sizes(name: str, rng: np.random.Generator, members: int, sizes: Mapping[int, float]) -> np.ndarray:
    """Sizes of random groups that hold all members; the last one is cut to fit."""
    if not sizes:
        raise InputError(
            f"{_CALLER}: {name}={dict(sizes)!r}, expected a mapping from size to share, for example {{2: 0.5, 3: 0.5}}"
        )
    choices = np.array([whole(_CALLER, f"a size in {name}", size, low=1) for size in sizes])
    shares = np.array([number(_CALLER, f"{name}[{size}]", share, 0, 1e9) for size, share in sizes.items()])
    if shares.sum() <= 0:
        raise InputError(f"{_CALLER}: {name}={dict(sizes)!r}, expected at least one positive share")
    shares /= shares.sum()
    drawn, total = [np.empty(0, np.int64)], 0
    while total < members:
        more = rng.choice(choices, int((members - total) / (choices @ shares) * 1.01) + 10, p=shares)
        drawn.append(more)
        total += int(more.sum())
    ends = np.cumsum(np.concatenate(drawn))
    ends = np.minimum(ends[: np.searchsorted(ends, members) + 1], members) if members else ends
    return np.diff(ends, prepend=0)


def _meet(rng: np.random.Generator, sizes: np.ndarray, max_contacts: int) -> tuple[np.ndarray, np.ndarray]:
    """Contacts, as positions in the concatenated groups: cliques, or G(size, p) with mean degree `max_contacts`.

    Groups of up to twice the bound write out all their pairs and keep each with probability p; larger ones draw a
    binomial number of distinct pairs. Both are G(size, p).
    """
    first_member = np.cumsum(sizes) - sizes
    small = np.flatnonzero(sizes <= 2 * max_contacts + 1)
    counts = np.repeat(sizes[small], sizes[small]) - 1 - ragged_arange(sizes[small])  # later members of the group
    member = np.repeat(first_member[small], sizes[small]) + ragged_arange(sizes[small])
    dtype = index_dtype(int(sizes.sum()))
    source = np.repeat(member.astype(dtype), counts)
    target = source + (ragged_arange(counts) + 1).astype(dtype)
    chance = max_contacts / np.maximum(sizes[small] - 1, max_contacts)
    if (chance < 1).any():
        kept = rng.random(source.size) < np.repeat(np.repeat(chance, sizes[small]), counts)
        source, target = source[kept], target[kept]
    large = np.flatnonzero(sizes > 2 * max_contacts + 1)
    group, code = _sampled(rng, sizes[large], max_contacts)
    near, far = split_pairs(code, sizes[large][group])
    offset = first_member[large][group]
    return np.concatenate([source, (offset + near).astype(dtype)]), np.concatenate(
        [target, (offset + far).astype(dtype)]
    )


def _sampled(rng: np.random.Generator, sizes: np.ndarray, max_contacts: int) -> tuple[np.ndarray, np.ndarray]:
    """The group and the pair code of each contact in groups larger than twice the bound."""
    pairs = num_pairs(sizes)
    group = np.repeat(np.arange(sizes.size), rng.binomial(pairs, max_contacts / (sizes - 1)))
    start = np.cumsum(pairs) - pairs
    code = start[group] + rng.integers(0, pairs[group])
    while True:
        code.sort()  # codes of a group stay between its start and the next: the groups stay where they are
        again = np.flatnonzero(code[1:] == code[:-1])
        if again.size == 0:
            return group, code - start[group]
        code[again] = start[group[again]] + rng.integers(0, pairs[group[again]])
