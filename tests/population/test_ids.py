"""Ids: the same village with its rows in another order gives the same contacts to the same people."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from denizen.errors import DataError, InputError
from denizen.population import Population, load

IDS: dict[str, list[Any]] = {
    "numbers": [30, 10, 20, 7, 1000],
    "rows": [3, 0, 4, 1, 2],  # might be taken for row numbers
    "negative": [-1, 5, 0, 2**31, 3],
    "wide": [2**53 + 1, 2**53, 2**62, -(2**60), 5],
    "names": ["bob", "Ann Lee", "cy", "Zoë", "d-1"],
    "padded": ["007", "012", "100", "000", "099"],
    "beyond": [str(10**20 + k) for k in (4, 0, 3, 1, 2)],
}
AGE, HOUSEHOLD, STAGE = [3, 1, 4, 1, 5], [0, 0, 1, 2, 2], [0, 2, 0, 1, 0]
LAYERS = {"home": ([0, 1, 4, 2], [1, 2, 3, 0]), "work": ([3, 3], [4, 0])}
WEIGHT = [0.5, 0.25, 2.0, 1.0]

Write = Callable[[Path, dict[str, list[Any]]], None]


def csv(path: Path, table: dict[str, list[Any]], mark: str = ",") -> None:
    lines = [mark.join(table), *(mark.join(map(str, row)) for row in zip(*table.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def parquet(path: Path, table: dict[str, list[Any]]) -> None:
    polars = pytest.importorskip("polars", reason="polars writes the tables of this test")
    polars.DataFrame(table).write_parquet(path)


def npz(path: Path, table: dict[str, list[Any]]) -> None:
    np.savez(path, **{name: np.array(values) for name, values in table.items()})


def frame(path: Path, table: dict[str, list[Any]]) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas writes the pickles of this test")
    pandas.DataFrame(table).to_pickle(path)


def indexed(path: Path, table: dict[str, list[Any]]) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas writes the pickles of this test")
    pandas.DataFrame(table).set_index("agent_id").to_pickle(path)


def columns(folder: Path, table: dict[str, list[Any]]) -> None:
    for name, values in table.items():
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(np.array(values)))


def series(folder: Path, table: dict[str, list[Any]]) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas writes the pickles of this test")
    index = pandas.Index(table["agent_id"], name="agent_id")
    for name, values in table.items():
        if name != "agent_id":
            pandas.Series(values, index=index, name=name).to_pickle(folder / f"{name}.pickle")


TABLES: dict[str, Write] = {
    "csv": lambda folder, table: csv(folder / "people.csv", table),
    "tsv": lambda folder, table: csv(folder / "people.tsv", table, "\t"),
    "semicolons": lambda folder, table: csv(folder / "people.csv", table, ";"),
    "parquet": lambda folder, table: parquet(folder / "people.parquet", table),
    "frame": lambda folder, table: frame(folder / "people.pickle", table),
    "index": lambda folder, table: indexed(folder / "people.pickle", table),
    "columns": columns,
    "series": series,
}
EDGES: dict[str, Write] = {"csv": csv, "parquet": parquet, "npz": npz}


def village(root: Path, table: str, edges: str, ids: list[Any], order: list[int], side: list[int] | None) -> Path:
    """A folder whose rows stand in `order`; with `side`, stages lie in a file of their own, in that order."""
    (root / "mobility_networks").mkdir(parents=True)
    people = {"agent_id": ids, "age": AGE, "household": HOUSEHOLD, "disease_stages": STAGE}
    moved = {name: [values[k] for k in order] for name, values in people.items()}
    if side is not None:
        del moved["disease_stages"]
        csv(root / "disease_stages.csv", {"agent_id": [ids[k] for k in side], "stages": [STAGE[k] for k in side]})
    TABLES[table](root, moved)
    for name, (source, target) in LAYERS.items():
        ends = {"source": [ids[k] for k in source], "target": [ids[k] for k in target]}
        held = ends | ({"weight": WEIGHT} if name == "home" else {})
        EDGES[edges](root / "mobility_networks" / f"{name}.{edges}", held)
    return root


def by_person(population: Population, order: list[int]) -> dict[str, Any]:
    """What is known of each person, and who meets whom, by the person's number before the rows were moved."""
    person = np.array(order)
    known: dict[str, Any] = {
        name: [int(population.column(name)[order.index(k)]) for k in range(5)]
        for name in ("age", "household", "disease_stages")
    }
    for name in LAYERS:
        source, target, weight = population.edges(name)
        share = [1.0] * len(source) if weight is None else weight.tolist()
        known[name] = list(zip(person[source].tolist(), person[target].tolist(), share, strict=True))
    return known


