"""The column store: what is saved comes back, atomically, as arrays that torch can use."""

import zipfile

import numpy as np
import pytest

from denizen.errors import DataError, StorageError
from denizen.population import load


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
    for wrong in ({"columns": ["work"]}, {"networks": ["age"]}, {"labels": {"work": ["a"]}}, {"targets": ["deaths"]}):
        with pytest.raises(DataError, match=r"has no (column|network|numeric target)"):
            load(path, **wrong)
    with np.load(path) as plain:
        np.testing.assert_array_equal(plain["columns/age"], population.column("age"))
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


@pytest.mark.parametrize(
    ("member", "values", "words"),
    [
        ("columns/income", np.array([0, 1, np.nan, 3, 4], dtype=np.float32), "missing or infinite"),
        ("columns/age", np.zeros(4, dtype=np.uint8), "of length 4; expected 5"),
        ("columns/age", np.zeros(5), "float64"),
        ("networks/0/source", np.array([0, 1, 5], dtype=np.int32), "ids outside 0..4"),
        ("networks/0/source", np.array([0, 1], dtype=np.int32), "incomplete"),
        ("networks/0/target", np.array([0, 1, 2]), "expected int32"),
        ("weights/0", np.zeros(2, dtype=np.float32), "do not fit"),
        ("other/thing", np.zeros(2, dtype=np.float32), "does not belong"),
    ],
)
def test_a_store_that_was_tampered_with(folder, tmp_path, member, values, words):
    path, changed = tmp_path / "village.npz", tmp_path / "changed.npz"
    load(folder).save(path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            if name != f"{member}.npy":
                new.writestr(name, old.read(name))
        with new.open(f"{member}.npy", "w") as file:
            np.lib.format.write_array(file, values)
    with pytest.raises(DataError, match=words):
        load(changed)


@pytest.mark.parametrize("manifest", ["{", "[]", "{}", '{"format": "denizen-population/9"}', None])
def test_a_store_without_a_sound_manifest(tmp_path, manifest):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        if manifest is not None:
            archive.writestr("manifest.json", manifest)
    with pytest.raises(DataError, match=r"x\.npz"):
        load(path)
