"""Loading: every form of a population, and every choice reported."""

import pickle
import shutil
import types
from pathlib import Path

import numpy as np
import pytest

from denizen.errors import DataError, DenizenError, InputError, MissingExtra
from denizen.population import Population, load

AGE = [0, 1, 2, 0, 1]
MAPPING = {"age": ["U19", "20t29", "65A"]}


def tree(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


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
    with pytest.raises(DenizenError, match=r"exist|form|read|valid: astoria"):
        load(place)


def test_names_in_place_of_lists(folder):
    with pytest.raises(InputError, match=r"load: columns='age', .*\['age'\]"):
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
def test_one_table_with_networks_beside_it(folder, suffix, missing, hide):
    polars = pytest.importorskip("polars", reason="polars writes the tables of this test")
    table = polars.DataFrame(
        {"age": ["20-29", "65+", "under 19", "20-29", "65+"], "income": [0.5, 1.5, 2, 3, 4], "job": list("caabb")}
    )
    for old in ("age.pickle", "disease_stages.csv"):
        (folder / old).unlink()
    path = folder / f"people.{suffix}"
    table.write_parquet(path) if suffix == "parquet" else table.write_csv(path)
    hide(*missing)
    for place in (path, folder):
        population = load(place)
        assert population.column("age").tolist() == [1, 2, 0, 1, 2]  # codes follow mapping.json, spellings differ
        assert population.labels["age"] == MAPPING["age"]
        assert population.column("income").dtype == np.float32
        assert population.column("job").tolist() == [2, 0, 0, 1, 1]
        assert population.labels["job"] == ["a", "b", "c"]
        assert list(population.networks) == ["0"]


def test_parquet_without_any_reader_names_the_extra(folder, hide):
    (folder / "people.parquet").write_bytes(b"PAR1")
    hide("polars", "pyarrow")
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


def one(tmp_path, text, name="people.csv", **options):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(tmp_path / name, **options)


@pytest.mark.parametrize("missing", [(), ("polars",)], ids=["polars", "no polars"])
def test_a_file_of_one_column_keeps_its_header(tmp_path, missing, hide):
    """Issue 16, A5: `age` became `people`."""
    hide(*missing)
    for text in ("age\n0\n1\n2\n", "\ufeffage\r\n0\r\n1\r\n2\r\n", '"age"\n0\n1\n2', " age \n0\n1\n2\n\n"):
        for place in (tmp_path / "people.csv", tmp_path):
            one(tmp_path, text)
            population = load(place)
            assert {name: values.tolist() for name, values in population.columns.items()} == {"age": [0, 1, 2]}
            assert "people.csv: its only column is named 'age', after the header line." in population.report
            assert list(load(place, columns=["age"]).columns) == ["age"]
            with pytest.raises(DataError, match="no column 'agee'; did you mean 'age'"):
                load(place, columns=["agee"])
    assert list(one(tmp_path, "0\n1\n", "age.csv").columns) == ["age"]
    assert list(one(tmp_path, "stages\n0\n1\n", "disease_stages.csv").columns) == ["disease_stages"]


def test_a_value_is_no_header(tmp_path):
    assert one(tmp_path, "baker\ncook\nbaker\n", "job.csv").labels == {"job": ["baker", "cook"]}
    assert one(tmp_path, "job\ncook\nbaker\n", "job.csv").size == 2
    assert list(one(tmp_path, '"a;b;c",d\n1,2\n').columns) == ["a;b;c", "d"]  # separators within quotes are none


@pytest.mark.parametrize("missing", [(), ("polars",)], ids=["polars", "no polars"])
def test_separators_and_decimal_commas(tmp_path, missing, hide):
    hide(*missing)
    for text, name in (
        ("age;height;job\n1;1,5;a\n2;2;b\n", "people.csv"),
        ("age\theight\tjob\n1\t1.5\ta\n2\t2\tb\n", "people.tsv"),
        ('"age";"height";"job"\r\n"1";"1,50";a\r\n2;"2,0";b\r\n', "people.csv"),
        ("age, height, job\n1, 1.5, a\n2, 2, b\n", "people.csv"),
        ("age,height,job,\n1,1.5,a,\n2,2,b,\n", "people.csv"),
        ("age\rheight".replace("\r", ",") + ",job\r1,1.5,a\r2,2,b\r", "PEOPLE.CSV"),
    ):
        population = one(tmp_path, text, name)
        held = {name: values.tolist() for name, values in population.columns.items()}
        assert held == {"age": [1, 2], "height": [1.5, 2.0], "job": [0, 1]}
        assert population.labels == {"job": ["a", "b"]}
        assert any("separated by" in line for line in population.report) == ("," not in text.splitlines()[0])


@pytest.mark.parametrize("missing", [(), ("polars",)], ids=["polars", "no polars"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("age,job\n1,a\n2,\xe9t\xe9\n".encode("latin-1"), r"line 3: byte 0xe9 is not UTF-8 .*Latin-1.*iconv"),
        ("age,job\n1,a\n".encode("utf-16"), "UTF-16 text; save it as UTF-8"),
        ('age,height\n1,"1,5"\n2,"2,5"\n', r"line 2: column 'height' holds '1,5'; write numbers with a decimal"),
        ("age;income\n1;1,250\n2;2,500\n", r"line 2: column 'income' holds '1,250'"),
        ("age;income\n1;1.250,5\n2;2.500,5\n", r"line 2: column 'income' holds '1\.250,5'"),
        ("a;b\n1,5;1.25\n2,5;2.5\n", "'a' is written with decimal commas and column 'b' with points"),
        ("age\n1,5\n2,5\n", "line 2: 2 columns; expected 1"),
        ('"age","height"\n"1",20,1\n"2",30,2\n', "line 2: 3 columns; expected 2"),  # R's row names
        ("age,height\n1,2\n1,2,3\n", "line 3: 3 columns; expected 2"),
        ("age height\n1 2\n3 4\n", "separated by blanks"),
        ("age|height\n1|2\n3|4\n", "separated by bars"),
        ("\nage,height\n1,2\n", "starts with an empty line"),
    ],
)
def test_what_a_table_cannot_mean_is_named(tmp_path, text, words, missing, hide):
    hide(*missing)
    with pytest.raises(DataError, match=words) as caught:
        one(tmp_path, text)
    assert "people.csv" in str(caught.value)


def test_integers_that_no_real_number_tells_apart(tmp_path):
    wide = one(tmp_path, f"age,tract\n1,{2**53}\n1,{2**53 + 1}\n")
    assert (wide.column("tract").tolist(), wide.labels["tract"]) == ([0, 1], [str(2**53), str(2**53 + 1)])
    wider = one(tmp_path, f"age,tract\n1,{10**20}\n1,{10**20 + 1}\n")
    assert (wider.column("tract").tolist(), wider.labels["tract"]) == ([0, 1], [str(10**20), str(10**20 + 1)])


def test_what_is_left_out_is_reported(folder):
    (folder / "people.csv").write_text("height,job\n" + "1.5,a\n" * 5)
    (folder / "mobility_networks" / "0.csv").write_text("day,source,target\n1,0,1\n")
    (folder / "mobility_networks" / "notes.txt").write_text("x")
    (folder / "survey.xlsx").write_text("x")
    (folder / "shoe.pickle").write_text("cannot be read, and need not be")
    report = "\n".join(load(folder, columns=["age", "height"]).report)
    for words in (
        "people.csv: columns left out, as columns= does not name them: job.",
        "Files left out, as columns= names none of their columns: disease_stages.csv, shoe.pickle.",
        "Files that hold no attribute were ignored: survey.xlsx.",
        "Files in mobility_networks that hold no network were ignored: notes.txt.",
        "columns left out: 'day'; a column of weights is called 'weight'.",
    ):
        assert words in report
    for name in ("shoe.pickle", "age.pickle", "disease_stages.csv", "people.csv"):
        (folder / name).unlink()
    with pytest.raises(DataError, match=r"holds no attribute .*ignored: survey\.xlsx"):
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
    with pytest.raises(DataError, match=r"codes without labels.* to mapping\.json"):
        bare.codes_of("age", ["20-29"])
    assert bare.codes_of("age", ["20-29"], order=["20t29"]).max() == 0
    stated = load(tmp_path / "sample", labels={"age": ["20-29"]})
    assert isinstance(stated, Population)
    assert stated.codes_of("age", ["under 19", "20-29"]).min() == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"labels": 3}, r"load: labels=3, expected a list of labels for each column"),
        ({"labels": {"age": 3}}, r"labels\['age'\]=3, expected a list of labels"),
        ({"labels": {"age": "abc"}}, r"labels\['age'\]='abc', expected a list of labels"),  # no three labels
        ({"targets": 3}, "targets=3, expected a list of names"),
        ({"columns": 3}, "columns=3, expected a list of names"),
    ],
)
def test_an_argument_that_is_no_list_is_refused(folder, arguments, words):
    with pytest.raises(InputError, match=words):
        load(folder, **arguments)


def test_a_text_is_no_list_of_labels_and_a_number_no_path(folder):
    population = load(folder)
    with pytest.raises(InputError, match="codes_of: labels='U19', expected a list of labels"):
        population.codes_of("age", "U19")
    with pytest.raises(InputError, match="codes_of: order='U19', expected a list of labels"):
        population.codes_of("age", ["U19"], order="U19")
    with pytest.raises(InputError, match="save: path=3, expected the path of a file"):
        population.save(3)  # pyrefly: ignore
