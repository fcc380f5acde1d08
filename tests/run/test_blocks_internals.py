"""Arrays written block by block: Zarr reads the same, sizes are bounded, what others wrote or damaged is refused."""

import dataclasses
import json
import shutil
import threading
import time

import numpy as np
import pytest
import zarr

from denizen.errors import DataError, StorageError
from denizen.run import _blocks, _zarr
from denizen.run._blocks import Blocks, create_group
from denizen.run._narrow import Form


def write(made, group, values, unnamed=None):
    for call in reversed(made.writes(group, values, set() if unnamed is None else unnamed)):  # in any order
        call()


@pytest.mark.parametrize("chunk_bytes", [1, 300, 1 << 26])
@pytest.mark.parametrize("each", [1, 4])
@pytest.mark.parametrize("shape", [(3,), (3, 7), (1, 10, 2), (2, 0), (3, 5, 2, 3)])
@pytest.mark.parametrize(("dtype", "separator"), [("int8", "/"), ("float16", "."), ("int64", ".")])
def test_zarr_reads_what_is_written(tmp_path, monkeypatch, chunk_bytes, each, shape, dtype, separator):
    monkeypatch.setattr(_blocks, "CHUNK_BYTES", chunk_bytes)
    values = np.random.default_rng(1).integers(-2, 3, (shape[0], 6, *shape[1:])).astype(dtype)
    create_group(tmp_path / "s")
    made = Blocks.planned(tmp_path / "s" / "a", shape, np.dtype(dtype), each)
    made = dataclasses.replace(made, separator=separator)  # "/": as it was written until November 2026
    made.create({"unit": "1"})
    for group in range(-(-6 // each)):
        for count in range(1, each + 1):  # a group grows
            write(made, group, values[:, group * each :][:, :count])
    assert made.length() == 0
    made.resize(6)
    array = zarr.open_group(tmp_path / "s", mode="r", zarr_format=3)["a"]
    assert (array.dtype, array.attrs["unit"]) == (values.dtype, "1")
    assert array.metadata.dimension_names[:2] == ("replicates", "snapshots")
    assert np.array_equal(array[:], values)
    opened = Blocks.opened(tmp_path / "s" / "a")
    assert opened == made
    assert np.array_equal(opened.read(0)[:, : min(each, 6)], values[:, :each])
    made.remove(1)
    made.resize(each)
    assert np.array_equal(zarr.open_array(tmp_path / "s" / "a", mode="r")[:], values[:, :each])


def test_what_others_wrote_is_refused(tmp_path):
    zarr.create_array(tmp_path / "a", shape=(1, 2, 3), chunks=(1, 1, 3), dtype="int8")
    with pytest.raises(DataError, match="not written by this version"):
        Blocks.opened(tmp_path / "a")
    made = Blocks.planned(tmp_path / "b", (1, 3), np.dtype("int8"), 2)
    made.create({})
    for key, value in (("zarr_format", 2), ("node_type", "group")):
        meta = json.loads((tmp_path / "b" / "zarr.json").read_text()) | {key: value}
        (tmp_path / "b" / "zarr.json").write_text(json.dumps(meta))
        with pytest.raises(DataError, match="no Zarr array of format 3"):
            Blocks.opened(tmp_path / "b")


@pytest.mark.parametrize(
    "change", [lambda d: d[:-1], lambda d: d[:9], lambda d: d + b"x", lambda d: d[:4] + bytes(4) + d[8:]]
)
def test_what_blosc_would_believe_is_compared_first(tmp_path, change):
    made = Blocks.planned(tmp_path / "a", (1, 1000), np.dtype("int8"), 2)
    made.create({})
    write(made, 0, np.random.default_rng(1).integers(0, 9, (1, 2, 1000)).astype("int8"))
    path = tmp_path / "a" / "c.0.0.0"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match="not as long as it says"):
        made.read(0)


def test_folders_with_new_names_are_told(tmp_path):
    made = Blocks.planned(tmp_path / "a", (1, 1000), np.dtype("int8"), 2)
    made.create({})
    values = np.zeros((1, 2, 1000), np.int8)

    def told(made, group):
        write(made, group, values, unnamed := set())
        return {folder.relative_to(tmp_path).as_posix() for folder in unnamed}

    assert told(made, 0) == told(made, 0) == {"a"}
    older = dataclasses.replace(made, separator="/")
    assert told(older, 0) == {"a", "a/c", "a/c/0", "a/c/0/0"}
    assert told(older, 1) == {"a/c/0", "a/c/0/1"}
    assert told(older, 1) == {"a/c/0/1"}
    shutil.rmtree(tmp_path / "a")
    for gone in (made, older):
        with pytest.raises(FileNotFoundError):  # a vanished folder is not made anew
            write(gone, 2, values)


def test_what_a_killed_process_left_is_removed(tmp_path):
    made = Blocks.planned(tmp_path / "a", (1, 1000), np.dtype("int8"), 2)
    made.create({})
    for group in range(12):
        write(made, group, np.zeros((1, 2, 1000), np.int8))
    (tmp_path / "a" / ".c.0.3.0.77.tmp").write_bytes(b"half")
    made.remove(2)
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"zarr.json", "c.0.0.0", "c.0.1.0"}


