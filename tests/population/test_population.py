"""`Population`: columns, labels matched by label, edges in the wanted form; edge diagnostics against plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from denizen.errors import DataError, InputError
from denizen.population import Population, edge_facts

GROUPS = ["under 19", "20-29", "30-39", "40-49", "50-64", "65+"]


def people(codes: list[int], labels: list[str] | None) -> Population:
    columns = {"age": np.array(codes, dtype=np.uint8), "income": np.array(codes, dtype=np.float32)}
    return Population("people", len(codes), columns, {} if labels is None else {"age": labels})


@pytest.mark.parametrize(
    "labels",
    [
        ["20-29", "30-39", "40-49", "50-64", "65+", "under 19"],
        ["20t29", "30t39", "40t49", "50t64", "65A", "U19"],
        ["20 to 29", "30–39", "40 - 49", "50 T 64", "65 and over", "Under 19"],
    ],
)
def test_codes_are_matched_by_label(labels):
    group = people([0, 1, 2, 3, 4, 5], labels).codes_of("age", GROUPS)
    assert group.dtype == np.uint8
    assert group.tolist() == [1, 2, 3, 4, 5, 0]


def test_labels_are_needed_only_for_codes_that_occur():
    assert people([0, 0], ["20t29"]).codes_of("age", GROUPS).tolist() == [1, 1]
    assert people([0, 0], ["20t29", "no such band"]).codes_of("age", GROUPS).tolist() == [1, 1]
    with pytest.raises(DataError, match=r"has the code 1, but labels for 0 to 0 only"):
        people([0, 1], ["20t29"]).codes_of("age", GROUPS)
    with pytest.raises(DataError, match=r"label 'under 18' of code 1 .* did you mean 'under 19'"):
        people([0, 1], ["20t29", "under 18"]).codes_of("age", GROUPS)


def test_codes_without_labels_are_refused_unless_the_order_is_stated():
    with pytest.raises(DataError, match=r"codes without labels.*labels=\{'age'"):
        people([0, 1], None).codes_of("age", GROUPS)
    assert people([0, 1], None).codes_of("age", GROUPS, order=["65A", "U19"]).tolist() == [5, 0]


def test_codes_of_faults():
    with pytest.raises(InputError, match="same label twice"):
        people([0], ["20t29"]).codes_of("age", ["20-29", "20t29"])
    with pytest.raises(DataError, match="no column 'agee'; did you mean 'age'"):
        people([0], ["20t29"]).codes_of("agee", GROUPS)
    with pytest.raises(DataError, match="real numbers"):
        people([0], None).codes_of("income", GROUPS, order=["20t29"])


def test_many_labels_need_a_wider_index():
    labels = [f"job {k}" for k in range(300)]
    group = Population("p", 2, {"job": np.array([299, 0], dtype=np.int16)}, {"job": labels}).codes_of("job", labels)
    assert (group.dtype, group.tolist()) == (np.int32, [299, 0])


@pytest.mark.parametrize(
    ("label", "same"),
    [
        ("20T29", "20-29"),
        ("65A", "65+"),
        ("u19", "under 19"),
        ("<19", "under 19"),
        ("Wine  Bar", "Wine Bar"),
        ("29-2011.00", "29-2011.00"),
    ],
)
def test_canonical_spellings(label, same):
    for one, other in ((label, same), (same, label), (same, same)):
        population = Population("p", 1, {"group": np.zeros(1, dtype=np.uint8)}, {"group": [one]})
        assert population.codes_of("group", ["of nobody", other]).tolist() == [1]


def test_an_exact_label_wins_over_another_spelling():
    labels = ["05-10", "5-10", "A", "a"]
    population = Population("p", 4, {"code": np.arange(4, dtype=np.uint8)}, {"code": labels})
    assert population.codes_of("code", ["a", "A", "5-10"], order=["5-10", "a", "A", "05-10"]).tolist() == [2, 0, 1, 2]
    with pytest.raises(InputError, match="hold the same label twice"):
        population.codes_of("code", labels)


edge_lists = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=25)


def arrays(edges: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(edges, dtype=np.int32).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


@given(edge_lists)
def test_edge_facts_agree_with_plain_counting(edges):
    facts = edge_facts(*arrays(edges), 6)
    into = [sum(target == k for _, target in edges) for k in range(6)]
    out = [sum(source == k for source, _ in edges) for k in range(6)]
    assert facts.rows == len(edges)
    assert facts.self_loops == sum(a == b for a, b in edges)
    assert facts.duplicates == len(edges) - len(set(edges))
    assert facts.reverse_pairs == sum((b, a) in set(edges) for a, b in set(edges) if a < b)
    assert facts.participants == len({k for edge in edges for k in edge})
    assert (facts.in_degree_max, facts.in_degree_zero) == (max(into), into.count(0))
    assert (facts.out_degree_max, facts.out_degree_zero) == (max(out), out.count(0))
    assert facts.in_degree_sd == pytest.approx(np.std(into))


@given(edge_lists, st.booleans())
def test_symmetrize_adds_only_what_is_missing(edges, keep):
    source, target = arrays(edges)
    weights = {"0": np.arange(len(edges), dtype=np.float32)}
    population = Population("p", 6, {}, networks={"0": (source, target)}, weights=weights)
    plain = [(a, b, k) for k, (a, b) in enumerate(edges) if keep or a != b]
    known = {(a, b) for a, b, _ in plain}
    expected = plain + [(b, a, k) for a, b, k in plain if (b, a) not in known]
    got = population.edges(symmetrize=True, keep_self_loops=keep)
    assert list(zip(*(part.tolist() for part in got), strict=True)) == expected
    assert all(part.dtype == kind for part, kind in zip(got, (np.int32, np.int32, np.float32), strict=True))


def test_sentences_say_what_matters():
    said = "\n".join(edge_facts(*arrays([(0, 1), (0, 1), (2, 2), (3, 4)]), 6).sentences("0"))
    for words in ("1 self-loops", "1 rows repeat", "one way"):
        assert words in said
    assert edge_facts(*arrays([(0, 1), (1, 0)]), 6).sentences("0") == []
    mixed = edge_facts(*arrays([(0, 1), (1, 0), (2, 3)]), 6).sentences("0")
    (said,) = mixed
    assert said.startswith("network '0': 1 of 2 contacts are written in both directions; infection runs one way along")
    assert "symmetrize=True" in said


def test_unknown_network():
    with pytest.raises(DataError, match="no network 'hom'; did you mean 'home'"):
        Population("p", 1, {}, networks={"home": arrays([])}).edges("hom")


@pytest.mark.real
@pytest.mark.parametrize("name", ["0", "1"])
def test_astoria_networks(data_root, name):
    """covid.md section 1.3; degrees of network 1 are not in it and were measured here."""
    from denizen.population import load

    population = load(data_root / "astoria", columns=["age"], networks=[name])
    facts = edge_facts(*population.networks[name], population.size)
    assert (facts.duplicates, facts.reverse_pairs, facts.participants, facts.in_degree_zero) == (0, 0, 31_038, 6_481)
    assert facts.one_way
    if name == "0":
        assert (facts.rows, facts.self_loops) == (136_378, 6)
        assert (facts.in_degree_max, facts.out_degree_max, facts.out_degree_zero) == (36, 73, 15_098)
        assert (round(facts.in_degree_sd, 2), round(facts.out_degree_sd, 2)) == (3.41, 5.77)
        source, target = population.networks[name]
        assert max(source.max(), target.max()) == 37_515
    else:
        assert (facts.rows, facts.self_loops) == (272_654, 14)
        assert (facts.in_degree_max, facts.out_degree_max) == (83, 136)
