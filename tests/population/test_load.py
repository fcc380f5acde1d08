"""Loading: every form of a population, every choice reported, every fault an error that says where."""

import json
import pickle
import random
import shutil
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from denizen.errors import DataError, DenizenError, InputError, MissingExtra, StorageError
from denizen.population import Population, load
from denizen.population import _csv as csv_module

AGE = [0, 1, 2, 0, 1]
MAPPING = {"age": ["U19", "20t29", "65A"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five agents: pickled age, stages with a header, one network, labels."""
    root = tmp_path / "village"
    (root / "mobility_networks").mkdir(parents=True)
    (root / "age.pickle").write_bytes(pickle.dumps(np.array(AGE)))
    (root / "disease_stages.csv").write_text("stages\n" + "0.0e+00\n" * 4 + "1.0e+00\n")
    (root / "mobility_networks" / "0.csv").write_text("0,1\n1,2\n3,3\n")
    (root / "mapping.json").write_text(json.dumps(MAPPING))
    return root


def tree(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    """Hide optional packages."""
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name in missing else found(name, *rest)
    )
    for name in missing:
        monkeypatch.setitem(__import__("sys").modules, name, None)


def test_a_folder(folder):
    before = tree(folder)
    population = load(folder)
    assert (population.name, population.size, population.source) == ("village", 5, str(folder))
    assert population.column("age").dtype == np.uint8
    assert population.column("age").tolist() == AGE
    assert population.column("disease_stages").dtype == np.int8
    assert population.column("disease_stages").tolist() == [0, 0, 0, 0, 1]
    assert population.labels == MAPPING
    source, target = population.networks["0"]
    assert (source.dtype, target.dtype) == (np.int32, np.int32)
    assert (source.tolist(), target.tolist()) == ([0, 1, 3], [1, 2, 3])
    report = "\n".join(population.report)
    for words in ("header line 'stages' skipped", "1 self-loops; dropped", "one way"):
        assert words in report
    assert "5 agents" in population.summary()
    assert tree(folder) == before  # nothing is written beside the data


def test_every_place_that_names_a_folder(folder):
    package = types.ModuleType("village")
    package.__path__ = [str(folder)]
    for place in (folder, str(folder), package, types.SimpleNamespace(__path__=str(folder))):
        assert load(place).size == 5


@pytest.mark.parametrize("place", [3, None, object(), "", "a\0b", types.SimpleNamespace(__path__=[])])
def test_what_is_not_a_place(place):
    with pytest.raises(InputError, match="population"):
        load(place)


@pytest.mark.parametrize(
    "place", ["no/such/folder", "x" * 5000, "synthetic:paris", "synthetic:astoria:x", "synthetic:a:1:2"]
)
def test_places_that_do_not_exist(place):
    with pytest.raises(DenizenError, match=r"exist|form|read"):
        load(place)


def test_names_in_place_of_lists(folder):
    with pytest.raises(InputError, match=r"columns is 'age'.*\['age'\]"):
        load(folder, columns="age")


def test_columns_and_networks_can_be_chosen(folder):
    (folder / "broken.pickle").write_bytes(b"nonsense")
    population = load(folder, columns=["age"], networks=[])
    assert (list(population.columns), population.networks) == (["age"], {})
    with pytest.raises(DataError, match=r"broken\.pickle"):
        load(folder)
    with pytest.raises(DataError, match=r"no network 'work'.*valid: 0"):
        load(folder, columns=["age"], networks=["work"])
    (folder / "broken.pickle").unlink()
    with pytest.raises(DataError, match="no column 'gae'; did you mean 'age'"):
        load(folder, columns=["gae"])


def test_each_file_is_read_once(folder, monkeypatch):
    opened: list[str] = []
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: opened.append(self.name) or read(self))
    load(folder)
    assert sorted(opened) == ["0.csv", "age.pickle", "disease_stages.csv", "mapping.json"]


def test_unequal_lengths_name_both_files(folder):
    (folder / "gender.pickle").write_bytes(pickle.dumps(np.arange(4)))
    with pytest.raises(DataError, match=r"gender\.pickle.*4 rows.*age\.pickle.*5.*targets=\['gender'\]"):
        load(folder)


def test_observed_series_are_targets_only_if_declared(folder):
    (folder / "cases_2020.pkl").write_bytes(pickle.dumps(np.arange(27.0)))
    with pytest.raises(DataError, match="targets"):
        load(folder)
    population = load(folder, targets=["cases_*"])
    assert population.targets["cases_2020"].tolist() == list(range(27))
    assert "cases_2020" not in population.columns
    assert any("27 values read as target" in line for line in population.report)
    with pytest.raises(DataError, match="no numeric target 'deaths'"):
        load(folder, targets=["cases_*", "deaths"])


def test_without_age_the_common_length_counts(folder):
    (folder / "age.pickle").unlink()
    population = load(folder)
    assert population.size == 5
    assert any("no column 'age'" in line for line in population.report)


def test_a_column_in_two_files(folder):
    (folder / "age.csv").write_text("0\n" * 5)
    with pytest.raises(DataError, match=r"two files, age\.csv and age\.pickle"):
        load(folder)


def test_ignored_files_are_reported(folder):
    (folder / "README.md").write_text("x")
    assert any("README.md" in line for line in load(folder).report)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("missing", [(), ("polars",)], ids=["polars", "no polars"])
def test_one_table_with_networks_beside_it(folder, suffix, missing, monkeypatch):
    polars = pytest.importorskip("polars", reason="polars writes the tables of this test")
    table = polars.DataFrame(
        {"age": ["20-29", "65+", "under 19", "20-29", "65+"], "income": [0.5, 1.5, 2, 3, 4], "job": list("caabb")}
    )
    for old in ("age.pickle", "disease_stages.csv"):
        (folder / old).unlink()
    path = folder / f"people.{suffix}"
    table.write_parquet(path) if suffix == "parquet" else table.write_csv(path)
    without(monkeypatch, *missing)
    for place in (path, folder):
        population = load(place)
        assert population.column("age").tolist() == [1, 2, 0, 1, 2]  # codes follow mapping.json, spellings differ
        assert population.labels["age"] == MAPPING["age"]
        assert population.column("income").dtype == np.float32
        assert population.column("job").tolist() == [2, 0, 0, 1, 1]
        assert population.labels["job"] == ["a", "b", "c"]
        assert list(population.networks) == ["0"]


def test_parquet_without_any_reader_names_the_extra(folder, monkeypatch):
    (folder / "people.parquet").write_bytes(b"PAR1")
    without(monkeypatch, "polars", "pyarrow")
    with pytest.raises(MissingExtra, match=r"denizen\[tables\]"):
        load(folder)


@pytest.mark.parametrize(
    "form", ["csv", "header", "named", "index", "parquet", "npz", "crlf", "bom", "quotes", "blanks", "floats"]
)
def test_forms_of_a_network(folder, form):
    path = folder / "mobility_networks" / "0.csv"
    path.unlink()
    text = {
        "csv": "0,1\n4,2\n",
        "header": "a,b\n0,1\n4,2\n",
        "named": "target,source\n1,0\n2,4\n",
        "index": ",source,target\n0,0,1\n1,4,2\n",
        "crlf": "0,1\r\n4,2\r\n",
        "bom": "\ufeff0,1\n4,2",
        "quotes": '"0","1"\n"4","2"\n',
        "blanks": "0, 1\n 4,2\n\n\n",
        "floats": "0.0,1.0\n4e0,2.0\n",
    }
    if form == "parquet":
        polars = pytest.importorskip("polars", reason="polars writes the table of this test")
        polars.DataFrame({"source": [0, 4], "target": [1, 2]}).write_parquet(path.with_suffix(".parquet"))
    elif form == "npz":
        np.savez_compressed(path.with_suffix(".npz"), target=np.array([1, 2]), source=np.array([0, 4]))
    else:
        path.write_text(text[form], newline="")
    source, target = load(folder).networks["0"]
    assert (source.tolist(), target.tolist()) == ([0, 4], [1, 2])


def test_weights(folder):
    (folder / "mobility_networks" / "0.csv").write_text("source,target,weight\n0,1,0.5\n3,3,1\n1,2,2\n")
    population = load(folder)
    source, target, weight = population.edges()
    assert (source.tolist(), target.tolist()) == ([0, 1], [1, 2])
    assert weight.dtype == np.float32
    assert weight.tolist() == [0.5, 2]
    source, target, weight = population.edges(symmetrize=True)
    assert (source.tolist(), target.tolist(), weight.tolist()) == ([0, 1, 1, 2], [1, 2, 0, 1], [0.5, 2, 0.5, 2])


NETWORK_FAULTS = {
    "0,1\n5,0\n": r"line 2 is 5; the population has 5 agents",
    "1,2\n5,1\n": r"count from 1",
    "0,1\n1,-1\n": r"target in line 2 is -1",
    "a,b\n0,1\n0,9\n": r"target in line 3 is 9",
    "0,1\n1.5,2\n": r"source in line 2 is 1\.5; expected a whole number",
    "0,1\nnan,2\n": r"line 2 holds 'nan'",
    "0,1\n,2\n": r"line 2 holds ''",
    "0,1\n1\n": r"line 2 has 1 columns; the first line has 2",
    "0,1\n1,2,3\n": r"line 2 has 3 columns",
    "0,1\n\n1,2\n": r"line 2 is empty",
    "0,1\nx,2\n": r"line 2 holds 'x', not a number",
    "0,1\n1_0,2\n": r"line 2 holds '1_0', not a number",
    "0\n1\n": r"line 1 has 1 columns; expected 2 or 3",
    "": r"empty",
    "\n\n": r"empty",
    "source,target\n": r"empty",
    "0,1,nan\n": r"line 1 holds 'nan'",
    "source,x\n0,1\n": r"expected source, target",
    "0,99999999999999999999999\n": r"64 bits|is 1e\+23",
    '0,"1\n': r"not a readable CSV|holds",
    "0,1\n0,1\0\n": r"0\.csv",
}


@pytest.mark.parametrize("missing", [(), ("polars",)], ids=["polars", "no polars"])
@pytest.mark.parametrize("text", NETWORK_FAULTS)
def test_faulty_networks_name_file_and_line(folder, text, missing, monkeypatch):
    without(monkeypatch, *missing)
    (folder / "mobility_networks" / "0.csv").write_text(text)
    with pytest.raises(DataError, match=NETWORK_FAULTS[text]) as caught:
        load(folder)
    assert "0.csv" in str(caught.value)


COLUMN_FAULTS = {
    "disease_stages.csv": {
        "0\n1\nnan\n0\n0\n": "line 3",
        "0\n1\n\n0\n0\n0": "line 3",
        "0\n1\n0.5\n0\n0\n": "whole numbers",
        "-1\n0\n0\n0\n0\n": "0 to 127",
    },
    "income.csv": {
        "1\n2\n3\n4\n": "4 rows",
        "1\n2\ninf\n4\n5": "line 3",
        "1e300\n2\n3\n4\n5\n": "float32",
        "": "empty",
    },
    "people.csv": {
        "0,1\n" * 5: "no header",
        "a,a\n" + "0,1\n" * 5: "same name",
        "a,b\n0,1\n2\n0,0\n0,0\n0,0": "line 3|missing",
        "a,b\n1,2\n1,NA\n3,3\n3,3\n3,3\n": "words for missing|missing or inf",
        "a,b\n1,2\n1,\n3,3\n3,3\n3,3\n": "missing or inf",
    },
    "mapping.json": {
        "{": "not valid JSON",
        "[1]": "expected an object",
        '{"age": 3}': "not a list",
        "[" * 100_000: "JSON",
        "\udcff": "JSON",
    },
}


@pytest.mark.parametrize("missing", [(), ("polars",)], ids=["polars", "no polars"])
@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in COLUMN_FAULTS.items() for text in texts])
def test_faulty_columns(folder, name, text, missing, monkeypatch):
    without(monkeypatch, *missing)
    (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=COLUMN_FAULTS[name][text]) as caught:
        load(folder)
    assert name in str(caught.value)


def test_an_unknown_string_is_named(folder):
    (folder / "age.pickle").unlink()
    (folder / "age.csv").write_text("age\nU19\nU19\n20t29\n65A\n20t39\n")
    with pytest.raises(DataError, match=r"holds '20t39'.*did you mean '20t29'"):
        load(folder)


def test_a_saved_row_index_is_skipped(folder):
    (folder / "people.csv").write_text(",height\n0,1.5\n1,1.5\n2,1.5\n3,1.5\n4,1.25\n")
    population = load(folder)
    assert population.column("height").tolist() == [1.5, 1.5, 1.5, 1.5, 1.25]
    assert any("row index" in line for line in population.report)


def test_wide_identifiers_become_labels(folder):
    (folder / "tract.csv").write_text("tract\n" + "".join(f"{36047000000000 + k % 2}\n" for k in range(5)))
    population = load(folder)
    assert population.column("tract").tolist() == [0, 1, 0, 1, 0]
    assert population.labels["tract"] == ["36047000000000", "36047000000001"]
    assert any("does not fit in 32 bits" in line for line in population.report)


@given(
    rows=st.lists(
        st.tuples(st.integers(-(10**12), 10**12), st.floats(-1e9, 1e9, allow_nan=False)), min_size=1, max_size=20
    ),
    header=st.booleans(),
    ending=st.sampled_from(["\n", "\r\n"]),
    final=st.booleans(),
)
@settings(max_examples=60)
def test_fast_and_careful_csv_readers_agree(rows, header, ending, final):
    lines = (["a,b"] if header else []) + [f"{a},{b!r}" for a, b in rows]
    data = (ending.join(lines) + (ending if final else "")).encode()
    careful = csv_module._careful(data, "x.csv", ["a", "b"] if header else None, 2)
    for read in (csv_module._with_polars, csv_module._with_numpy):
        fast = read(data, 2, header, np.float64)
        assert fast is not None
        for one, other in zip(fast, careful.columns, strict=True):
            np.testing.assert_array_equal(one, other)
    found = csv_module.numbers(data, "x.csv", (2,))
    np.testing.assert_array_equal(found.columns[1], careful.columns[1])


@pytest.mark.parametrize(
    "name",
    [
        "disease_stages.csv",
        "mobility_networks/0.csv",
        "people.csv",
        "mapping.json",
        "people.parquet",
        "mobility_networks/1.npz",
        "saved.npz",
    ],
)
def test_damaged_files_end_in_a_denizen_error(folder, name, tmp_path):
    polars = pytest.importorskip("polars", reason="polars writes the table of this test")
    (folder / "people.csv").write_text("height,job\n" + "1.5,a\n" * 5)
    polars.DataFrame({"shoe": [1, 2, 3, 4, 5], "team": list("abcab")}).write_parquet(folder / "people.parquet")
    np.savez_compressed(folder / "mobility_networks" / "1.npz", source=np.arange(5), target=np.arange(5)[::-1])
    population = load(folder)
    path = folder / name
    if name == "saved.npz":
        path = tmp_path / name
        population.save(path)
    rng, data = random.Random(name), path.read_bytes()
    junk = b"\x00\xff\n\r,\"'{}[]-.0123456789eEnNaA\xef\xbb\xbf"
    for _ in range(150):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(broken))
            if rng.random() < 0.5:
                broken[place] = rng.choice(junk) if rng.random() < 0.7 else rng.randrange(256)
            elif rng.random() < 0.5:
                broken[place:place] = bytes([rng.choice(junk)])
            else:
                del broken[place : place + rng.randint(1, 8)]
            broken = broken or bytearray(b"0")
        path.write_bytes(broken)
        try:
            loaded = load(path if name == "saved.npz" else folder)
        except DenizenError:
            continue
        assert all(len(values) == loaded.size for values in loaded.columns.values())
        assert all(
            end.min(initial=0) >= 0 and end.max(initial=0) < loaded.size
            for pair in loaded.networks.values()
            for end in pair
        )


def test_save_and_load(folder, tmp_path):
    (folder / "mobility_networks" / "work.csv").write_text("0,1,0.5\n1,2,0.25\n")
    (folder / "cases.csv").write_text("1\n2\n")
    population = load(folder, targets=["cases"])
    path = tmp_path / "village.npz"
    population.save(path)
    again = load(path)
    for part in ("columns", "weights", "targets"):
        one, other = getattr(population, part), getattr(again, part)
        assert list(one) == list(other)
        for name in one:
            assert one[name].dtype == other[name].dtype
            np.testing.assert_array_equal(one[name], other[name])
    for name, pair in population.networks.items():
        np.testing.assert_array_equal(pair, again.networks[name])
    assert (again.name, again.size, again.labels, again.report) == (
        population.name,
        5,
        population.labels,
        population.report,
    )
    assert list(load(path, columns=["age"], networks=["work"]).networks) == ["work"]
    assert load(path, labels={"age": ["a", "b", "c"]}).labels["age"] == ["a", "b", "c"]
    with np.load(path) as plain:
        np.testing.assert_array_equal(plain["columns/age"], AGE)
    bytes_before = path.read_bytes()
    population.save(path)
    assert path.read_bytes() == bytes_before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["village", "village.npz"]


def test_a_failed_save_leaves_what_was_there(folder, tmp_path, monkeypatch):
    population = load(folder)
    path = tmp_path / "village.npz"
    path.write_bytes(b"old")
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StorageError, match="No space left"):
        population.save(path)
    assert path.read_bytes() == b"old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["village", "village.npz"]
    with pytest.raises(StorageError, match="could not be saved"):
        population.save(tmp_path / "no" / "folder.npz")


def npy(shape: str, kind: str = "<i4", data: bytes = b"\0" * 20) -> bytes:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"source.npy": npy("(5,)", "|O")}, "expected numbers"),
        ({"source.npy": npy("(2**40,)")}, "readable npz"),
        ({"source.npy": npy("(1099511627776,)")}, "announces"),
        ({"source.npy": npy("(4,)")}, "does not have"),
        ({"source.npy": npy("(-5,)")}, "announces|readable"),
        ({"source.npy": npy("(5,)"), "target.npy": npy("(3,)", data=b"\0" * 12)}, "lengths"),
        ({"source.npy": npy("(5,)"), "other.npy": npy("(5,)")}, "expected source, target"),
        ({"source.npy": b"nonsense"}, "readable npz"),
        ({}, "expected source, target"),
    ],
)
def test_hostile_npz(folder, members, words):
    with zipfile.ZipFile(folder / "mobility_networks" / "1.npz", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(DataError, match=words):
        load(folder)


def test_a_zip_bomb_is_not_unpacked(folder):
    path = folder / "mobility_networks" / "1.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("source.npy", npy("(5,)"))
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\x01\x02") + 24  # the uncompressed size in the central directory
    data[place : place + 4] = (2**32 - 2).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"unpacks to 4\.0 GiB|1\.npz"):
        load(folder)


def test_a_folder_that_cannot_be_read(folder, monkeypatch):
    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(StorageError, match=r"json could not be read: Permission denied"):
        load(folder)


def test_an_empty_folder(tmp_path):
    with pytest.raises(DataError, match="holds no attribute"):
        load(tmp_path)


def test_arrays_are_writable(folder, tmp_path):
    """torch.from_numpy warns about read-only memory."""
    (folder / "cases.csv").write_text("1\n2\n")
    polars = pytest.importorskip("polars", reason="polars writes the table of this test")
    polars.DataFrame({"shoe": [1, 2, 3, 4, 5], "height": [0.5] * 5}).write_parquet(folder / "people.parquet")
    population = load(folder, targets=["cases"])
    population.save(tmp_path / "x.npz")
    for one in (population, load(tmp_path / "x.npz"), load("synthetic:astoria:200")):
        ends = [end for pair in one.networks.values() for end in pair]
        assert all(array.flags.writeable for array in [*one.columns.values(), *one.targets.values(), *ends])


@pytest.mark.parametrize("missing", [(), ("polars",)], ids=["polars", "pyarrow"])
def test_a_parquet_bomb_is_not_unpacked(folder, missing, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow writes the table of this test")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"x": np.zeros(2_000_000, dtype=np.int8)}), folder / "x.parquet")
    monkeypatch.setattr("denizen.population._tables._ALWAYS_FINE", 0)
    without(monkeypatch, *missing)
    with pytest.raises(DataError, match="announces 2000000 rows"):
        load(folder)


@pytest.mark.real
def test_astoria(data_root):
    population = load(data_root / "astoria")
    assert population.size == 37_518
    counts = {
        "age": [6723, 11573, 5724, 4647, 3910, 4941],
        "gender": [18467, 19051],
        "ethnicity": [27240, 2404, 920, 5503, 1433, 18],
        "disease_stages": [37473, 45],
        "area": [37518],
        "county": [37518],
        "region": [37518],
    }
    for name, expected in counts.items():
        assert np.bincount(population.column(name)).tolist() == expected, name
    assert len(population.labels["soc_code"]) == 923
    assert population.column("soc_code").dtype == np.int16
    assert {name: len(pair[0]) for name, pair in population.networks.items()} == {"0": 136_378, "1": 272_654}
    assert len(population.edges()[0]) == 136_372
    assert len(population.edges(keep_self_loops=True)[0]) == 136_378
    assert len(population.edges(symmetrize=True)[0]) == 2 * 136_372
    groups = ["under 19", "20-29", "30-39", "40-49", "50-64", "65+"]
    group = population.codes_of("age", groups)
    np.testing.assert_array_equal(group, np.array([1, 2, 3, 4, 5, 0])[population.column("age")])


@pytest.mark.real
def test_sample(data_root, tmp_path):
    population = load(data_root / "sample")
    assert population.size == 1000
    assert np.bincount(population.column("disease_stages")).tolist() == [960, 40]
    assert any("header line 'stages' skipped" in line for line in population.report)
    group = population.codes_of("age", ["under 19", "20-29", "30-39", "40-49", "50-64", "65+"])
    assert set(group.tolist()) == {1}
    assert len(population.labels["household"]) == 332
    shutil.copytree(data_root / "sample", tmp_path / "sample")
    (tmp_path / "sample").chmod(0o755)
    mapping = tmp_path / "sample" / "mapping.json"
    mapping.chmod(0o644)
    mapping.write_text("{}")
    bare = load(tmp_path / "sample")
    with pytest.raises(DataError, match="codes without labels"):
        bare.codes_of("age", ["20-29"])
    assert bare.codes_of("age", ["20-29"], order=["20t29"]).max() == 0
    stated = load(tmp_path / "sample", labels={"age": ["20-29"]})
    assert isinstance(stated, Population)
    assert stated.codes_of("age", ["under 19", "20-29"]).min() == 1
