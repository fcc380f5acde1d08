"""`denizen run --events`: rows of events in the run folder, and out of it by `denizen export`."""

import csv

import pytest

from denizen.run import load

SMALL = ["sir", "--agents", "200", "--steps", "8", "--replicates", "2", "--no-compile"]


def test_events_are_kept_resumed_and_exported(denizen, tmp_path):
    assert denizen("run", *SMALL, "--events", "caught", "--out", "r")[0] == 0
    assert denizen("resume", "r", "--steps", "4")[0] == 0
    table = load(tmp_path / "r").events("caught")
    assert table.incidence().shape == (2, 12)
    code, out, _ = denizen("export", "r", "--csv", "--parquet")
    assert code == 0
    assert "r-caught.csv" in out
    with open(tmp_path / "r-caught.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["by"]) for row in rows] == table["by"].tolist()
    assert (tmp_path / "r-caught.parquet").exists()
    code, _, err = denizen("export", "r", "--csv", "--out", "r")
    assert code != 0
    assert "exists already" in err


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ("cough", "did you mean 'caught'"),
        ("caught,", "expected different names with commas between"),
        ("caught,caught", "expected different names with commas between"),
    ],
)
def test_events_that_cannot_be_meant(denizen, events, told):
    code, _, err = denizen("run", *SMALL, "--events", events, "--out", "r")
    assert code != 0
    assert told in err
