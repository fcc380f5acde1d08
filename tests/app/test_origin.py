"""A manifest remembers the file of a model, and a file that has changed is refused."""

import json
import shutil
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("programs") / "city.py"


@pytest.fixture
def begun(denizen, monkeypatch):
    """A folder `r` of a model of a file, in the folder of the command."""
    shutil.copy(PROGRAM, "city.py")
    monkeypatch.setattr(sys, "path", [*sys.path])
    words = ["--agents", "20", "--steps", "1", "--replicates", "1", "--no-compile", "--quiet", "--out", "r"]
    assert denizen("run", "city.py:Epidemic", *words) == (0, "r\n", "")
    yield denizen
    sys.modules.pop("city", None)


def manifest():
    return json.loads(Path("r/manifest.json").read_text())


def resumed(denizen, *words):
    code, out, err = denizen("resume", "r", *words, "--steps", "1", "--quiet")
    return code, out, " ".join(err.split())


def test_a_file_is_remembered_and_compared(begun):
    there = str(Path("city.py").absolute())
    kept = manifest()["settings"]["origin"]
    assert (kept["file"], kept["name"]) == (there, "Epidemic")
    assert resumed(begun, "city.py:Epidemic") == (0, "r\n", "")
    # Of another name the file is what it was.
    for target, told in (("sir", "a name of the zoo"), ("city.py:town", f"{there}:town")):
        code, _, err = resumed(begun, target)
        assert code == 2
        assert f"r was begun with {there}:Epidemic, not with {told}; " in err
        assert "denizen.run.resume('r', model)" in err
    Path("city.py").write_text(PROGRAM.read_text() + "# a word\n")
    code, _, err = resumed(begun, "city.py:Epidemic")
    assert (code, "city.py has changed since r was begun with it" in err) == (2, True)
    assert "denizen.run.resume('r', model)" in err


@pytest.mark.parametrize("held", ["mine.py", {}, {"file": "mine.py", "name": "Mine", "digest": 3}])
def test_a_damaged_origin_is_named(begun, held):
    found = manifest()
    found["settings"]["origin"] = held
    Path("r/manifest.json").write_text(json.dumps(found))
    code, _, err = resumed(begun, "city.py:Epidemic")
    assert (code, "r/manifest.json: settings: origin is" in err) == (2, True)
