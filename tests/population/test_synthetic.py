"""The stand-in for Astoria: exact counts, the recorded degree figures, deterministic, at any size."""

import numpy as np
import pytest

from denizen.errors import DataError, InputError
from denizen.population import edge_facts, load, synthetic

COUNTS = {
    "age": [6723, 11573, 5724, 4647, 3910, 4941],
    "gender": [18467, 19051],
    "ethnicity": [27240, 2404, 920, 5503, 1433, 18],
    "disease_stages": [37473, 45],
    "area": [37518],
    "county": [37518],
    "region": [37518],
}


def test_marginals_are_exact():
    population = synthetic("astoria")
    assert (population.size, population.source) == (37_518, "synthetic:astoria")
    for name, counts in COUNTS.items():
        assert np.bincount(population.column(name)).tolist() == counts, name
    assert population.column("disease_stages").dtype == np.int8
    assert population.column("age").dtype == np.uint8


def test_columns_are_shuffled_independently():
    population = synthetic("astoria", networks=[])
    age, gender = population.column("age").astype(float), population.column("gender").astype(float)
    for one, other in ((age, gender), (age, np.arange(len(age))), (gender, population.column("disease_stages"))):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(len(age))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_networks_have_the_recorded_figures(seed):
    population = synthetic("astoria", seed=seed)
    zero, one = (edge_facts(*population.networks[name], population.size) for name in ("0", "1"))
    assert (zero.rows, one.rows) == (136_378, 272_654)
    for facts in (zero, one):
        assert (facts.self_loops, facts.duplicates, facts.reverse_pairs) == (0, 0, 0)
        assert facts.one_way
        assert facts.participants == 31_038
    # covid.md section 2.2: what two graphs of generator A showed, a little wider
    assert 3.35 < zero.in_degree_sd < 3.52
    assert 24 <= zero.in_degree_max <= 45
    assert 6_481 <= zero.in_degree_zero <= 6_500
    assert 5.5 < zero.out_degree_sd < 5.9
    assert 58 <= zero.out_degree_max <= 90
    assert 15_000 < zero.out_degree_zero < 15_600
    # measured on the original's network 1: sd 6.98 and 11.49, 6,481 without in-edge
    assert 6.7 < one.in_degree_sd < 7.4
    assert 11.0 < one.out_degree_sd < 12.0
    assert 6_481 <= one.in_degree_zero <= 6_500
    isolated = [np.bincount(np.concatenate(population.networks[name]), minlength=population.size) == 0 for name in "01"]
    np.testing.assert_array_equal(*isolated)


def test_degrees_have_the_moments_of_the_generator():
    source, target = synthetic("astoria", networks=["0"]).networks["0"]
    degree = np.bincount(np.concatenate([source, target]))
    degree = degree[degree > 0]
    assert degree.sum() == 272_756
    assert abs(degree.std() - 7.3) < 0.15


def test_contacts_point_away_from_one_agent():
    """Breadth-first direction: within a component only its first agent has no incoming contact."""
    population = synthetic("astoria", size=5000, networks=["0"])
    source, target = population.networks["0"]
    degree = np.bincount(np.concatenate([source, target]), minlength=5000)
    origins = np.setdiff1d(source, target)
    assert np.argmax(degree) in origins or degree[origins].max() == degree.max()
    assert len(origins) < 30  # one per component


@pytest.mark.parametrize("size", [200, 201, 1000, 37_519, 100_000])
def test_other_sizes_scale_every_count(size):
    population = synthetic("astoria", size=size, seed=3)
    for name, counts in COUNTS.items():
        found = np.bincount(population.column(name), minlength=len(counts))
        assert found.sum() == size
        assert (np.abs(found - np.array(counts) * size / 37_518) < 1).all()
    for name, edges in (("0", 136_378), ("1", 272_654)):
        facts = edge_facts(*population.networks[name], size)
        assert facts.rows == round(edges * size / 37_518)
        assert (facts.self_loops, facts.duplicates, facts.reverse_pairs) == (0, 0, 0)


@pytest.mark.slow
def test_a_million_agents():
    assert len(synthetic(size=1_000_000, networks=["0"]).networks["0"][0]) == 3_635_002


def test_the_seed_decides_everything():
    one, same, other = synthetic(size=2000, seed=5), synthetic(size=2000, seed=5), synthetic(size=2000, seed=6)
    for name in one.columns:
        np.testing.assert_array_equal(one.columns[name], same.columns[name])
    for name in one.networks:
        np.testing.assert_array_equal(one.networks[name], same.networks[name])
        assert (one.networks[name][0] != other.networks[name][0]).any()
    alone = synthetic(size=2000, seed=5, networks=["1"])
    assert list(alone.networks) == ["1"]
    np.testing.assert_array_equal(alone.networks["1"], one.networks["1"])


def test_load_makes_synthetic_populations():
    assert load("synthetic:astoria:1000", networks=["0"]).size == 1000
    population = load("synthetic:astoria:1_000", columns=["age"], networks=[])
    assert (list(population.columns), list(population.labels), population.networks) == (["age"], ["age"], {})
    assert load("synthetic:astoria:200", labels={"area": ["Queens"]}).labels["area"] == ["Queens"]
    with pytest.raises(DataError, match="no numeric target 'cases'"):
        load("synthetic:astoria:200", targets=["cases"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "paris"}, "synthetic: name='paris', valid: astoria"),
        ({"size": 10}, "synthetic: size=10, expected a whole number from 200"),
        ({"size": 1e6}, "size=1000000.0"),
        ({"seed": -1}, "synthetic: seed=-1, expected a whole number, at least 0"),
        ({"networks": ["2"]}, "synthetic: networks='2'.* valid: 0, 1"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(InputError, match=words):
        synthetic(**arguments)


def test_scaled_counts_sum_up():
    for size in range(200, 400):
        columns = synthetic(size=size, networks=[]).columns
        assert {name: len(column) for name, column in columns.items()} == dict.fromkeys(columns, size)