def test_names_are_on_the_disk_before_a_sync_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(_zarr, "EACH", 2)
    synced = []
    monkeypatch.setattr(_zarr, "sync", synced.append)
    sink = _zarr.ZarrSnapshots(tmp_path, {"a": Form("int8", "int8")}, str)
    sink.write(0, [np.zeros((5, 1, 100), np.int8)])
    assert not synced
    sink.sync()
    assert synced == [tmp_path / "snapshots" / "a"]
    del synced[:]
    sink.sync()
    assert not synced
    sink.write(5, [np.zeros((1, 1, 100), np.int8)])
    sink.trim(4)
    sink.sync()


@pytest.mark.parametrize("each", [1, 3])
def test_digests_are_those_of_each_snapshot_alone(tmp_path, monkeypatch, each):
    monkeypatch.setattr(_zarr, "EACH", each)
    values = np.random.default_rng(1).integers(0, 9, (7, 2, 100)).astype(np.int8)
    sink = _zarr.ZarrSnapshots(tmp_path, {"a": Form("int8", "int8")}, str)
    sink.write(0, [values[:2]])
    sink.write(2, [values[2:]])
    sink.sync()
    assert sink.digests == [_zarr._sums(one[None])[0] for one in values]
    with monkeypatch.context() as patched:
        patched.setattr(Blocks, "_write", lambda *args: 1 / 0)
        with pytest.raises(StorageError, match="ZeroDivisionError"):
            sink.write(7, [np.concatenate([values, values])])
    assert not any(thread.name.startswith("denizen-snapshots") for thread in threading.enumerate())
    assert len(sink.digests) == 7
    sink.write(7, [values])
    assert all(np.array_equal(sink.read(place, 0), values[place % 7]) for place in range(14))
    sink.sync()
    assert not any(thread.name.startswith("denizen-snapshots") for thread in threading.enumerate())
    assert sink.digests == [_zarr._sums(one[None])[0] for one in values] * 2


@pytest.mark.parametrize("width", [2, 1 << 16])
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
def test_changed_signs_of_many_numbers_are_not_missed(monkeypatch, dtype, width):
    monkeypatch.setattr(_zarr, "WIDTH", width)
    bits = np.indices((2,) * 12).reshape(12, -1).T  # every choice of signs
    signs = (bits << 7).astype(np.uint8).view("int8") if dtype == "int8" else (1 - 2 * bits).astype(dtype)
    signs = np.repeat(signs, 3, axis=1) if dtype == "float16" else signs
    assert len(set(_zarr._sums(signs))) == len(signs)


@pytest.mark.parametrize("shape", [(2, 0), (1, 3), (2, 37), (5,), (1, 700, 3)])
@pytest.mark.parametrize("dtype", ["int8", "int16", "float32", "bool"])
def test_no_changed_byte_is_missed(monkeypatch, shape, dtype):
    monkeypatch.setattr(_zarr, "WIDTH", 16)
    random = np.random.default_rng(2)
    values = random.integers(0, 2, (4, *shape)).astype(dtype)
    sums = _zarr._sums(values)
    assert sums == [_zarr._sums(one[None])[0] for one in values]
    assert all(len(one) == 16 for one in sums)
    assert len({_zarr._sums(values.view("int8") if dtype == "bool" else values.astype("int64"))[0], sums[0]}) == 2
    for _ in range(50 if values.size else 0):
        changed = values.copy()
        place = int(random.integers(changed.nbytes))
        changed.reshape(-1).view(np.uint8)[place] ^= 1 if dtype == "bool" else 1 << random.integers(8)
        hit = place // values[0].nbytes
        assert [a == b for a, b in zip(_zarr._sums(changed), sums, strict=True)] == [k != hit for k in range(4)]
    if values[0].size > 9:
        swapped = np.flip(values[0][..., :, :] if values.ndim > 3 else values[0], axis=-1)
        assert np.array_equal(swapped, values[0]) or _zarr._sums(swapped[None])[0] != sums[0]


