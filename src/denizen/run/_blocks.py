"""Arrays in Zarr's format 3, written a block at a time: atomically, synced, and at a tenth of the cost of Zarr itself.

Only what snapshots need: one layout, one compressor, growth along axis 1. Zarr reads what is written here.
"""

import dataclasses
import functools
import itertools
import json
import math
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from denizen._atomic import TEMPORARY, read_plain, sync, write_atomic
from denizen.errors import DataError, need

META = "zarr.json"
HEADER = 1 << 20  # bytes of a chunk beyond its content, and of metadata, at most
CHUNK_BYTES = 1 << 22  # several threads compress and write the files of a snapshot that is larger
PURPOSE = "store snapshots"
GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}
AXES = ("replicates", "snapshots")


@dataclasses.dataclass(frozen=True)
class Blocks:
    """An array `[replicates, snapshots, …]` in a folder.

    Attributes:
        path: the folder.
        shape: of one snapshot, `[replicates, …]`.
        dtype: of NumPy.
        chunks: of the array: `[rows, snapshots, …]`.
        separator: of a file's name, ``c.row.group.…``; older arrays have a folder for each group, to be synced each.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype
    chunks: tuple[int, ...]
    separator: str = "."

    @classmethod
    def planned(cls, path: Path, shape: tuple[int, ...], dtype: np.dtype, each: int) -> "Blocks":
        """With `each` snapshots to a chunk; one larger than `CHUNK_BYTES` is cut into pieces of equal length."""
        one = max(int(np.prod(shape[1:])) * dtype.itemsize, 1)
        agents = [max(1, -(-size // -(-one // CHUNK_BYTES))) for size in shape[1:2]]
        rows = max(1, min(shape[0], CHUNK_BYTES // (one * each)))
        return cls(path, shape, dtype, (rows, each, *agents, *(max(1, size) for size in shape[2:])))

    @classmethod
    def opened(cls, path: Path) -> "Blocks":
        """An array that was written before.

        Raises:
            DataError: it was written by something else; no other codec is ever run.
        """
        meta = _read(path)
        if meta.get("zarr_format") != 3 or meta.get("node_type") != "array":
            raise DataError(f"{path} is no Zarr array of format 3")
        shape, chunks = tuple(meta["shape"]), tuple(meta["chunk_grid"]["configuration"]["chunk_shape"])
        separator = "/" if meta.get("chunk_key_encoding") == _names("/") else "."
        found = cls(path, (shape[0], *shape[2:]), np.dtype(meta["data_type"]), chunks, separator)
        expected = found._meta(shape[1], meta["attributes"])
        if any(meta.get(key) != expected[key] for key in ("codecs", "chunk_key_encoding", "fill_value")):
            raise DataError(f"{path} was not written by this version of denizen")
        return found

    @property
    def each(self) -> int:
        """Snapshots to a chunk."""
        return self.chunks[1]

    @property
    def nbytes(self) -> int:
        """Of one snapshot."""
        return math.prod(self.shape) * self.dtype.itemsize

    def create(self, attributes: dict[str, Any]) -> None:
        """Write the metadata of an array without snapshots."""
        _make(self.path, self.path.parent.parent)
        write_atomic(self.path / META, json.dumps(self._meta(0, attributes), indent=1).encode())

    def length(self) -> int:
        """Snapshots that readers see."""
        return _read(self.path)["shape"][1]

    def resize(self, count: int) -> None:
        """Set how many snapshots readers see."""
        meta = _read(self.path)
        if meta["shape"][1] != count:
            meta["shape"][1] = count
            write_atomic(self.path / META, json.dumps(meta, indent=1).encode())

    def writes(self, group: int, values: np.ndarray, unnamed: set[Path]) -> list[Callable[[], None]]:
        """Calls that write the first snapshots `[replicates, up to each, …]` of a group, and bring them to the disk.

        Args:
            group: number of the group.
            values: what it holds; only lent, until the calls are done.
            unnamed: gets the folders that must be synced before the snapshots count: new names are in them.

        Returns:
            One call for each file; in any order, or at once by several threads.
        """
        calls = []
        for key, region in self._regions():
            path = self._file(group, key)
            for folder in reversed(path.relative_to(self.path).parents[:-1]):
                if not (self.path / folder).is_dir():
                    unnamed.add((self.path / folder).parent)
                    (self.path / folder).mkdir()
            unnamed.add(path.parent)
            calls.append(functools.partial(self._write, path, values[region]))
        return calls

    def _write(self, path: Path, part: np.ndarray) -> None:
        if part.shape != self.chunks:  # at an edge; the rest is never read
            whole = np.zeros(self.chunks, self.dtype)
            whole[tuple(slice(size) for size in part.shape)] = part
            part = whole
        write_atomic(path, _codec().encode(np.ascontiguousarray(part).reshape(-1)), named=False)

    def read(self, group: int) -> np.ndarray:
        """A group `[replicates, each, …]`, also what readers do not see yet.

        Raises:
            DataError: a file was damaged.
        """
        codec = _codec()
        size = int(np.prod(self.chunks)) * self.dtype.itemsize
        values = np.zeros((self.shape[0], self.each, *self.shape[1:]), self.dtype)
        for key, region in self._regions():
            path, target = self._file(group, key), values[region]
            data = read_plain(path, self.path.parent.parent, size + HEADER)
            # Blosc believes its header (bytes 4 to 8: size decoded, 12 to 16: encoded), so that is compared first.
            if len(data) < 16 or struct.unpack_from("<IxxxxI", data, 4) != (size, len(data)):
                raise DataError(f"{path} of the snapshots was damaged: it is not as long as it says")
            part = np.frombuffer(codec.decode(data), self.dtype).reshape(self.chunks)
            target[...] = part[tuple(slice(size) for size in target.shape)]
        return values

    def remove(self, group: int) -> None:
        """Remove the groups from one on, and what a killed process left half-way."""
        for path in self.path.glob(f".c*{TEMPORARY}"):
            path.unlink()
        flat = self.separator == "."
        for path in list(self.path.glob("c.*.*" if flat else "c/*/*")):
            number = path.name.split(".")[2 if flat else 0]
            if number.isdecimal() and int(number) >= group:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _file(self, group: int, key: tuple[int, ...]) -> Path:
        return self.path / self.separator.join(map(str, ("c", key[0], group, *key[1:])))

    def _regions(self) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Key of each chunk of a group, without that of the group, and what of the group it holds."""
        sizes = (self.chunks[0], *self.chunks[2:])
        counts = [-(-size // chunk) for size, chunk in zip(self.shape, sizes, strict=True)]
        for key in itertools.product(*map(range, counts)):
            row, *rest = (slice(k * chunk, (k + 1) * chunk) for k, chunk in zip(key, sizes, strict=True))
            yield key, (row, slice(None), *rest)

    def _meta(self, count: int, attributes: dict[str, Any]) -> dict[str, Any]:
        size = self.dtype.itemsize
        blosc = {"typesize": size, "cname": "lz4", "clevel": 5, "shuffle": "bitshuffle", "blocksize": 0}
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [self.shape[0], count, *self.shape[1:]],
            "data_type": self.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.chunks)}},
            "chunk_key_encoding": _names(self.separator),
            "fill_value": 0.0 if self.dtype.kind == "f" else False if self.dtype.kind == "b" else 0,
            "codecs": [
                {"name": "bytes", **({"configuration": {"endian": "little"}} if size > 1 else {})},
                {"name": "blosc", "configuration": blosc},
            ],
            "attributes": attributes,
            "dimension_names": [*AXES, *(None for _ in self.shape[1:])],
            "storage_transformers": [],
        }


def _names(separator: str) -> dict[str, Any]:
    return {"name": "default", "configuration": {"separator": separator}}


def create_group(path: Path) -> None:
    """The metadata of a folder of arrays."""
    _make(path, path.parent)
    write_atomic(path / META, json.dumps(GROUP, indent=1).encode())


def _read(path: Path) -> dict[str, Any]:
    return json.loads(read_plain(path / META, path.parent.parent, HEADER))


def _make(folder: Path, root: Path) -> None:
    """Make a folder below `root`, with every name on the way brought to the disk."""
    if not folder.is_dir():
        if folder != root:
            _make(folder.parent, root)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def _codec() -> Any:
    """Bit planes of codes compress well and fast."""
    return need("numcodecs", "storage", PURPOSE).Blosc("lz4", clevel=5, shuffle=2)