TRUTH = {
    "age": AGE,
    "household": HOUSEHOLD,
    "disease_stages": STAGE,
    "home": list(zip(*LAYERS["home"], WEIGHT, strict=True)),
    "work": list(zip(*LAYERS["work"], [1.0, 1.0], strict=True)),
}


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("table", TABLES)
@settings(max_examples=3)
@given(
    order=st.permutations(range(5)), side=st.none() | st.permutations(range(5)), edges=st.sampled_from(sorted(EDGES))
)
def test_rows_in_any_order_are_the_same_people(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    table: str,
    order: list[int],
    side: list[int] | None,
    edges: str,
) -> None:
    """Issue 16, A5: row k became agent k, and a column of ids was ignored."""
    place = village(tmp_path_factory.mktemp("ids") / "village", table, edges, IDS[kind], order, side)
    population = load(place)
    assert by_person(population, order) == TRUTH
    assert any("Edges map by column 'agent_id' of" in line for line in population.report)
    chosen = load(place, columns=["household"])  # which columns are kept changes no contact
    assert list(chosen.columns) == ["household"]
    for name in LAYERS:
        np.testing.assert_array_equal(chosen.networks[name], population.networks[name])


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("table", ["csv", "semicolons", "columns"])
def test_ids_without_polars(tmp_path: Path, hide: Callable[..., None], kind: str, table: str) -> None:
    hide("polars", "pyarrow")
    order = [4, 2, 0, 3, 1]
    for edges in ("csv", "npz"):
        place = village(tmp_path / edges, table, edges, IDS[kind], order, [1, 2, 3, 4, 0] if table == "csv" else None)
        assert by_person(load(place), order) == TRUTH


