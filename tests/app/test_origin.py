"""A manifest remembers the file of a model, and a file that has changed is refused."""

import pytest

from denizen.app._target import Origin, origin_of
from denizen.errors import ConfigError, DataError


def test_a_file_is_remembered_and_compared(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("rate = 1\n")
    kept = Origin.of(file, "Mine").settings()
    assert kept["origin"]["file"] == str(file)
    found = origin_of({"seed": 0, **kept}, "runs/a")
    assert found == Origin.of(file, "Mine")
    found.unchanged(Origin.of(file, "Mine"), "runs/a", "dz.run.resume(…)")
    file.write_text("rate = 2\n")
    with pytest.raises(DataError, match=r"mine\.py has changed since runs/a was begun with it.*dz\.run\.resume"):
        found.unchanged(Origin.of(file, "Mine"), "runs/a", "dz.run.resume(…)")
    other = found.__class__(found.file, "Yours", found.digest)
    for now, told in ((None, "a name of the zoo"), (other, r".*mine\.py:Yours")):  # the file is what it was
        with pytest.raises(
            DataError, match=rf"runs/a was begun with .*mine\.py:Mine, not with {told}; .*dz\.run\.resume"
        ):
            found.unchanged(now, "runs/a", "dz.run.resume(…)")
    file.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        Origin.of(file, "Mine")


@pytest.mark.parametrize("held", ["mine.py", {}, {"file": "mine.py", "name": "Mine", "digest": 3}])
def test_a_damaged_origin_is_named(held):
    assert origin_of(None, "runs/a") is origin_of({}, "runs/a") is None
    with pytest.raises(DataError, match=r"runs/a/manifest\.json: settings: origin is"):
        origin_of({"origin": held}, "runs/a")