def test_nothing_is_written_any_more_when_an_error_is_told(tmp_path, monkeypatch):
    """Arrays are only lent, and a second try must not meet the first one."""
    begun, ended, whole = threading.Barrier(2, timeout=120), [], _blocks.write_atomic

    def one_fails(path, data, named=True):
        if path.name == "c.0.0.0":
            begun.wait()
            raise OSError(28, "No space left on device")
        if path.name == "c.0.1.0":
            begun.wait()  # at work when the other one fails
            time.sleep(0.05)
        whole(path, data, named)
        ended.append(path.name)

    monkeypatch.setattr(_zarr, "EACH", 1)
    sink = _zarr.ZarrSnapshots(tmp_path, {"a": Form("int8", "int8")}, str)
    values = np.arange(4 * 6, dtype=np.int8).reshape(4, 1, 6)
    with monkeypatch.context() as patched:
        patched.setattr(
            _blocks,
            "write_atomic",
            lambda path, data, named=True: (one_fails if named is False else whole)(path, data, named),
        )
        with pytest.raises(StorageError, match="No space left"):
            sink.write(0, [values])
        assert sorted(ended) == ["c.0.1.0", "c.0.2.0", "c.0.3.0"]
    sink.write(0, [values])
    sink.sync()
    assert np.array_equal(zarr.open(tmp_path / "snapshots", mode="r")["a"][0], values[:, 0])


@pytest.mark.parametrize(
    ("each", "threads", "chunk_bytes"), [(1, 1, 1 << 20), (3, 1, 1 << 20), (3, 4, 1 << 20), (5, 4, 70), (9, 2, 3)]
)
def test_any_order_of_writes_syncs_cuts_and_new_starts(tmp_path, monkeypatch, each, threads, chunk_bytes):
    """The sink against a list: what is read, and what Zarr reads after a sync."""
    for name, value in {"EACH": each, "THREADS": threads, "CHUNK_BYTES": chunk_bytes}.items():
        monkeypatch.setattr(_zarr, name, value)
    monkeypatch.setattr(_blocks, "CHUNK_BYTES", chunk_bytes)
    if each == 3:  # as it was written until November 2026
        planned = Blocks.planned
        monkeypatch.setattr(Blocks, "planned", lambda *plan: dataclasses.replace(planned(*plan), separator="/"))
    random, forms = np.random.default_rng(each), {"a": Form("int8", "int8"), "b": Form("int16", "int16")}
    sink, expected, safe = _zarr.ZarrSnapshots(tmp_path, forms, str), [], 0
    for _ in range(120):
        what = random.choice(["write", "write", "write", "sync", "trim", "again"])
        if what == "write":
            place, count = random.integers(safe, len(expected) + 1), random.integers(1, 12)
            new = [
                random.integers(-9, 9, (count, 2, 7)).astype(np.int8),
                random.integers(-9, 9, (count, 2)).astype(np.int16),
            ]
            sink.write(int(place), new)
            expected[place:] = zip(*new, strict=True)
        elif what == "trim":
            safe = int(random.integers(0, len(expected) + 1))
            sink.trim(safe)
            del expected[safe:]
        elif expected:
            sink.sync()
            safe = len(expected)
            stored = zarr.open_group(tmp_path / "snapshots", mode="r")
            for field, name in enumerate(forms):
                assert np.array_equal(stored[name][:], np.stack([one[field] for one in expected], axis=1))
            if what == "again":
                sink = _zarr.ZarrSnapshots(tmp_path, forms, str, tuple(sink.digests))
        for place in random.integers(0, len(expected), 3) if expected else ():
            assert all(np.array_equal(sink.read(int(place), field), expected[place][field]) for field in range(2))


def test_a_disk_that_is_full_when_arrays_are_made(tmp_path, monkeypatch):
    written, whole = [], _blocks.write_atomic

    def full(path, data, named=True):
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(path)
        whole(path, data, named)

    sink = _zarr.ZarrSnapshots(tmp_path, {name: Form("int8", "int8") for name in "abc"}, str)
    values = [np.full((1, 2, 3), k, np.int8) for k in range(3)]
    with monkeypatch.context() as patched:
        patched.setattr(_blocks, "write_atomic", full)
        with pytest.raises(StorageError, match="No space left"):
            sink.write(0, values)
    sink.trim(0)
    sink.write(0, values)
    sink.sync()
    assert all(np.array_equal(sink.read(0, k), values[k][0]) for k in range(3))
    assert np.array_equal(zarr.open(tmp_path / "snapshots", mode="r")["c"][:, 0], values[2][0])


def test_older_folders_hold_cryptographic_digests(tmp_path):
    sink = _zarr.ZarrSnapshots(tmp_path, {"a": Form("int8", "int8")}, str)
    values = np.arange(6, dtype=np.int8).reshape(2, 1, 3)
    sink.write(0, [values])
    sink.sync()
    older = [_zarr._digest(one) for one in values]
    opened = _zarr.ZarrSnapshots(tmp_path, {"a": Form("int8", "int8")}, str, (older[0], older[0]))
    assert np.array_equal(opened.read(0, 0), values[0])
    with pytest.raises(DataError, match="snapshot 1 differs"):
        opened.read(1, 0)
