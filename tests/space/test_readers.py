"""Contacts from arrays, files, scipy and networkx: what is read, what is refused, and that nothing else happens."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from denizen.errors import DataError, DenizenError, InputError
from denizen.space import EdgeList, Graph, Layers, from_arrays, from_networkx, from_scipy, read_edges

SOURCE, TARGET, WEIGHT = [0, 1, 2, 2], [1, 2, 0, 1], [1.0, 0.5, 2.0, 0.0]


def rows(edges: EdgeList) -> list[tuple]:
    columns = [edges.source, edges.target] + ([] if edges.weight is None else [edges.weight])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_edge_list_refuses_unchecked_arrays() -> None:
    ids = np.array([0, 1], np.int32)
    for source, target, weight in ((ids.astype(np.int64), ids, None), (ids, ids[:1], None), (ids, ids, ids)):
        with pytest.raises(InputError, match="from_arrays"):
            EdgeList(2, source, target, weight)
    assert repr(EdgeList(2, ids, ids, directed=False)) == "EdgeList(2 agents, 2 contacts)"


# --- validation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "i8", "u8", "f4", "f8", "list"])
def test_ids_of_any_width_become_int32(dtype: str) -> None:
    ends = (SOURCE, TARGET) if dtype == "list" else (np.array(SOURCE, dtype), np.array(TARGET, dtype))
    edges = from_arrays(*ends, weight=WEIGHT, num_agents=3)
    assert rows(edges) == list(zip(SOURCE, TARGET, WEIGHT, strict=True))
    assert edges.source.dtype == np.int32
    assert edges.weight is not None
    assert edges.weight.dtype == np.float32
    assert any("whole numbers" in line for line in edges.report) == (dtype in ("f4", "f8"))


@pytest.mark.parametrize(
    ("source", "target", "weight", "words"),
    [
        ([0, -1], [1, 1], None, r"row 1: source=-1: ids go from 0 to 2"),
        ([0, 1], [1, 3], None, r"row 1: target=3"),
        ([1, 2], [2, 3], None, "start at 1: subtract 1"),
        ([0, 2**40], [1, 1], None, "row 1: source"),
        (np.array([0, 2**64 - 1], np.uint64), [1, 1], None, "row 1: source"),
        ([0.5, 1], [1, 1], None, r"row 0: source=0.5: ids are whole"),
        ([0, np.nan], [1, 1], None, "row 1: source=nan"),
        ([0, np.inf], [1, 1], None, "row 1: source=inf"),
        ([0, 1e300], [1, 1], None, "row 1: source"),
        (["a", "b"], [1, 1], None, "source holds <U1"),
        ([True, False], [1, 1], None, "source holds bool"),
        ([0, None], [1, 1], None, "source holds object"),
        ([[0], [1]], [1, 1], None, "flat array"),
        ([[0], 1], [1, 1], None, "source is not an array"),
        ([2**70, 1], [1, 1], None, "source holds object"),
        ([1j, 1], [1, 1], None, "source holds complex"),
        (3, [1, 1], None, "flat array"),
        ([0, 1], [1], None, r"one length, got \[2, 1\]"),
        ([0, 1], [1, 0], [1.0], r"one length, got \[2, 2, 1\]"),
        ([0, 1], [1, 0], [1.0, -1.0], "row 1: weight=-1.0"),
        ([0, 1], [1, 0], [np.nan, 1.0], "row 0: weight=nan"),
        ([0, 1], [1, 0], [1.0, np.inf], "row 1: weight=inf"),
        ([0, 1], [1, 0], [1.0, 1e300], "row 1: weight=1e"),
        ([0, 1], [1, 0], ["x", "y"], "weight holds <U1"),
    ],
)
def test_bad_arrays_are_refused_with_the_row(source: object, target: object, weight: object, words: str) -> None:
    with pytest.raises(DataError, match=words):
        from_arrays(source, target, weight=weight, num_agents=3)


@pytest.mark.parametrize(("choice", "kept"), [("keep", [(0, 0), (0, 1), (1, 1)]), ("drop", [(0, 1)])])
def test_self_loops(choice: str, kept: list) -> None:
    edges = from_arrays([0, 0, 1], [0, 1, 1], num_agents=2, self_loops=choice)
    assert rows(edges) == kept
    assert edges.report[0] == f"edges: 2 self-loops {'kept' if choice == 'keep' else 'dropped'}."


@pytest.mark.parametrize("directed", [True, False])
def test_duplicates(directed: bool) -> None:
    arrays = [0, 1, 0, 2, 2], [1, 0, 1, 2, 2], [1, 2, 3, 4, 5]
    edges = from_arrays(arrays[0], arrays[1], weight=arrays[2], num_agents=3, duplicates="drop", directed=directed)
    assert rows(edges) == ([(0, 1, 1), (1, 0, 2)] if directed else [(0, 1, 1)])
    assert f"edges: {1 if directed else 2} repeated contact{'s' * (not directed)} dropped." in edges.report
    edges = from_arrays(arrays[0], arrays[1], num_agents=3, duplicates="keep", directed=directed)
    assert edges.num_edges == 3
    assert any("kept" in line for line in edges.report)
    assert ("edges: 1 of 1 pairs of agents occur in both directions." in edges.report) == directed
    with pytest.raises(DataError, match=r"row 2: repeated contact 0 → 1|row 1: repeated contact 1 → 0"):
        from_arrays(arrays[0], arrays[1], num_agents=3, duplicates="error", directed=directed)
    with pytest.raises(DataError, match="row 3: self-loop 2 → 2 \\(2 in all\\)"):
        from_arrays(arrays[0], arrays[1], num_agents=3, self_loops="error", directed=directed)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=60),
    st.sampled_from(["keep", "drop"]),
    st.sampled_from(["keep", "drop"]),
    st.booleans(),
)
def test_choices_against_plain_python(pairs: list, self_loops: str, duplicates: str, directed: bool) -> None:
    expected, seen = [], set()
    for pair in pairs:
        key = pair if directed else tuple(sorted(pair))
        if not (self_loops == "drop" and pair[0] == pair[1]) and not (duplicates == "drop" and key in seen):
            expected.append(pair)
        seen.add(key)
    source, target = [a for a, _ in pairs], [b for _, b in pairs]
    edges = from_arrays(source, target, num_agents=6, self_loops=self_loops, duplicates=duplicates, directed=directed)
    assert rows(edges) == expected


def test_contacts_written_once_are_pointed_out() -> None:
    assert "pass directed=False" in from_arrays([0, 1], [1, 2], num_agents=3).report[0]


def test_number_of_agents() -> None:
    edges = from_arrays([0, 4], [1, 2])
    assert edges.num_agents == 5
    assert "edges: num_agents taken as the highest id + 1, 5." in edges.report
    assert from_arrays([], [], num_agents=4).num_edges == 0
    with pytest.raises(DataError, match="no contacts"):
        from_arrays([], [])
    with pytest.raises(DataError, match="number the agents from 0"):
        from_arrays([2**40], [0])
    for bad in (-1, 2.0, True, 2**40):
        with pytest.raises(InputError, match="num_agents"):
            from_arrays([0], [1], num_agents=bad)
    with pytest.raises(InputError, match="self_loops='no'"):
        from_arrays([0], [1], self_loops="no")


# --- text ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "0,1\n1,2\n2,0\n2,1\n",
        "0,1\r\n1,2\r\n2,0\r\n2,1\r\n",
        "0;1\n1;2\n2;0\n2;1",
        "0\t1\n1\t2\n2\t0\n2\t1\n",
        "0 1\n1 2\n2 0\n2 1\n",
        "  0   1 \n1 \t 2\r\n2 0  \n 2 1\n",
        "source,target\n0,1\n1,2\n2,0\n2,1\n",
        "source target\n0 1\n1 2\n2 0\n2 1\n",
        '"source","target"\n"0","1"\n"1","2"\n2,0\n2,1\n',
        "\ufeffsource,target\n0,1\n1,2\n2,0\n2,1\n",
        "name,target,source\nx,1,0\ny,2,1\n,0,2\nz,1,2\n",
        "# contacts of a study\n# 4 rows\n0\t1\n1\t2\n# half\n2\t0\n\n2\t1\n\n\n",
        "\n\n0,1\n\n1,2\n2,0\n2,1\n",
        "0.0,1.0\n1,2\n2,0\n2,1e0\n",
        "0, 1\n1, 2\n2, 0\n 2, 1\n",
        "source;target\r\n0;1\r\n1;2\r\n2;0\r\n2;1\r\n",
        "  0   1 \n\n1\t2\n 2 0\n2 1\n",
        "0,1,9,x\n1,2,9,y\n2,0,9,\n2,1,9,z\n",
    ],
)
@pytest.mark.parametrize("reader", ["polars", "numpy", "careful"])
def test_text_in_its_many_forms(
    tmp_path: Path, content: str, reader: str, monkeypatch: pytest.MonkeyPatch, inside: Any
) -> None:
    if reader == "numpy":
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    if reader == "careful":
        inside.careful_reader()
    edges = read_edges(write(tmp_path / "contacts.csv", content))
    assert rows(edges) == list(zip(SOURCE, TARGET, strict=True))
    assert any("no header line" in line for line in edges.report) == ("source" not in content)


def test_text_with_weights_and_named_columns(tmp_path: Path) -> None:
    text = "from,to,minutes\n0,1,1\n1,2,0.5\n2,0,2\n2,1,0\n"
    edges = read_edges(write(tmp_path / "c.tsv", text), source="from", target="to", weight="minutes", num_agents=9)
    assert rows(edges) == list(zip(SOURCE, TARGET, WEIGHT, strict=True))
    assert edges.num_agents == 9
    edges = read_edges(write(tmp_path / "c.txt", "0 1 1\n1 2 .5\n2 0 2\n2 1 0"), weight="w", directed=False)
    assert rows(edges) == list(zip(SOURCE, TARGET, WEIGHT, strict=True))
    assert not edges.directed


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no contacts"),
        ("# nothing\n\n", "no contacts"),
        ("source,target\n", "no contacts"),
        ("from,target\n0,1\n", "no column 'source'"),
        ("sources,target\n0,1\n", "did you mean 'sources'"),
        ("0\n1\n", "line 1: 1 field"),
        ("source,target\n0,1\n1\n", "line 3: 1 columns; the first line has 2"),
        ("0,1\n\n# x\n1,\n", "line 4: '' is a missing"),
        ("0,1\n1,two\n", "line 2: 'two' is not a number"),
        ("source,target\n0,1\n\n1,0x2\n", "line 4: '0x2' is not a number"),
        ("0,1\n1,2,3\n", "line 2: 3 columns"),
        ("0,1\n1,2.5\n", "line 2: target=2.5"),
        ("0,1\n1,nan\n", "line 2: 'nan' is a missing"),
        ("source,target\n0,1\n1,-2\n", "line 3: target=-2"),
        ("0,1\n1,99999999999999999999\n", "line 2: target"),
        (b"\x00\x01\x02\xff\xfe", "c.csv"),
        (b"0,1\n\xff,1\n", "c.csv"),
        (',"', "not a readable text file"),  # polars 2.1 panics
    ],
)
def test_bad_text_is_refused_with_the_line(tmp_path: Path, content: bytes | str, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        read_edges(write(tmp_path / "c.csv", content))
    assert "c.csv" in str(caught.value)


# --- Parquet and npz ----------------------------------------------------------------------------------------------


def test_parquet(tmp_path: Path) -> None:
    frame = pl.DataFrame({"target": TARGET, "w": WEIGHT, "source": SOURCE, "note": ["x"] * 4})
    frame.write_parquet(tmp_path / "a.parquet")
    assert rows(read_edges(tmp_path / "a.parquet", weight="w")) == list(zip(SOURCE, TARGET, WEIGHT, strict=True))
    assert rows(read_edges(tmp_path / "a.parquet")) == list(zip(SOURCE, TARGET, strict=True))
    with pytest.raises(DataError, match="no column 'ww'; did you mean 'w'"):
        read_edges(tmp_path / "a.parquet", weight="ww")
    with pytest.raises(DataError, match=r"target holds object|target holds <U"):
        read_edges(tmp_path / "a.parquet", target="note")
    pl.DataFrame({"source": [0, 1], "target": [1, None]}).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match="row 1: target is missing"):
        read_edges(tmp_path / "b.parquet")


def test_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", source=SOURCE, target=TARGET, weight=WEIGHT)
    assert rows(read_edges(tmp_path / "a.npz", weight="weight")) == list(zip(SOURCE, TARGET, WEIGHT, strict=True))
    with pytest.raises(DataError, match="no column 'src'"):
        read_edges(tmp_path / "a.npz", source="src")
    np.savez(tmp_path / "b.npz", source=np.array([0, {}], object), target=[0, 1])
    with pytest.raises(DataError, match="is object"):
        read_edges(tmp_path / "b.npz")


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
@pytest.mark.parametrize("weighted", [False, True])
def test_scipy_in_memory_and_saved(tmp_path: Path, kind: str, weighted: bool) -> None:
    data = [1.5, 0.5, 2.0, 4.0] if weighted else [1, 1, 1, 1]
    matrix = sparse.coo_array((data, (SOURCE, TARGET)), shape=(5, 5)).asformat(kind)
    sparse.save_npz(tmp_path / "m.npz", matrix)
    expected = sorted(zip(SOURCE, TARGET, *([data] if weighted else []), strict=True))
    for edges in (from_scipy(matrix), read_edges(tmp_path / "m.npz"), from_scipy(sparse.csr_matrix(matrix))):
        assert sorted(rows(edges)) == expected
        assert edges.num_agents == 5
    assert read_edges(tmp_path / "m.npz", num_agents=5).num_agents == 5
    with pytest.raises(DataError, match="over 5 agents"):
        read_edges(tmp_path / "m.npz", num_agents=6)


def test_scipy_oddities(tmp_path: Path) -> None:
    with_zero = sparse.coo_array(([1.0, 0.0], ([0, 1], [1, 2])), shape=(3, 3))
    assert rows(from_scipy(with_zero)) == [(0, 1)]
    assert "matrix: 1 stored zeros are no contacts and were left out." in from_scipy(with_zero).report
    assert from_scipy(sparse.eye_array(4, dtype=bool), self_loops="keep").num_edges == 4
    for matrix, words in (
        (sparse.coo_array((2, 3)), "square"),
        (sparse.eye_array(2, dtype=complex), "complex"),
        (sparse.coo_array(([-1.0], ([0], [1])), shape=(2, 2)), "weight=-1"),
    ):
        with pytest.raises(DataError, match=words):
            from_scipy(matrix)
    with pytest.raises(InputError, match="scipy sparse matrix, got ndarray"):
        from_scipy(np.eye(2))
    sparse.save_npz(tmp_path / "d.npz", sparse.eye_array(3, format="dia"))
    with pytest.raises(DataError, match=r"save matrix\.tocsr"):
        read_edges(tmp_path / "d.npz")
    good = {"format": b"csr", "shape": [2, 2], "data": [1, 1], "indices": [0, 1], "indptr": [0, 1, 2]}
    for change in ({"indptr": [0, 2, 1]}, {"indptr": [0, 9, 9]}, {"indptr": [0, 0, 1, 2]}, {"indices": [0, 5]}):
        np.savez(tmp_path / "e.npz", **{**good, **change})
        with pytest.raises(DataError, match=r"e\.npz"):
            read_edges(tmp_path / "e.npz")
    for key in good:
        np.savez(tmp_path / "f.npz", **{k: v for k, v in good.items() if k != key})
        with pytest.raises(DataError, match=r"f\.npz"):
            read_edges(tmp_path / "f.npz")


# --- networkx -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_networkx(kind: type) -> None:
    graph = kind()
    graph.add_nodes_from([3, 2, 1, 0])
    graph.add_edge(2, 1, w=0.5)
    graph.add_edge(3, 0, w=2)
    edges, labels = from_networkx(graph, weight="w")
    assert labels == [0, 1, 2, 3]
    assert {(*sorted(pair[:2]), pair[2]) for pair in rows(edges)} == {(1, 2, 0.5), (0, 3, 2.0)}
    assert edges.directed == graph.is_directed()
    named = nx.relabel_nodes(graph, {0: "a", 1: "d", 2: "c", 3: "b"})
    edges, labels = from_networkx(named)
    assert labels == list(named.nodes)
    assert {frozenset((labels[a], labels[b])) for a, b in rows(edges)} == {frozenset("cd"), frozenset("ab")}


def weighted_triangle(kind: type = nx.Graph) -> nx.Graph:
    graph = kind()
    graph.add_nodes_from([30, 10, 20])
    graph.add_edge(30, 10, weight=0.5, place="home")
    graph.add_edge(10, 20, weight=2.0)
    return graph


def test_networkx_keeps_weights_as_scipy_does() -> None:
    """Issue 16, A5: `Graph.from_networkx` dropped them."""
    graph = weighted_triangle()
    matrix = nx.to_scipy_sparse_array(graph, nodelist=[10, 20, 30])
    made, wanted = Graph.from_networkx(graph), Graph.from_scipy(matrix)
    assert made.weight is not None
    for name in ("in_ptr", "in_idx", "weight"):
        assert torch.equal(getattr(made, name), getattr(wanted, name)), name
    edges, labels = from_networkx(graph)
    assert labels == [10, 20, 30]
    assert "graph: edge attribute 'place' left out; weight='NAME' takes one as weights." in edges.report
    assert Graph.from_networkx(graph, weight=None).weight is None
    nx.set_edge_attributes(graph, 1, "weight")
    assert Graph.from_networkx(graph).weight is None
    assert Graph.from_networkx(graph, weight="weight").weight is not None


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_networkx_numbers_its_nodes_as_documented(kind: type) -> None:
    graph = weighted_triangle(kind)
    for change, expected in (
        (lambda node: node, [10, 20, 30]),
        (np.int64, [10, 20, 30]),  # NumPy's integers are integers
        (str, ["30", "10", "20"]),
        (lambda node: (node, "x"), [(30, "x"), (10, "x"), (20, "x")]),
    ):
        edges, labels = from_networkx(nx.relabel_nodes(graph, {node: change(node) for node in graph}))
        assert labels == expected
        assert edges.directed == graph.is_directed()
        found = {frozenset((labels[a], labels[b])): w for a, b, w in rows(edges)}
        assert found == {frozenset((change(30), change(10))): 0.5, frozenset((change(10), change(20))): 2.0}


def every_way(path: Path) -> dict[str, Callable[[], Graph]]:
    """Three agents and two weighted directed contacts, 0 → 1 and 1 → 2, by every constructor and reader."""
    source, target, weight = [0, 1], [1, 2], [0.5, 2.0]
    matrix = sparse.coo_array((weight, (source, target)), shape=(3, 3))
    digraph = nx.DiGraph()
    digraph.add_nodes_from([2, 1, 0])
    digraph.add_weighted_edges_from(zip(source, target, weight, strict=True))
    write(path / "c.csv", "kind,target,weight,source\nx,1,0.5,0\ny,2,2,1\n")
    write(path / "c.tsv", "source\ttarget\tWeight\n0\t1\t0.5\n1\t2\t2\n")
    write(path / "c.txt", "0 1 0.5\n1 2 2\n")
    pl.DataFrame({"source": source, "target": target, "weight": weight}).write_parquet(path / "c.parquet")
    np.savez(path / "c.npz", source=source, target=target, weight=weight)
    sparse.save_npz(path / "m.npz", matrix.tocsc())
    edges = from_arrays(source, target, 3, weight=weight)
    return {
        "arrays": lambda: Graph.from_edges(source, target, 3, weight=weight),
        "tensors": lambda: Graph.from_edges(*map(torch.tensor, (source, target)), 3, weight=torch.tensor(weight)),
        "edge list": lambda: Graph.from_edges(edges),
        "layers": lambda: Layers({"home": edges})["home"],
        "scipy": lambda: Graph.from_scipy(matrix),
        "networkx": lambda: Graph.from_networkx(digraph),
        "csv": lambda: Graph.from_file(path / "c.csv"),
        "tsv": lambda: Graph.from_file(path / "c.tsv"),
        "txt": lambda: Graph.from_file(path / "c.txt", weight="minutes"),
        "parquet": lambda: Graph.from_file(path / "c.parquet"),
        "npz": lambda: Graph.from_file(path / "c.npz"),
        "matrix": lambda: Graph.from_file(path / "m.npz"),
    }


WAYS = [
    "arrays",
    "tensors",
    "edge list",
    "layers",
    "scipy",
    "networkx",
    "csv",
    "tsv",
    "txt",
    "parquet",
    "npz",
    "matrix",
]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_keeps_weights_direction_and_order(tmp_path: Path, way: str) -> None:
    graph = every_way(tmp_path)[way]()
    assert graph.num_agents == 3
    assert [end.tolist() for end in graph.edges()] == [[0, 1], [1, 2]]
    assert graph.weight is not None
    assert graph.weight.tolist() == [0.5, 2.0]


def test_what_a_file_holds_beside_the_contacts_is_reported(tmp_path: Path) -> None:
    ways = every_way(tmp_path)
    assert any("column 'kind' left out" in line for line in read_edges(tmp_path / "c.csv").report)
    assert any("column 'weight' left out" in line for line in read_edges(tmp_path / "c.npz", weight=None).report)
    assert read_edges(tmp_path / "c.npz", weight=False).weight is None
    assert sorted(ways) == sorted(WAYS)
    with pytest.raises(DataError, match=r"c\.txt: three columns of numbers and no header line; pass weight='weight'"):
        read_edges(tmp_path / "c.txt")
    assert any("column '3' left out" in line for line in read_edges(tmp_path / "c.txt", weight=None).report)
    with pytest.raises(InputError, match="weight=3, expected the name of a column"):
        read_edges(tmp_path / "c.csv", weight=3)


def test_networkx_refusals() -> None:
    graph = nx.Graph([(0, 1, {"w": 1}), (1, 2)])
    with pytest.raises(DataError, match="edge 1, 2 has no attribute 'w'"):
        from_networkx(graph, weight="w")
    with pytest.raises(InputError, match="networkx graph, got list"):
        from_networkx([])
    assert from_networkx(nx.empty_graph(3))[0].num_agents == 3
    parallel = nx.MultiGraph([(0, 1), (0, 1)])
    assert from_networkx(parallel, duplicates="drop")[0].num_edges == 1


# --- hostile input ------------------------------------------------------------------------------------------------


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "none.csv", "does not exist"),
        (tmp_path, "is a folder"),
        (write(tmp_path / "a.xlsx", ""), "unknown suffix '.xlsx'"),
    ):
        with pytest.raises(DataError, match=words):
            read_edges(path)


def seed_files() -> dict[str, bytes]:
    """Small valid files of each kind, to be damaged."""
    parquet, npz, compressed, matrix = (io.BytesIO() for _ in range(4))
    pl.DataFrame({"source": SOURCE, "target": TARGET}).write_parquet(parquet)
    np.savez(npz, source=SOURCE, target=TARGET)
    np.savez_compressed(compressed, source=SOURCE, target=TARGET)
    sparse.save_npz(matrix, sparse.coo_array(([1, 1, 1, 1], (SOURCE, TARGET)), shape=(3, 3)).tocsr())
    text = b"source,target\n0,1\n1,2\n2,0\n"
    streams = {"p.parquet": parquet, "a.npz": npz, "c.npz": compressed, "m.npz": matrix}
    return {"t.csv": text, "s.txt": b"0 1\n1 2\n"} | {name: stream.getvalue() for name, stream in streams.items()}


SEEDS = seed_files()


def only_denizen_errors(path: Path) -> None:
    for weight in (None, "weight"):
        try:
            read_edges(path, weight=weight)
        except DenizenError as error:
            message = str(error)
        else:
            message = path.name
        assert path.name in message


@pytest.mark.parametrize("name", [name for name in SEEDS if name != "p.parquet"])
def test_damaged_files_end_in_denizen_errors(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    path = tmp_path_factory.mktemp("fuzz") / name
    rng = np.random.default_rng(list(name.encode()))
    good = np.frombuffer(SEEDS[name], np.uint8)
    for _ in range(300):
        bad = good.copy()
        for _ in range(int(rng.integers(1, 4))):
            bad[rng.integers(bad.size)] = rng.integers(256)
        only_denizen_errors(
            write(path, bad[: rng.integers(1, bad.size + 1)].tobytes() if rng.random() < 0.3 else bad.tobytes())
        )


def test_truncated_parquet_ends_in_denizen_errors(tmp_path: Path) -> None:
    """Truncated only: on some flipped bits polars 2.1 runs out of memory and aborts the process."""
    for size in range(0, len(SEEDS["p.parquet"]), 7):
        with pytest.raises(DenizenError, match=r"p\.parquet"):
            read_edges(write(tmp_path / "p.parquet", SEEDS["p.parquet"][:size]))


def test_bombs_are_not_unpacked(tmp_path: Path, inside: Any) -> None:
    """Small files that unpack to a lot; the limits are lowered in place of files that fill the memory."""
    inside.unpacks_up_to(1 << 20)
    zeros = np.zeros(1 << 20, np.int32)
    np.savez_compressed(tmp_path / "a.npz", source=zeros, target=zeros)
    sparse.save_npz(tmp_path / "m.npz", sparse.csr_array((zeros, zeros, [0, zeros.size]), shape=(1, 1)))
    pl.DataFrame({"source": zeros, "target": zeros}).write_parquet(tmp_path / "p.parquet")
    for name, words in (("a.npz", "unpacks to"), ("m.npz", "unpacks to"), ("p.parquet", "announces 1048576 rows")):
        with pytest.raises(DataError, match=words):
            read_edges(tmp_path / name)


@pytest.mark.parametrize("suffix", [".csv", ".txt", ".parquet", ".npz"])
@given(content=st.binary(max_size=200))
def test_any_bytes_end_in_denizen_errors(tmp_path_factory: pytest.TempPathFactory, suffix: str, content: bytes) -> None:
    only_denizen_errors(write(tmp_path_factory.getbasetemp() / f"any{suffix}", content))


@given(content=st.text(alphabet='0123 ,;\t\n\r"#.-e+xnaif%', max_size=60))
def test_almost_numbers_end_in_denizen_errors(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    only_denizen_errors(write(tmp_path_factory.getbasetemp() / "almost.csv", content))


@pytest.mark.real
def test_real_network(data_root: Path) -> None:
    """Figures of covid.md, section 1.3."""
    edges = read_edges(data_root / "astoria" / "mobility_networks" / "0.csv", num_agents=37_518)
    assert edges.num_edges == 136_378 - 6
    assert any("6 self-loops dropped" in line for line in edges.report)
    assert any("0 of 136372 pairs" in line for line in edges.report)
    assert np.unique(np.concatenate([edges.source, edges.target])).size == 31_038
