"""Files of tables that nobody would write, and some do: told in one line with file, line and value, nothing guessed."""

import re
import shutil
from pathlib import Path

import pytest

from denizen.disease import LifeTable, RateTable
from denizen.errors import DataError, InputError
from denizen.rl import read_metrics
from denizen.space import Mixing, read_edges
from denizen.sweeps import Listed

TABLE = "age,mx\n0,0.1\n1,X\n5,0.2\n"
SQUARE = "1,2,3\n2,X,4\n3,4,5\n"
READERS = {
    "rates": (TABLE, lambda path: RateTable.from_csv(path, by="age").rates),
    "lives": (TABLE, lambda path: LifeTable.from_csv(path, value="mx").hazard),
    "matrix": (SQUARE, lambda path: Mixing.from_file(path, [0, 1, 2]).matrix),
    "sets": (TABLE, lambda path: Listed.from_csv(path).rows),
}
WRITTEN = [
    "",
    "nan",
    "-inf",
    "-1",
    "1e400",
    "1_0",
    "0x1",
    "TRUE",
    '"1,000"',
    "1\u00a0000",
    "5%",
    "\u0663",
    "'1'",
    "1 0",
]
BODIES = {
    "UTF-16": (lambda text: text.encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    "Latin-1": (lambda text: text.encode() + b"\xe4,1,1\n", r"line [45]: byte 0xe4 is not UTF-8 text"),
    "zero bytes": (lambda text: text.encode() + b"\0\0", r"line [45] is no text: it has a byte of zero"),
    "Excel": (lambda text: b"sep=,\n" + text.encode(), "its line 'sep=,' is for Excel; remove this line"),
    "open quote": (lambda text: text.encode() + b'"1,1\n', r"line [45]: unexpected end of data; close each quote"),
}


def _read(reader, path, body):
    path.write_bytes(body)
    return READERS[reader][1](path)


@pytest.mark.parametrize("cell", WRITTEN)
@pytest.mark.parametrize("reader", ["rates", "lives", "matrix"])
def test_cells_that_are_no_number_are_told_by_line(tmp_path, reader, cell):
    said = "line 2, column 2: " if reader == "matrix" else "line 3: "
    with pytest.raises(InputError, match=rf"table\.csv, {said}.*expected a number that is not negative") as told:
        _read(reader, tmp_path / "table.csv", READERS[reader][0].replace("X", cell).encode())
    assert repr(cell.strip('"')) in str(told.value)


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_table_is_told(tmp_path, reader, kind):
    made, message = BODIES[kind]
    with pytest.raises(InputError, match=message) as told:
        _read(reader, tmp_path / "table.csv", made(READERS[reader][0].replace("X", "1")))
    assert "table.csv" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("reader", READERS)
def test_other_ways_to_write_the_same_are_read(tmp_path, reader):
    text = READERS[reader][0].replace("X", "1")
    expected = str(_read(reader, tmp_path / "table.csv", text.encode()))
    for other in (text.replace("\n", "\r\n"), text.replace("\n", "\r"), f"\ufeff{text}", f"\n{text}\n\n"):
        assert str(_read(reader, tmp_path / "table.csv", other.encode())) == expected
    quoted = "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in text.split())
    assert str(_read(reader, tmp_path / "table.csv", quoted.encode())) == expected


@pytest.mark.parametrize("text", ["1,2,3,3\n2,1,4,4\n3,4,5,5\n", "2,1,4\n3,4,5\n", "1,2,\n3,4,\n"])
def test_a_column_of_numbers_is_not_taken_for_names(tmp_path, text):
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(InputError, match=r"rows of \d numbers, expected a square table"):
        Mixing.from_file(tmp_path / "table.csv", [0, 1, 2])


def test_two_columns_of_a_name_are_told(tmp_path):
    for name, read in (("edges.csv", read_edges), ("sets.csv", Listed.from_csv)):
        (tmp_path / name).write_text("source,target,target\n0,1,2\n")
        with pytest.raises(InputError, match=f"{name}: two columns are called 'target'; name each column once"):
            read(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("week,cases\n2020-03-01,1\n2020-03-08,1_0\n", "column 'cases', line 3: '1_0' is not a number"),
        ('week,cases\n2020-03-01,1\n2020-03-08,"1,000"\n', "column 'cases', line 3: '1,000' is not a number"),
        ("week,cases\n2020-03-01,1\n2020-03-08,1,000\n", "line 3: 3 columns, expected 2 as in the header"),
        ("week,cases\n2020-03-01,1\n2020-03-08\n", "line 3: 1 columns, expected 2 as in the header"),
        ("week,cases\n2020-03-01,1\n\n2020-03-08,1\n", "line 3 is empty; remove it"),
        ("week,cases,cases\n2020-03-01,1,2\n", "two columns are called 'cases'; name each column once"),
        ("week,cases\n2020-03-01,1\n2020-02-30,1\n", "column 'week', line 3: '2020-02-30' is not a date"),
        ("week,cases\n2020-03-01,1\n08/03/2020,1\n", "column 'week', line 3: '08/03/2020' is not a date"),
    ],
)
def test_observed_series_are_told_by_line(denizen, text, told):
    Path("cases.csv").write_text(text)
    words = ("--targets", "cases.csv", "--column", "cases", "--date", "week", "--fit", "infect_rate")
    code, out, err = denizen("calibrate", "sir", "--agents", "30", *words)
    assert (code, out) == (2, "")
    assert re.search(rf"^error .*--targets cases\.csv.*{re.escape(told)}", err)
    assert len(err.splitlines()) == 1