PEOPLE = "id,age\n30,3\n10,1\n20,2\n"
FAULTS = {
    "a duplicate": (
        {"people.csv": "id,age\n30,3\n10,1\n30,2\n", "networks/a.csv": "1,2\n"},
        r"column 'id' of people\.csv holds '30' twice, in line 2 and line 4 \(1 such id\)",
    ),
    "a duplicate name": (
        {"people.csv": "id,age\nann,3\nbob,1\nann,2\n", "networks/a.csv": "1,2\n"},
        "column 'id' of people.csv holds 'ann' twice, in line 2 and line 4",
    ),
    "a missing id": (
        {"people.csv": "id,age\n30,3\n,1\n20,2\n", "networks/a.csv": "1,2\n"},
        "column 'id' has 1 missing values, the first in line 3",
    ),
    "NaN": (
        {"people.csv": "id,age\n30.0,3\nnan,1\n20.0,2\n", "networks/a.csv": "1,2\n"},
        "1 missing ids, the first in line 3",
    ),
    "a fraction": ({"people.csv": "id,age\n0.5,3\n1,1\n20,2\n", "networks/a.csv": "1,20\n1,0\n"}, r"line 2: target=0"),
    "an unknown id": (
        {"people.csv": PEOPLE, "networks/a.csv": "10,20\n\n20,31\n"},
        r"a\.csv, line 3: target=31: no agent",
    ),
    "an unknown name": (
        {"people.csv": "id,age\nann,3\nbob,1\n", "networks/a.csv": "source,target\nann,bob\nann,cy\n"},
        r"a\.csv, line 3: target=cy: no agent has this id in column 'id' of people\.csv",
    ),
    "a typo in the first line": (
        {"people.csv": "id,age\nann,3\nbob,1\n", "networks/a.csv": "ann,bobb\nann,bob\n"},
        r"a\.csv, line 1: target=bobb: no agent",
    ),
    "a typo in both ends of the first line": (
        {"people.csv": "id,age\nann,3\nbob,1\n", "networks/a.csv": "anne,bobb,1.5\nann,bob,1\n"},
        r"a\.csv, line 1: source=anne: no agent",
    ),
    "an empty end": (
        {"people.csv": "id,age\nann,3\nbob,1\n", "networks/a.csv": "ann,bob\n,ann\n"},
        r"a\.csv, line 2: '' is a missing",
    ),
    "rows in place of ids": ({"people.csv": PEOPLE, "networks/a.csv": "0,1\n"}, r"source=0: .*pass ids=False"),
    "7 for both 7 and 007": (
        {"people.csv": "id,age\n007,3\n7,1\n8,1\n", "networks/a.csv": "8,7\n8,7.0\n"},
        r"line 2: target=7\.0: no agent",
    ),
    "two columns of ids": (
        {"people.csv": "id,agent_id,age\n1,2,3\n", "networks/a.csv": "1,2\n"},
        "'id', 'agent_id' may all hold ids; pass ids='id'",
    ),
    "a missing row": (
        {"people.csv": PEOPLE, "disease_stages.csv": "id,stages\n10,0\n20,1\n"},
        r"disease_stages\.csv has no row for id '30', which is in column 'id' of people\.csv, line 2",
    ),
    "a row of nobody": (
        {"people.csv": PEOPLE, "disease_stages.csv": "id,stages\n10,0\n20,1\n40,1\n"},
        r"disease_stages\.csv, line 4: id=40: no agent",
    ),
    "rows that are nobody's": (
        {"people.csv": PEOPLE, "height.csv": "id,height\n10,0\n20,1\n30,1\n", "job.csv": "1\n2\n3\n"},
        r"height\.csv and people\.csv list the agents in different orders, and job\.csv has no ids",
    ),
    "names without ids": ({"people.csv": "age\n1\n2\n", "networks/a.csv": "0,ann\n1,0\n"}, "need a column 'id' beside"),
    "names below a header": (
        {"people.csv": "person,age\nann,1\nben,2\n", "networks/a.csv": "a,b,hours\nann,ben,0.5\n"},
        "line 2: 'ann' is not a number.* need a column 'id' beside",
    ),
    "contacts beside the people": (
        {"people.csv": "id,age\nann,1\nben,2\n", "contacts.csv": "a,b\nann,ben\nben,ann\nann,ben\n"},
        "If contacts.csv lists contacts, move it to .*/networks/contacts.csv, with columns source and target",
    ),
    "row names of R": (
        {"people.csv": '"","age"\n"1",20\n"2",30\n', "networks/a.csv": "1,1\n"},
        r"saved row index is not 0, 1, 2.* pass ids=''",
    ),
    "numbers of polars": (
        {"people.csv": "index,age\n1,20\n0,30\n", "networks/a.csv": "1,1\n"},
        r"saved row index is not 0, 1, 2.* pass ids='index'",
    ),
    "rows of nobody known": (
        {"people.csv": PEOPLE, "height.csv": ",height\n2,0\n0,1\n1,1\n"},
        r"height\.csv: its saved row index is not 0, 1, 2",
    ),
    "row names of R in different orders": (
        {"people.csv": ",age\n1,20\n2,30\n", "job.csv": ",job\n2,1\n1,2\n"},
        "saved row index is not 0, 1, 2",
    ),
    "ids twice beside another file": (
        {"people.csv": "id,age\n1,3\n1,1\n", "disease_stages.csv": "id,stages\n1,0\n2,0\n"},
        "'id' of people.csv holds '1' twice",
    ),
    "contacts among attributes": (
        {"people.csv": "age\n1\n2\n", "edges.csv": "source,target\n0,1\n1,0\n"},
        r"edges\.csv holds contacts .* move it into the folder networks",
    ),
}


