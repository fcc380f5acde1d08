"""Faulty, damaged and hostile files end in an error that says where; whatever a parser raises."""

import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from denizen.errors import DataError, DenizenError, StorageError
from denizen.population import load

NETWORK_FAULTS = {
    "0,1\n5,0\n": r"line 2: source=5: ids go from 0 to 4",
    "1,2\n5,1\n": r"source=5: .* seem to start at 1: subtract 1",
    "0,1\n1,-1\n": r"line 2: target=-1: ids go from 0 to 4",
    "a,b\n0,1\n0,9\n": r"line 3: target=9: ids go from 0 to 4",
    "0,1\n1.5,2\n": r"line 2: source=1\.5: ids are whole numbers",
    "0,1\nnan,2\n": r"line 2: 'nan' is a missing",
    "0,1\n,2\n": r"line 2: '' is a missing",
    "0,1\n1\n": r"line 2: 1 columns; the first line has 2",
    "0,1\n1,2,3\n": r"line 2: 3 columns",
    "0,1\n\n# x\n1,7\n": r"line 4: target=7",
    "0;1\n0;0,5\n": r"line 2: '0,5' is not a number",
    "0,1\nx,2\n": r"line 2: 'x' is not a number",
    "a,b,day\n0,1,2020-03-01\n": r"line 2: '2020-03-01' is not a number; .* of column 'day', the column of weights; .*",
    "a;b;w\n0;1;1,500\n": r"line 2: '1,500' is not a number",
    "sep=;\n0;1\n": r"line 1: 'sep=;' is for Excel; remove this line",
    "0,1\n1_0,2\n": r"line 2: '1_0' is not a number",
    "0\n1\n": r"line 1: 1 columns; expected 2 or 3 .*separated by",
    "": r"empty",
    "\n\n": r"empty",
    "source,target\n": r"empty",
    "0,1,nan\n": r"line 1: 'nan' is",
    "0,1,2\n0,2,-1\n": r"line 2: weight=-1.*at least 0",
    "source,x\n0,1\n": r"expected source, target",
    "0,99999999999999999999999\n": r"64 bits|line 1: target=1e\+23",
    '0,"1\n': r"not a readable text",
    "0,1\n0,1\0\n": r"0\.csv",
}


@pytest.mark.parametrize("missing", [(), ("polars",)], ids=["polars", "no polars"])
@pytest.mark.parametrize("text", NETWORK_FAULTS)
def test_faulty_networks_name_file_and_line(folder, text, missing, hide):
    hide(*missing)
    (folder / "mobility_networks" / "0.csv").write_text(text)
    with pytest.raises(DataError, match=NETWORK_FAULTS[text]) as caught:
        load(folder)
    assert "0.csv" in str(caught.value)


@pytest.mark.parametrize("missing", [(), ("polars",)], ids=["polars", "no polars"])
@pytest.mark.parametrize("header", ["source;target;weight\n", "a;b;hours\n", ""])
def test_weights_may_have_decimal_commas(folder, header, missing, hide):
    hide(*missing)
    network = folder / "mobility_networks" / "0.csv"
    network.write_text(f"{header}0;1;0,5\n1;2;1,25\n2;3;4\n")
    assert load(folder).weights["0"].tolist() == [0.5, 1.25, 4]


def test_weights_of_names_may_have_decimal_commas(tmp_path):
    (tmp_path / "people.csv").write_text("id;age\nann;1\nben;2\n")
    (tmp_path / "networks").mkdir()
    for header in ("source;target;weight\n", ""):
        (tmp_path / "networks" / "home.csv").write_text(f"{header}ann;ben;0,5\nben;ann;2,5\n")
        assert load(tmp_path).weights["home"].tolist() == [0.5, 2.5]


COLUMN_FAULTS = {
    "disease_stages.csv": {
        "0\n1\nnan\n0\n0\n": "line 3",
        "0\n1\n\n0\n0\n0": "line 3",
        "0\n1\n0.5\n0\n0\n": "whole numbers",
        "-1\n0\n0\n0\n0\n": r"line 1: disease stage -1; .*0 \(susceptible\) to 127",
        "0\n1\nx\n0\n0\n": "line 3: 'x' is not a number",
    },
    "income.csv": {
        "1\n2\n3\n4\n": "4 rows",
        "1\n2\ninf\n4\n5": "line 3",
        "1e300\n2\n3\n4\n5\n": "float32",
        "": "empty",
    },
    "people.csv": {
        "0,1\n" * 5: "no header",
        "sep=;\na;b\n" + "0;1\n" * 5: "line 1: 'sep=;' is for Excel; remove this line",
        "a,a\n" + "0,1\n" * 5: "same name",
        "a,b\n0,1\n2\n0,0\n0,0\n0,0": "line 3|missing",
        "a,b\n1,2\n1,NA\n3,3\n3,3\n3,3\n": "words for missing|missing or inf",
        "a,b\n1,2\n1,\n3,3\n3,3\n3,3\n": "missing or infinite values, the first in line 3;",
        "a;b\n1;2\n1;3\n": "separated by semicolons",
        "a,b\n1,x\n1,\n3,y\n3,y\n3,y\n": "1 missing values, the first in line 3;",
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
def test_faulty_columns(folder, name, text, missing, hide):
    hide(*missing)
    (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=COLUMN_FAULTS[name][text]) as caught:
        load(folder)
    assert name in str(caught.value)


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_an_attribute_that_is_no_file_is_named(folder, kind):
    path = folder / "age.pickle"
    path.unlink()
    path.mkdir() if kind == "folder" else path.symlink_to("nowhere.pickle")
    with pytest.raises(DataError, match=r"age\.pickle is a (folder|link to nowhere\.pickle, which)"):
        load(folder)
    assert "age" not in load(folder, columns=["disease_stages"]).columns


def test_labels_under_a_similar_name_are_named(folder):
    (folder / "mapping.json").write_text('{"Age": ["U19", "20t29", "30t39", "40t49", "50t64", "65A"]}')
    population = load(folder)
    assert any("'Age' names no column" in note and "did you mean 'age'?" in note for note in population.report)
    with pytest.raises(DataError, match=r"without labels.*mapping\.json: 'Age' names no column"):
        population.codes_of("age", ["U19", "65A"])


def test_an_unknown_string_is_named(folder):
    (folder / "age.pickle").unlink()
    (folder / "age.csv").write_text("age\nU19\nU19\n20t29\n65A\n20t39\n")
    with pytest.raises(DataError, match=r"holds '20t39'.*did you mean '20t29'"):
        load(folder)


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


@pytest.mark.parametrize("missing", [(), ("polars",)], ids=["polars", "pyarrow"])
def test_a_parquet_bomb_is_not_unpacked(folder, missing, inside, hide):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow writes the table of this test")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"x": np.zeros(2_000_000, dtype=np.int8)}), folder / "x.parquet")
    inside.unpacks_up_to(1 << 20)
    hide(*missing)
    with pytest.raises(DataError, match="announces 2000000 rows"):
        load(folder)