def test_an_empty_line_of_one_column_is_a_gap(tmp_path):
    from denizen.app import _observed

    (tmp_path / "cases.csv").write_text("cases\n5\n\n7\n\n")
    found, _, places = _observed.read(tmp_path / "cases.csv", ["cases"], None)
    assert str(found["cases"].tolist()) == "[5.0, nan, 7.0]"
    assert places == ["line 2", "line 3", "line 4"]


STORED = Path(__file__).parents[1] / "data" / "folders_2026_11" / "training_ppo"


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda rows: b"", "holds no row, and 3 updates are saved"),
        (
            lambda rows: b"[]\n" + rows,
            r"line 1: '\[\]' is no row of an update; remove this line, or move the file",
        ),
        (lambda rows: rows.replace(b'"step"', b'"stop"', 1), "line 1: '.*' is no row of an update"),
        (lambda rows: rows[:20] + b"\xff\xfe" + rows[22:], "line 1: '.*' is no row of an update"),
        (lambda rows: b"\0" * 99 + b"\n" + rows, "line 1: '.*' is no row of an update"),
    ],
)
def test_damaged_rows_of_a_training_are_told(tmp_path, damage, told):
    folder = Path(shutil.copytree(STORED, tmp_path / "r"))
    file = folder / "metrics.jsonl"
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    with pytest.raises(DataError, match=told):
        read_metrics(folder)
    file.write_bytes(whole)  # whose last row a kill cut
    assert [row["step"] for row in read_metrics(folder)] == [1, 2, 3]


def test_rows_that_are_no_text_end_a_resume_in_one_line(denizen, tmp_path):
    file = Path(shutil.copytree(STORED, tmp_path / "r")) / "metrics.jsonl"
    file.write_bytes(b"\xff\xfe\n" + file.read_bytes())
    code, out, err = denizen("resume", "r", "--quiet")
    assert (code, out) == (2, "")
    assert "line 1: '" in err
    assert len(err.splitlines()) == 1


def test_a_network_that_no_memory_holds_is_told(denizen):
    code, _, err = denizen("train", "cartpole", "--steps", "8", "--policy", f"hidden={10**20}")
    assert code == 2
    assert f"--policy hidden={10**20}: expected widths with commas between, such as 64,64, up to 1048576" in err