def test_ends_that_are_missing_or_spelled_otherwise_in_parquet(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars", reason="polars writes the tables of this test")
    place = write(tmp_path, {"people.csv": "id,age\n007,3\n012,1\n", "networks/a.csv": ""})
    (place / "networks" / "a.csv").unlink()
    polars.DataFrame({"source": [7], "target": [12]}).write_parquet(place / "networks" / "a.parquet")
    population = load(place)
    assert [end.tolist() for end in population.networks["a"]] == [[0], [1]]
    assert any("matched by value where they are spelled otherwise" in line for line in population.report)
    polars.DataFrame({"source": ["007", None], "target": ["012", "007"]}).write_parquet(place / "networks/a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet, row 1: source=nothing: every edge has two ends"):
        load(place)
    polars.DataFrame({"target_id": ["007"], "source_id": ["012"]}).write_parquet(place / "networks/a.parquet")
    assert [end.tolist() for end in load(place).networks["a"]] == [[1], [0]]


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize("missing", [(), ("polars",)], ids=["polars", "no polars"])
@pytest.mark.parametrize("fault", FAULTS)
def test_ids_that_name_nobody_are_refused(
    tmp_path: Path, hide: Callable[..., None], fault: str, missing: tuple[str, ...]
) -> None:
    hide(*missing)
    files, words = FAULTS[fault]
    with pytest.raises(DataError, match=words):
        load(write(tmp_path, files))


HARMLESS: dict[str, tuple[dict[str, str], str]] = {
    "ids twice": ({"people.csv": "id,age\n1,20\n1,30\n"}, "No ids were taken, for nothing refers to any: "),
    "two columns": ({"people.csv": "id,pid,age\n5,1,20\n5,2,30\n"}, "No ids were taken, for nothing refers to any: "),
    "row names of R in two files": ({"people.csv": ",age\n1,20\n2,30\n", "job.csv": ",job\n1,4\n2,5\n"}, "was skipped"),
    "an index saved twice": (
        {"people.csv": "Unnamed: 0.1,Unnamed: 0,age\n0,0,20\n1,1,30\n", "networks/a.csv": ",source,target\n0,0,1\n"},
        "was skipped",
    ),
    "another column": (
        {"people.csv": "PassengerId,age\n1,20\n0,30\n", "networks/a.csv": "0,1\n"},
        "no column of ids; ids='PassengerId' takes that column, whose values all differ.",
    ),
    "a third column": (
        {"people.csv": "age\n20\n30\n", "networks/a.csv": "0,1,9\n"},
        "networks/a.csv: no header line; the third column is taken as weight.",
    ),
}


@pytest.mark.parametrize("missing", [(), ("polars",)], ids=["polars", "no polars"])
@pytest.mark.parametrize("case", HARMLESS)
def test_ids_that_nothing_refers_to_are_columns(
    tmp_path: Path, hide: Callable[..., None], case: str, missing: tuple[str, ...]
) -> None:
    """A table of attributes alone was refused for a column that happens to be called `id`."""
    hide(*missing)
    files, words = HARMLESS[case]
    population = load(write(tmp_path, files))
    assert population.column("age").tolist() == [20, 30]
    assert any(words in line for line in population.report)
    assert not any("Unnamed" in name for name in population.columns)
    assert load(tmp_path, columns=["age"]).column("age").tolist() == [20, 30]


def test_faults_of_ids_are_told_whichever_columns_are_read(tmp_path: Path) -> None:
    """They were swallowed, the edges mapped by row, or `age` said not to exist."""
    files = {"people.csv": "id,age\n1,20\n1,30\n", "job.csv": "1\n2\n", "networks/a.csv": "0,1\n"}
    for columns in (["age"], ["job"], None):
        with pytest.raises(DataError, match=r"people\.csv holds '1' twice"):
            load(write(tmp_path, files), columns=columns)
    assert load(tmp_path, columns=["job"], ids=False).networks["a"][1].tolist() == [1]
    (tmp_path / "people.csv").write_bytes("id,age,name\n1,20,a\n0,30,Zo\xeb\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"people\.csv, line 3: byte 0xeb is not UTF-8"):
        load(tmp_path, columns=["job"])


def test_the_report_says_how_edges_were_understood(tmp_path: Path) -> None:
    edges = {"networks/a.csv": "0,1\n1,2\n"}
    for table, words in (
        ("age\n1\n2\n3\n", "Edges map by row number, counted from 0: there is no column of ids."),
        ("id,age\n0,1\n1,2\n2,3\n", "Edges map by column 'id' of people.csv, which counts the rows from 0."),
        ("Agent ID,age\nx,1\n1,2\n0,3\n", None),
        (
            "id,age\n2,1\n0,2\n1,3\n",
            "Edges map by column 'id' of people.csv; ids=False takes them as row numbers, which they might be too.",
        ),
        ("id,age\n2,1\n0,2\n1,3\n,", None),
    ):
        place = write(tmp_path, {"people.csv": table, **edges})
        if words is None:
            with pytest.raises(DataError):
                load(place)
        else:
            assert words in load(place).report
    place = write(tmp_path, {"people.csv": "id,age\n2,1\n0,2\n1,3\n"})
    assert [end.tolist() for end in load(place).networks["a"]] == [[1, 2], [2, 0]]
    plain = load(place, ids=False)
    assert [end.tolist() for end in plain.networks["a"]] == [[0, 1], [1, 2]]
    assert "Edges map by row number, counted from 0." in plain.report


def test_another_column_of_ids(tmp_path: Path) -> None:
    place = write(tmp_path, {"people.csv": "citizen,id,age\n30,1,3\n10,1,1\n", "networks/a.csv": "10,30\n"})
    assert [end.tolist() for end in load(place, ids="citizen").networks["a"]] == [[1], [0]]
    with pytest.raises(DataError, match="no column 'citicen' of ids; did you mean 'citizen'"):
        load(place, ids="citicen")
    with pytest.raises(InputError, match=r"load: ids=3, expected the name of a column"):
        load(place, ids=3)
    with pytest.raises(InputError, match=r"between rows already"):
        load("synthetic:astoria:100", ids="id")


def test_what_is_saved_keeps_its_contacts(tmp_path: Path) -> None:
    place = village(tmp_path / "village", "csv", "csv", IDS["rows"], [4, 2, 0, 3, 1], None)
    load(place).save(tmp_path / "x.npz")
    assert by_person(load(tmp_path / "x.npz"), [4, 2, 0, 3, 1]) == TRUTH


def test_a_row_index_of_pandas(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas writes the pickles of this test")
    plain = pandas.DataFrame({"age": [1, 2, 3]})
    for moved in (plain.iloc[[2, 0, 1]], plain.iloc[::-1], plain.set_index(pandas.Index(["a", "b", "c"]))):
        place = tmp_path / "moved"
        write(place, {}) if place.exists() else place.mkdir()
        moved.to_pickle(place / "people.pickle")
        assert load(place).column("age").tolist() == moved["age"].tolist()  # nothing refers to the rows
        write(place, {"networks/a.csv": "0,1\n"})
        with pytest.raises(DataError, match=r"people\.pickle: its saved row index is not 0, 1, 2"):
            load(place)
        assert load(place, ids=False).networks["a"][0].tolist() == [0]
        (place / "networks" / "a.csv").unlink()
    county = plain.set_index(pandas.Index([7, 7, 8], name="county"))
    county.to_pickle(place / "people.pickle")
    assert "people.pickle: its row index 'county' was left out." in load(place).report
