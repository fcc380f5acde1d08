"""Generators: simple graphs, the right laws, the same seed the same graph, memory linear in the edges."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse, stats

from denizen.errors import InputError
from denizen.space import EdgeList
from denizen.space import generators as gen

ENOUGH = 1e-4  # p-values below this fail: seeds are fixed, so a failure is a wrong law and not bad luck


def degrees(edges: EdgeList) -> np.ndarray:
    """Contacts of each agent, both ends counted."""
    return np.bincount(edges.source, minlength=edges.num_agents) + np.bincount(edges.target, minlength=edges.num_agents)


def assert_simple(edges: EdgeList) -> None:
    """No self-loop, no contact twice, ids in range."""
    source, target, n = edges.source.astype(np.int64), edges.target.astype(np.int64), edges.num_agents
    assert (source != target).all()
    assert ((source >= 0) & (source < n) & (target >= 0) & (target < n)).all()
    code = source * n + target if edges.directed else np.minimum(source, target) * n + np.maximum(source, target)
    assert np.unique(code).size == code.size


def adjacency(edges: EdgeList) -> sparse.csr_array:
    """Symmetric matrix of contacts."""
    ones = np.ones(edges.num_edges, np.int32)
    matrix = sparse.coo_array((ones, (edges.source, edges.target)), shape=(edges.num_agents,) * 2).tocsr()
    return matrix + matrix.T


def clustering(edges: EdgeList) -> float:
    """Mean over agents of the share of pairs of neighbours that know each other."""
    matrix = adjacency(edges)
    triangles = (matrix @ matrix).multiply(matrix).sum(axis=1)
    pairs = degrees(edges) * (degrees(edges) - 1)
    return float((triangles[pairs > 0] / pairs[pairs > 0]).mean())


def fits(counts: np.ndarray, chances: np.ndarray) -> bool:
    """Chi-square test of counts against chances, cells of fewer than five expected gathered in the last one."""
    expected = chances * counts.sum()
    few = expected < 5
    observed = np.append(counts[~few], counts[few].sum())
    expected = np.append(expected[~few], counts.sum() - expected[~few].sum())
    return stats.chisquare(observed[expected > 0], expected[expected > 0]).pvalue > ENOUGH


def degrees_with_tail(num_agents: int) -> np.ndarray:
    """An even sequence with a power-law tail of exponent 2.5 up to sqrt(n)."""
    spread = 3 * (1 - np.random.default_rng(5).random(num_agents)) ** (-1 / 1.5)
    result = np.minimum(spread, num_agents**0.5).astype(np.int64)
    result[0] += result.sum() % 2
    return result


def some_degrees(num_agents: int) -> np.ndarray:
    """An even Poisson sequence of mean 10."""
    result = np.random.default_rng(5).poisson(10, num_agents)
    result[0] += result.sum() % 2
    return result


# Each makes about the given number of edges.
MAKERS: dict[str, Callable[[int, int], EdgeList]] = {
    "erdos_renyi": lambda edges, seed: gen.erdos_renyi(edges // 5, 10, seed),
    "erdos_renyi_directed": lambda edges, seed: gen.erdos_renyi(edges // 10, 10, seed, directed=True),
    "in_neighbours": lambda edges, seed: gen.random_in_neighbours(edges // 10, 10, seed),
    "configuration_model": lambda edges, seed: gen.configuration_model(some_degrees(edges // 5), seed),
    "configuration_model_tail": lambda edges, seed: gen.configuration_model(degrees_with_tail(edges // 4), seed),
    "watts_strogatz": lambda edges, seed: gen.watts_strogatz(edges // 5, 10, 0.3, seed),
    "barabasi_albert": lambda edges, seed: gen.barabasi_albert(edges // 5, 5, seed),
    "households_and_workplaces": lambda edges, seed: merged(gen.households_and_workplaces(edges // 9, seed=seed)),
}


def merged(layers: dict[str, EdgeList]) -> EdgeList:
    """All layers, shifted so that contacts of several layers stay apart; for counting only."""
    n = layers["household"].num_agents
    shift = [k * n for k in range(len(layers))]
    ends = [
        np.concatenate([getattr(edges, side) + k for k, edges in zip(shift, layers.values(), strict=True)]).astype("i4")
        for side in ("source", "target")
    ]
    return EdgeList(n * len(layers), *ends, directed=False)


@pytest.mark.parametrize("name", MAKERS)
def test_graphs_are_simple_and_follow_their_seed(name: str) -> None:
    one, same, other = (MAKERS[name](20_000, seed) for seed in (3, 3, 4))
    assert_simple(one)
    assert one.source.dtype == one.target.dtype == np.int32
    assert np.array_equal(one.source, same.source)
    assert np.array_equal(one.target, same.target)
    assert one.num_edges != other.num_edges or not np.array_equal(one.target, other.target)


def peak_bytes_per_edge(make: Callable[[int, int], EdgeList], edges: int) -> float:
    tracemalloc.start()
    try:
        made = make(edges, 1)
        return tracemalloc.get_traced_memory()[1] / made.num_edges
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("sizes", [(10**5, 10**6), pytest.param((10**5, 3 * 10**6), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("name", [name for name in MAKERS if name != "households_and_workplaces"])
def test_memory_is_linear_in_the_edges(name: str, sizes: tuple[int, int]) -> None:
    small, large = (peak_bytes_per_edge(MAKERS[name], size) for size in sizes)
    assert abs(small / large - 1) < 0.1
    assert large < 64


@pytest.mark.parametrize("num_agents", [10**5, pytest.param(3 * 10**5, marks=pytest.mark.slow)])
def test_layers_need_memory_linear_in_their_edges(num_agents: int) -> None:
    def peak(agents: int) -> float:
        tracemalloc.start()
        layers = gen.households_and_workplaces(agents, seed=1)
        result = tracemalloc.get_traced_memory()[1] / sum(edges.num_edges for edges in layers.values())
        tracemalloc.stop()
        return result

    assert abs(peak(num_agents // 10) / peak(num_agents) - 1) < 0.1


# --- random graphs ------------------------------------------------------------------------------------------------


def test_erdos_renyi_is_uniform_over_graphs() -> None:
    """With 4 agents and p = 1/2 all 64 graphs are equally likely; so are all 2^6 directed ones of 3 agents."""
    for n, directed in ((4, False), (3, True)):
        pairs = [(i, j) for i in range(n) for j in range(n) if (i != j if directed else i < j)]
        bit = {pair: 1 << k for k, pair in enumerate(pairs)}
        seen = np.zeros(64, np.int64)
        for seed in range(3200):
            edges = gen.erdos_renyi(n, (n - 1) / 2, seed, directed=directed)
            seen[sum(bit[pair] for pair in zip(edges.source.tolist(), edges.target.tolist(), strict=True))] += 1
        assert fits(seen, np.full(64, 1 / 64))


@pytest.mark.parametrize("directed", [False, True])
def test_erdos_renyi_degrees_are_binomial(directed: bool) -> None:
    n, mean = 20_000, 8.0
    edges = gen.erdos_renyi(n, mean, seed=2, directed=directed)
    counted = [np.bincount(edges.source, minlength=n), np.bincount(edges.target, minlength=n)]
    for each in counted if directed else [counted[0] + counted[1]]:
        assert abs(each.mean() - mean) < 5 * np.sqrt(2 * mean / n)
        assert abs(each.var() / (mean * (1 - mean / (n - 1))) - 1) < 0.06
        assert fits(np.bincount(each, minlength=60), stats.binom.pmf(np.arange(60), n - 1, mean / (n - 1)))


@pytest.mark.parametrize("mean", [1.5, 2.5])
def test_giant_component(mean: float) -> None:
    """S = 1 - exp(-c S), simulation_references.md section 4."""
    edges = gen.erdos_renyi(200_000, mean, seed=7)
    _, label = sparse.csgraph.connected_components(adjacency(edges), directed=False)
    share = 1.0
    for _ in range(200):
        share = 1 - np.exp(-mean * share)
    assert np.bincount(label).max() / 200_000 == pytest.approx(share, abs=0.008)


def test_no_giant_component_below_mean_degree_one() -> None:
    edges = gen.erdos_renyi(200_000, 0.8, seed=7)
    _, label = sparse.csgraph.connected_components(adjacency(edges), directed=False)
    assert np.bincount(label).max() < 1000


@pytest.mark.parametrize("n", [1, 2, 3, 8, 50])
def test_dense_and_tiny_random_graphs(n: int) -> None:
    for mean in {0.0, (n - 1) / 3, float(n - 1)}:
        for directed in (False, True):
            edges = gen.erdos_renyi(n, mean, seed=n, directed=directed)
            assert_simple(edges)
            if mean == n - 1:
                assert edges.num_edges == n * (n - 1) // (1 if directed else 2)
        assert_simple(gen.random_in_neighbours(n, mean, seed=n))
    for count in range(n):
        edges = gen.random_in_neighbours(n, count, seed=n, law="fixed")
        assert_simple(edges)
        assert (np.bincount(edges.target, minlength=n) == count).all()


def test_in_neighbours_are_poisson_and_uniform() -> None:
    n, mean = 20_000, 10.0
    edges = gen.random_in_neighbours(n, mean, seed=4)
    assert fits(
        np.bincount(np.bincount(edges.target, minlength=n), minlength=50), stats.poisson.pmf(np.arange(50), mean)
    )
    assert fits(
        np.bincount(np.bincount(edges.source, minlength=n), minlength=50), stats.poisson.pmf(np.arange(50), mean)
    )
    assert (np.diff(edges.target) >= 0).all()
    assert fits(np.bincount((edges.source - edges.target) % n // 1000, minlength=20), np.full(20, 1 / 20))


# --- given and grown degrees --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted",
    [
        some_degrees(5000),
        degrees_with_tail(5000),
        [0],
        [0, 0],
        [1, 1],
        [2, 2, 2],
        [4] * 5,
        [3] * 4,
        [49] * 50,
        [25] * 50,
        [9, *[1] * 9],
        [5, 5, 2, 2, 2, 2],
    ],
    ids=lambda wanted: f"{len(wanted)} agents, largest {max(wanted)}",
)
def test_configuration_model_keeps_degrees_exactly(wanted: np.ndarray | list[int]) -> None:
    for seed in range(3):
        edges = gen.configuration_model(np.array(wanted), seed)
        assert_simple(edges)
        assert (degrees(edges) == wanted).all()


def test_configuration_model_with_the_degrees_of_dense_random_graphs() -> None:
    rng = np.random.default_rng(0)
    for density in np.linspace(0.05, 0.95, 19):
        upper = np.triu(rng.random((30, 30)) < density, 1)
        wanted = (upper + upper.T).sum(axis=0)
        edges = gen.configuration_model(wanted, seed=1)
        assert_simple(edges)
        assert (degrees(edges) == wanted).all()


@pytest.mark.parametrize("tail", [1.1, 1.5])
def test_configuration_model_with_hubs(tail: float) -> None:
    """Power laws of exponent 1 + tail far beyond the structural cut-off, and one agent who knows everyone."""
    wanted = np.minimum((1 - np.random.default_rng(0).random(10_000)) ** (-1 / tail), 2_000).astype(np.int64)
    wanted[np.argmax(wanted)] = 9_999
    wanted[np.argmax(wanted == 1)] += wanted.sum() % 2
    edges = gen.configuration_model(wanted, seed=1)
    assert_simple(edges)
    assert (degrees(edges) == wanted).all()


def test_configuration_model_gives_up_on_a_single_graph() -> None:
    """Threshold graphs are the only ones with their degrees: random swaps need not find them, and say so soon."""
    i = np.arange(80)
    joined = (i[:, None] + i[None, :] >= 79) & (i[:, None] != i[None, :])
    with pytest.raises(InputError, match="hardly any simple graph"):
        gen.configuration_model(joined.sum(axis=0))


def test_configuration_model_mixes_without_preference() -> None:
    """Degrees at the two ends of a contact are uncorrelated below the structural cut-off."""
    wanted = some_degrees(50_000)
    edges = gen.configuration_model(wanted, seed=3)
    ends = wanted[edges.source], wanted[edges.target]
    assert abs(np.corrcoef(ends)[0, 1]) < 5 / np.sqrt(edges.num_edges)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ([1, 1, 1], "odd"),
        ([3, 3, 1, 1], "Erdős-Gallai"),
        ([-1, 1], r"degrees\[0\]=-1"),
        ([2, 2], r"expected 0 … 1"),
        ([1.0, 1.0], "integer"),
        ([], "non-empty"),
        ([[1, 1]], "one-dimensional"),
    ],
)
def test_configuration_model_refuses_impossible_degrees(wanted: list, words: str) -> None:
    with pytest.raises(InputError, match=words):
        gen.configuration_model(wanted)


@pytest.mark.parametrize(("n", "m"), [(2, 1), (5, 4), (6, 1), (100, 7), (3000, 3)])
def test_barabasi_albert_adds_m_older_distinct_contacts(n: int, m: int) -> None:
    for seed in range(3):
        edges = gen.barabasi_albert(n, m, seed)
        assert_simple(edges)
        assert (edges.source > edges.target).all()
        assert (np.bincount(edges.source, minlength=n)[m:] == m).all()


@pytest.mark.parametrize("m", [1, 2, 5])
def test_barabasi_albert_has_its_power_law(m: int) -> None:
    """P(k) = 2 m (m + 1) / (k (k + 1) (k + 2)); tail exponent 3 by maximum likelihood within 5 standard errors."""
    degree = degrees(gen.barabasi_albert(200_000, m, seed=1))
    k = np.arange(m, 40)
    share = np.bincount(degree, minlength=40)[m:40] / degree.size
    expected = 2 * m * (m + 1) / (k * (k + 1) * (k + 2))
    assert np.abs(share - expected).max() < 5 * np.sqrt(expected.max() / degree.size) + 1e-3
    tail = degree[degree >= 10 * m]
    exponent = 1 + tail.size / np.log(tail / (10 * m - 0.5)).sum()
    assert exponent == pytest.approx(3, abs=5 * 2 / np.sqrt(tail.size) + 0.05)


def test_barabasi_albert_equals_one_agent_after_another() -> None:
    """Degrees of the oldest agents against a plain sequential simulation: the same law (two-sample KS test)."""

    def sequential(n: int, m: int, rng: np.random.Generator) -> np.ndarray:
        ends = [*range(m), *[m] * m]
        for agent in range(m + 1, n):
            chosen: list[int] = []
            while len(chosen) < m:
                one = ends[int(rng.integers(len(ends)))]
                if one not in chosen:
                    chosen.append(one)
            ends += [*chosen, *[agent] * m]
        return np.bincount(ends, minlength=n)

    rng = np.random.default_rng(0)
    plain = np.array([sequential(60, 3, rng) for _ in range(400)])
    fast = np.array([degrees(gen.barabasi_albert(60, 3, seed)) for seed in range(400)])
    for agent in (0, 3, 4, 10, 30):
        assert stats.ks_2samp(plain[:, agent], fast[:, agent]).pvalue > ENOUGH
    assert stats.ks_2samp(plain.max(axis=1), fast.max(axis=1)).pvalue > ENOUGH


# --- lattices -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prob", [0.0, 0.1, 0.5, 1.0])
def test_watts_strogatz_rewires_the_stated_share(prob: float) -> None:
    n, k = 20_000, 10
    edges = gen.watts_strogatz(n, k, prob, seed=6)
    assert_simple(edges)
    assert edges.num_edges == n * k // 2
    assert (np.bincount(edges.source, minlength=n) == k // 2).all()
    distance = (edges.target.astype(int) - edges.source) % n
    moved = 1 - (distance == np.tile(np.arange(1, k // 2 + 1), n)).mean()
    assert moved == pytest.approx(prob, abs=5 * np.sqrt(0.25 / edges.num_edges) if 0 < prob < 1 else 1e-9)
    expected = 3 * (k - 2) / (4 * (k - 1)) * (1 - prob) ** 3
    assert clustering(edges) == pytest.approx(expected, abs=0.01)


def test_watts_strogatz_uses_the_places_that_others_left() -> None:
    """One after another half of the ring is free on average; in 16 batches 15/32 is."""
    n, near = 30, 0
    for seed in range(200):
        edges = gen.watts_strogatz(n, 4, 1.0, seed)
        distance = (edges.target.astype(int) - edges.source) % n
        near += int(np.isin(distance, (1, 2, n - 1, n - 2)).sum())
    assert near / (200 * 2 * n) == pytest.approx(4 / 29 / 2, rel=0.15)


@pytest.mark.parametrize(("n", "k"), [(1, 0), (3, 2), (5, 4), (6, 4), (9, 8), (10, 2)])
def test_watts_strogatz_on_nearly_complete_rings(n: int, k: int) -> None:
    for seed in range(3):
        for prob in (0.0, 0.3, 1.0):
            edges = gen.watts_strogatz(n, k, prob, seed)
            assert_simple(edges)
            assert edges.num_edges == n * k // 2


@pytest.mark.parametrize(("name", "steps"), [("von_neumann", 4), ("moore", 8), ("hexagonal", 6)])
@pytest.mark.parametrize("periodic", [False, True])
def test_grid_against_brute_force(name: str, steps: int, periodic: bool) -> None:
    near = {
        "von_neumann": {(0, 1), (1, 0)},
        "moore": {(0, 1), (1, 0), (1, 1), (1, -1)},
        "hexagonal": {(0, 1), (1, 0), (1, -1)},
    }[name]
    near |= {(-a, -b) for a, b in near}
    for rows in range(1, 6):
        for cols in range(1, 6):
            expected = set()
            for r, c in np.ndindex(rows, cols):
                for a, b in near:
                    y, x = (r + a, c + b) if not periodic else ((r + a) % rows, (c + b) % cols)
                    if 0 <= y < rows and 0 <= x < cols and (y, x) != (r, c):
                        expected.add(frozenset((r * cols + c, y * cols + x)))
            edges = gen.grid(rows, cols, name, periodic)
            assert_simple(edges)
            assert {frozenset(p) for p in zip(edges.source.tolist(), edges.target.tolist(), strict=True)} == expected
            if periodic and min(rows, cols) >= 3:
                assert (degrees(edges) == steps).all()


# --- places -------------------------------------------------------------------------------------------------------


def test_households_are_cliques_of_the_stated_sizes() -> None:
    shares = {1: 0.5, 2: 0.25, 4: 0.25}
    edges = gen.households_and_workplaces(40_000, household_sizes=shares, seed=2)["household"]
    _, label = sparse.csgraph.connected_components(adjacency(edges), directed=False)
    sizes = np.bincount(label)
    assert (degrees(edges) == sizes[label] - 1).all()
    assert (np.abs(edges.source - edges.target) < 4).all()
    counted = np.array([(sizes == size).sum() for size in shares])
    assert counted.sum() >= sizes.size - 1  # the last household is cut to fit
    assert stats.chisquare(counted, np.array(list(shares.values())) * counted.sum()).pvalue > ENOUGH


@pytest.mark.parametrize("size", [21, 30, 41, 42, 300])
def test_large_workplaces_have_bounded_random_contacts(size: int) -> None:
    work = gen.households_and_workplaces(30_000, workplace_sizes={size: 1}, workers=1.0, pupils=0.0, seed=2)["work"]
    assert_simple(work)
    whole = 30_000 // size * size
    degree = degrees(work)
    if size == 21:
        assert (np.sort(degree)[30_000 - whole :] == 20).all()
    else:
        assert degree.mean() == pytest.approx(20, abs=0.3)
        assert degree.var() == pytest.approx(20 * (1 - 20 / (size - 1)), rel=0.1, abs=0.3)
    _, label = sparse.csgraph.connected_components(adjacency(work), directed=False)
    assert np.bincount(label).max() <= size


def test_roles_bound_the_layers() -> None:
    working = np.arange(1000) % 2 == 0
    layers = gen.households_and_workplaces(1000, workers=working, pupils=0.2, class_sizes={5: 1}, seed=1)
    assert list(layers) == ["household", "work", "school", "community"]
    assert working[layers["work"].source].all()
    assert working[layers["work"].target].all()
    assert not working[layers["school"].source].any()
    assert np.count_nonzero(degrees(layers["school"])) == 200
    assert layers["community"].num_edges == pytest.approx(2000, abs=250)


def test_changing_one_layer_leaves_the_others() -> None:
    one = gen.households_and_workplaces(2000, seed=9)
    other = gen.households_and_workplaces(2000, seed=9, workplace_sizes={3: 1}, community_degree=7)
    for name in ("household", "school"):
        assert np.array_equal(one[name].target, other[name].target)
    assert one["work"].num_edges != other["work"].num_edges


@pytest.mark.parametrize("n", [1, 2, 7, 60])
def test_tiny_populations(n: int) -> None:
    for edges in gen.households_and_workplaces(n, community_degree=0, max_contacts=2, seed=n).values():
        assert_simple(edges)


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gen.erdos_renyi(10, 10), "mean_degree=10"),
        (lambda: gen.erdos_renyi(10, float("nan")), "mean_degree=nan"),
        (lambda: gen.erdos_renyi(0, 0), "num_agents=0"),
        (lambda: gen.erdos_renyi(10, 1, seed=-1), "seed=-1"),
        (lambda: gen.erdos_renyi(10.5, 1), "num_agents=10.5"),
        (lambda: gen.random_in_neighbours(10, 1.5, law="fixed"), "whole number"),
        (lambda: gen.random_in_neighbours(10, 1, law="gamma"), "law='gamma'"),
        (lambda: gen.watts_strogatz(10, 3, 0.1), "even"),
        (lambda: gen.watts_strogatz(10, 10, 0.1), "neighbours=10"),
        (lambda: gen.watts_strogatz(10, 2, 1.1), "rewire_prob=1.1"),
        (lambda: gen.barabasi_albert(3, 3), "edges_per_agent=3"),
        (lambda: gen.grid(0, 3), "rows=0"),
        (lambda: gen.grid(3, 3, "more"), "did you mean 'moore'"),
        (lambda: gen.households_and_workplaces(10, household_sizes={}), "household_sizes"),
        (lambda: gen.households_and_workplaces(10, household_sizes={0: 1.0}), "household_sizes=0"),
        (lambda: gen.households_and_workplaces(10, household_sizes={2: 0.0}), "positive share"),
        (lambda: gen.households_and_workplaces(10, workers=0.9, pupils=0.2), "pupils=0.2"),
        (lambda: gen.households_and_workplaces(10, workers=np.ones(3, bool)), "workers"),
    ],
)
def test_bad_arguments_are_named(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()
