"""`denizen ui` and what a run keeps for it."""

import pytest
from safetensors.torch import load_file

import denizen as dz


@pytest.mark.parametrize("names", ["x,y", "lon,lat"])
def test_people_with_places_are_drawn_there(denizen, tmp_path, names):
    town = tmp_path / "town"
    (town / "networks").mkdir(parents=True)
    (town / "people.csv").write_text(f"id,{names}\n0,0.25,1.5\n1,0.5,2.5\n2,0.75,3.5\n")
    (town / "networks" / "home.csv").write_text("source,target\n0,1\n1,0\n1,2\n2,1\n")
    code, _, err = denizen("run", "sir", "--population", town, "--steps", "2", "--snapshots-every", "1", "--out", "out")
    assert code == 0, err
    kept = load_file(tmp_path / "out" / "drawing.safetensors")
    assert kept["x"].tolist() == [0.25, 0.5, 0.75]
    assert kept["y"].tolist() == [1.5, 2.5, 3.5]
    assert kept["edges"].tolist() == [[0, 1], [1, 2]]
    assert dz.run.load("out").manifest.drawing.levels == {"stage": ("susceptible", "infected", "recovered")}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ui"], "there is no folder runs here, as a first run makes it"),
        (["ui", "nowhere"], "there is no folder nowhere"),
        (["ui", "--port", "99999"], "expected a whole number from 0 to 65535"),
        (["ui", ".", "--host", "no.such.host.invalid", "--port", "0"], "cannot listen on no.such.host.invalid:0"),
    ],
)
def test_what_cannot_be_served_is_said(denizen, words, told):
    code, _, err = denizen(*words)
    assert code == 2
    assert told in " ".join(err.split())
