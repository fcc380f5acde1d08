"""Datasets larger than memory: rows as NumPy and Parquet see them, in any order, in little memory for a large file."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from denizen import tools
from denizen.errors import DataError, InputError


@pytest.fixture(scope="module")
def array(tmp_path_factory):
    values = np.random.default_rng(0).normal(size=(500, 3, 2)).astype(np.float32)
    path = tmp_path_factory.mktemp("npy") / "values.npy"
    np.save(path, values)
    return path, torch.from_numpy(values)


def test_indexing(array):
    path, values = array
    data = tools.MappedDataset(path)
    assert len(data) == 500
    for index in (3, -1, slice(5, 50, 3), slice(None, None, -7), torch.tensor([4, 2]), np.array([1]), [9, 9, 3]):
        want = values[list(range(500))[index]] if isinstance(index, slice) else values[index]
        assert data[index].equal(want)
    assert data[torch.tensor(7)].equal(values[7])
    for wrong in (500, -501, [0, 700]):
        with pytest.raises(IndexError, match="of a dataset with 500 rows"):
            data[wrong]


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<i2", "|b1", "<u1", "<f2", "<c8"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_dtypes_and_versions(tmp_path, dtype, version):
    values = np.arange(24).reshape(6, 4).astype(dtype)
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array(file, values, version=version)
    got = tools.MappedDataset(tmp_path / "a.npy")[[5, 0]]
    assert got.equal(torch.from_numpy(values[[5, 0]].astype(values.dtype.newbyteorder("="))))


def test_shapes(tmp_path):
    for values in (np.arange(5), np.zeros((4, 0)), np.zeros((0, 3)), np.asfortranarray(np.arange(3.0))):
        np.save(tmp_path / "a.npy", values)
        data = tools.MappedDataset(tmp_path / "a.npy")
        assert data[:].equal(torch.from_numpy(values))
        assert data[[]].shape == (0, *values.shape[1:])


@pytest.mark.parametrize("workers", [0, 2])
def test_through_the_loader(array, tmp_path, workers):
    path, values = array
    np.save(tmp_path / "y.npy", np.arange(500))
    data = tools.MappedDataset({"x": path, "y": tmp_path / "y.npy"})
    order = torch.Generator().manual_seed(3)
    loader = DataLoader(
        data, 64, shuffle=True, num_workers=workers, collate_fn=tools.MappedDataset.collate, generator=order
    )
    seen = []
    for batch in tools.PrefetchLoader(loader, "cpu"):
        assert batch["x"].equal(values[batch["y"]])
        seen += batch["y"].tolist()
    assert sorted(seen) == list(range(500))
    plain = next(iter(DataLoader(data, 5)))  # torch's own collation
    assert plain["x"].equal(values[:5])
    whole = DataLoader(data, batch_size=None, sampler=BatchSampler(SequentialSampler(data), 7, False))
    assert next(iter(whole))["y"].tolist() == list(range(7))
    assert tools.MappedDataset.collate([torch.ones(2), torch.ones(2)]).shape == (2, 2)


def test_can_be_sent_to_workers(array):
    data = tools.MappedDataset(array[0])
    first = data[0]  # the file is open by now
    assert pickle.loads(pickle.dumps(data))[0].equal(first)


def parquet(path, rows=1000, group=130):
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = np.random.default_rng(1)
    columns = {
        "id": np.arange(rows),
        "x": generator.normal(size=rows),
        "flag": generator.random(rows) < 0.5,
        "pair": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2.0 * rows)), 2),
        "name": ["a"] * rows,
    }
    columns["list"] = pa.array([[k, k, k] for k in range(rows)])
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return columns


def test_parquet(tmp_path):
    columns = parquet(tmp_path / "t.parquet")
    data = tools.MappedDataset(tmp_path / "t.parquet", ["x", "id", "flag", "pair", "list"])
    assert len(data) == 1000
    for rows in ([3], [999, 0, 129, 130, 131, 5, 5], list(range(100, 400)), []):
        got = data[rows]
        assert list(got) == ["x", "id", "flag", "pair", "list"]
        assert got["id"].tolist() == rows
        assert got["x"].tolist() == columns["x"][rows].tolist()
        assert got["flag"].dtype is torch.bool
        assert got["pair"].tolist() == [[2.0 * k, 2.0 * k + 1] for k in rows]
        assert got["list"].tolist() == [[k, k, k] for k in rows]
    assert data[-1]["id"] == 999
    assert pickle.loads(pickle.dumps(data))[4]["id"] == 4


def test_parquet_keeps_few_groups(tmp_path, monkeypatch):
    parquet(tmp_path / "t.parquet")
    from pyarrow.parquet import ParquetFile

    decoded, real = [], ParquetFile.read_row_group
    monkeypatch.setattr(ParquetFile, "read_row_group", lambda *a, **k: (decoded.append(0), real(*a, **k))[1])
    data = tools.MappedDataset(tmp_path / "t.parquet", ["id"], cache_bytes=2 * 130 * 8)
    del decoded[:]
    for _ in DataLoader(data, 10):
        pass
    assert len(decoded) == 7  # of 8 groups, the first was there
    del decoded[:]
    sampler = data.shuffled(130, torch.Generator().manual_seed(0))
    seen = [row for batch in DataLoader(data, 10, sampler=sampler) for row in batch["id"].tolist()]
    assert sorted(seen) == list(range(1000))
    assert seen != sorted(seen)
    assert len(decoded) <= 9
    assert data._sources[0]._held() <= 2 * 130 * 8
    assert len(sampler) == 1000
    assert list(data.shuffled(10)) != list(data.shuffled(10))


def test_what_cannot_be_read(tmp_path, array):
    parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "objects.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    np.save(tmp_path / "single.npy", np.float32(1))
    np.save(tmp_path / "fortran.npy", np.asfortranarray(np.ones((3, 2))))
    np.save(tmp_path / "text.npy", np.array(["a", "b"]))
    np.save(tmp_path / "short.npy", np.ones(3))
    (tmp_path / "cut.npy").write_bytes(array[0].read_bytes()[:-1])
    (tmp_path / "bad.npy").write_bytes(b"nothing of the kind")
    (tmp_path / "bad.parquet").write_bytes(b"nothing of the kind")
    for files, columns, error, message in (
        ("objects.npy", None, DataError, "holds Python objects"),
        ("single.npy", None, DataError, "holds a single number"),
        ("fortran.npy", None, DataError, r"Fortran order; save np\.ascontiguousarray"),
        ("text.npy", None, DataError, "holds <U1"),
        ("cut.npy", None, DataError, "is cut off"),
        ("bad.npy", None, DataError, r"cannot be read as \.npy"),
        ("bad.parquet", None, DataError, "cannot be read as Parquet"),
        ("t.parquet", ["y"], InputError, r"column 'y' is not in .* valid: flag, id"),
        ("t.parquet", ["name"], DataError, "column 'name' is string; expected numbers"),
        ("absent.npy", None, InputError, "is no file"),
        ("short.npy", ["x"], InputError, r"columns= chooses from a \.parquet file"),
    ):
        with pytest.raises(error, match=message):
            tools.MappedDataset(tmp_path / files, columns)
    with pytest.raises(InputError, match="differ in their number of rows"):
        tools.MappedDataset({"a": array[0], "b": tmp_path / "short.npy"})
    with pytest.raises(InputError, match="files is empty"):
        tools.MappedDataset({})
    with pytest.raises(InputError, match="window=0"):
        tools.MappedDataset(array[0]).shuffled(0)


GROWTH = Path(__file__).with_name("programs") / "growth_of_memory.py"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
@pytest.mark.parametrize(
    ("rows", "workers", "order", "megabytes"),
    [
        (1600, 0, "forward", 100),
        (1600, 2, "shuffle", 100),
        pytest.param(4096, 0, "forward", 300, marks=pytest.mark.slow),
        pytest.param(4096, 2, "forward", 300, marks=pytest.mark.slow),
        pytest.param(4096, 0, "shuffle", 300, marks=pytest.mark.slow),
    ],
)
def test_memory_stays_small(tmp_path, rows, workers, order, megabytes):
    """Rows of 256 KiB: a file of 400 MiB, and one of 1 GiB, in a process of its own."""
    arguments = [sys.executable, GROWTH, str(tmp_path / "big.npy"), str(rows), str(workers), order]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(float(part) < megabytes for part in done.stdout.split()), done.stdout
