"""Rows of files that are larger than memory, read where a batch asks for them.

.npy files are read by position (`pread`), not mapped: pages of a mapped file count as this process's memory until the
system takes them back, and a worker that walks through 2 GB would hold 2 GB.
"""

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from denizen._arguments import whole
from denizen.errors import DataError, InputError, nearest, need

CACHE = 64 << 20  # bytes of decoded row groups that are kept
GAP = 16 << 10  # bytes that are rather read and thrown away than reached by another call
RUN = 8 << 20  # bytes that one call reads at most


class Rows(list):
    """Samples of a batch, and the batch as it was read; `MappedDataset.collate` takes the latter."""

    def __init__(self, samples: list[Any], batch: Any) -> None:
        super().__init__(samples)
        self.batch = batch


class _Source(Protocol):
    """Columns of one file."""

    def __len__(self) -> int: ...

    def read(self, rows: np.ndarray) -> dict[str, Tensor]: ...


class MappedDataset(Dataset):
    """A dataset of the rows of .npy and Parquet files, for any DataLoader; memory stays that of a few batches.

    ```python
    images = MappedDataset("images.npy")  # samples: a tensor, a row of the first axis
    pairs = MappedDataset({"x": "x.npy", "y": "y.npy"})  # samples: {"x": ..., "y": ...}
    table = MappedDataset("flights.parquet", columns=["delay", "distance"])
    loader = DataLoader(pairs, 256, shuffle=True, num_workers=4, collate_fn=MappedDataset.collate)
    ```

    A batch is read in one go: rows in the order of the file, neighbours together, into one tensor. `collate` hands
    that tensor over as it is; with torch's own collation everything works, too, after another copy.

    Row groups of Parquet are decoded as a whole. The last few are kept, so reading in order, or shuffled within
    windows (`shuffled`), is quick, and fully shuffled reading of a large file is not.
    """

    def __init__(
        self,
        files: str | Path | Mapping[str, str | Path],
        columns: Sequence[str] | None = None,
        cache_bytes: int = CACHE,
    ) -> None:
        """Args:
        files: an .npy file, a .parquet file, or a mapping from names to .npy files of one length.
        columns: of a Parquet file, in this order; None takes all.
        cache_bytes: of decoded row groups to keep, at least one.

        Raises:
            InputError: a file of another kind, lengths that differ, a column that is not there.
            DataError: a file that cannot be read in parts.
        """
        named = dict(files) if isinstance(files, Mapping) else {"": files}
        if not named:
            raise InputError("files is empty: expected a path, or a mapping from names to paths")
        self._bare = not isinstance(files, Mapping)
        paths = {name: Path(path) for name, path in named.items()}
        for path in paths.values():
            if not path.is_file():
                raise InputError(f"{path} is no file")
        if self._bare and paths[""].suffix == ".parquet":
            self._bare = False
            self._sources: list[_Source] = [_Parquet(paths[""], columns, cache_bytes)]
        else:
            if columns is not None:
                raise InputError("columns= chooses from a .parquet file; for .npy files name them: {name: path}")
            self._sources = [_Npy(name, path) for name, path in paths.items()]
        lengths = {str(path): len(source) for path, source in zip(paths.values(), self._sources, strict=False)}
        if len(set(lengths.values())) > 1:
            raise InputError(f"files differ in their number of rows: {lengths}")

    def __len__(self) -> int:
        return len(self._sources[0])

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor | np.ndarray) -> Any:
        """A row, or with a slice or several indices a batch `[rows, …]`."""
        if isinstance(index, slice):
            return self._read(np.arange(len(self), dtype=np.int64)[index])
        if isinstance(index, (Sequence, np.ndarray)) or (isinstance(index, Tensor) and index.dim()):
            return self._read(self._checked(np.asarray(index, dtype=np.int64)))
        return _row(self._read(self._checked(np.asarray([int(index)]))), 0)

    def __getitems__(self, indices: Sequence[int]) -> Rows:
        """The samples of a batch; torch's DataLoader calls this."""
        batch = self._read(self._checked(np.asarray(indices, dtype=np.int64)))
        return Rows([_row(batch, place) for place in range(len(indices))], batch)

    @staticmethod
    def collate(samples: list[Any]) -> Any:
        """For ``collate_fn=``: the batch as it was read; samples of other datasets as torch collates them."""
        return samples.batch if isinstance(samples, Rows) else default_collate(samples)

    def shuffled(self, window: int, generator: torch.Generator | None = None) -> "WindowSampler":
        """A sampler for ``sampler=``: windows of neighbouring rows in random order, and the rows within each, too."""
        return WindowSampler(len(self), window, generator)

    def _checked(self, rows: np.ndarray) -> np.ndarray:
        length = len(self)
        if rows.size and (rows.min() < -length or rows.max() >= length):
            wrong = rows[(rows < -length) | (rows >= length)][0]
            raise IndexError(f"row {wrong} of a dataset with {length} rows")
        return np.where(rows < 0, rows + length, rows)

    def _read(self, rows: np.ndarray) -> Any:
        batch = {name: values for source in self._sources for name, values in source.read(rows).items()}
        return batch[""] if self._bare else batch


class WindowSampler(torch.utils.data.Sampler[int]):
    """Shuffles windows of neighbouring rows, and the rows within each: random enough, and read in large pieces."""

    def __init__(self, length: int, window: int, generator: torch.Generator | None = None) -> None:
        """Args:
        length: number of rows.
        window: rows that are shuffled among themselves, such as two row groups of a Parquet file.
        generator: None draws a seed from torch's own at each pass.
        """
        whole("WindowSampler", "window", window, 1)
        self._length, self._window, self.generator = length, window, generator

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Any:
        generator = self.generator
        if generator is None:
            generator = torch.Generator().manual_seed(int(torch.empty((), dtype=torch.int64).random_()))
        starts = range(0, self._length, self._window)
        for number in torch.randperm(len(starts), generator=generator).tolist():
            rows = min(self._window, self._length - starts[number])
            yield from (starts[number] + torch.randperm(rows, generator=generator)).tolist()


def _row(batch: Any, place: int) -> Any:
    return {name: values[place] for name, values in batch.items()} if isinstance(batch, dict) else batch[place]


# --- .npy -------------------------------------------------------------------------------------------------------------


class _Npy:
    """An .npy file."""

    def __init__(self, name: str, path: Path) -> None:
        self._name, self._path = name, path
        self._file: Any = None
        self._owner = 0  # process that opened it
        try:
            self._open_header()
        except (ValueError, EOFError) as error:
            raise DataError(f"{path} cannot be read as .npy: {error}") from error

    def _open_header(self) -> None:
        with open(self._path, "rb") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
            self._start = file.tell()
        if dtype.hasobject:
            raise DataError(f"{self._path} holds Python objects, which are not loaded; save numbers")
        if not shape:
            raise DataError(f"{self._path} holds a single number; expected an array with a row for each sample")
        if fortran and len(shape) > 1:
            raise DataError(f"{self._path} is in Fortran order; save np.ascontiguousarray(array)")
        try:
            torch.from_numpy(np.empty(0, dtype.newbyteorder("=")))
        except TypeError as error:
            raise DataError(f"{self._path} holds {dtype}, which torch has no dtype for") from error
        self._dtype, self._shape = dtype, tuple(shape)
        self._bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        if os.path.getsize(self._path) < self._start + shape[0] * self._bytes:
            raise DataError(f"{self._path} is cut off: {shape[0]} rows of {self._bytes} bytes do not fit into it")

    def __len__(self) -> int:
        return self._shape[0]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_file": None}

    def read(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Rows in the given order, `[rows, …]`."""
        out = np.empty((len(rows), self._bytes), np.uint8)
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        in_order = bool((rows[1:] >= rows[:-1]).all())
        for first, last in self._runs(ascending):
            low, high = int(ascending[first]), int(ascending[last - 1]) + 1
            if in_order and high - low == last - first:  # one piece of the file is one piece of the batch
                self._fill(out[first:last].reshape(-1).data, low)
                continue
            piece = np.empty((high - low, self._bytes), np.uint8)
            self._fill(piece.reshape(-1).data, low)
            out[order[first:last]] = piece[ascending[first:last] - low]
        values = out.reshape(-1).view(self._dtype).reshape(len(rows), *self._shape[1:])
        return {self._name: torch.from_numpy(values.astype(self._dtype.newbyteorder("="), copy=False))}

    def _runs(self, ascending: np.ndarray) -> list[tuple[int, int]]:
        """Rows that one call reads: near neighbours, not too many."""
        gap, most = max(1, GAP // max(self._bytes, 1)), max(1, RUN // max(self._bytes, 1))
        runs, first = [], 0
        breaks = np.flatnonzero(np.diff(ascending) > gap) + 1
        for last in [*breaks.tolist(), len(ascending)]:
            while first < last:
                stop = first + int(np.searchsorted(ascending[first:last], ascending[first] + most))
                runs.append((first, stop))
                first = stop
        return runs

    def _fill(self, target: memoryview, row: int) -> None:
        if not len(target):
            return
        if self._file is None or self._owner != os.getpid():
            self._file, self._owner = open(self._path, "rb", buffering=0), os.getpid()  # noqa: SIM115 - kept open
        position = self._start + row * self._bytes
        while len(target):
            count = _read_at(self._file, target, position)
            if not count:
                raise DataError(f"{self._path} has become shorter while it was read")
            target, position = target[count:], position + count

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self._file.close()


def _read_at(file: Any, target: memoryview, position: int) -> int:
    """Bytes read; where the system can, without moving the file's own position, which threads share."""
    if hasattr(os, "preadv"):
        return os.preadv(file.fileno(), [target], position)
    with open(file.name, "rb", buffering=0) as own:
        own.seek(position)
        return own.readinto(target)


# --- Parquet ----------------------------------------------------------------------------------------------------------


class _Parquet:
    """A Parquet file; row groups are decoded as a whole, and the last ones kept."""

    def __init__(self, path: Path, columns: Sequence[str] | None, cache_bytes: int) -> None:
        parquet = need("pyarrow.parquet", "tables", "read Parquet files in parts")
        self._path, self._cache_bytes = path, cache_bytes
        self._cache: OrderedDict[int, dict[str, Tensor]] = OrderedDict()
        self._reader: Any = None
        self._owner = 0
        try:
            meta = parquet.read_metadata(path)
        except Exception as error:  # pyarrow raises several types for a damaged file
            raise DataError(f"{path} cannot be read as Parquet: {error}") from error
        there = meta.schema.to_arrow_schema().names
        self._columns = list(there if columns is None else columns)
        for name in self._columns:
            if name not in there:
                raise InputError(f"column {name!r} is not in {path}: {nearest(name, there)}")
        counts = [meta.row_group(number).num_rows for number in range(meta.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        if self._columns and len(self):
            self._group(0)  # types are checked here, not in a worker

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_reader": None, "_cache": OrderedDict()}

    def read(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Rows in the given order, `[rows, …]` for each column."""
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        order = torch.from_numpy(np.argsort(groups, kind="stable"))
        pieces: list[dict[str, Tensor]] = []
        for number in np.unique(groups).tolist():
            within = torch.from_numpy(rows[groups == number] - self._starts[number])
            pieces.append({name: values[within] for name, values in self._group(number).items()})
        if not pieces:
            pieces = [{name: values[:0] for name, values in self._group(0).items()}]
        back = torch.argsort(order)
        return {name: torch.cat([piece[name] for piece in pieces])[back] for name in self._columns}

    def _group(self, number: int) -> dict[str, Tensor]:
        if number in self._cache:
            self._cache.move_to_end(number)
            return self._cache[number]
        if self._reader is None or self._owner != os.getpid():
            self._reader, self._owner = need("pyarrow.parquet", "tables", "read").ParquetFile(self._path), os.getpid()
        table = self._reader.read_row_group(number, columns=self._columns, use_threads=False)
        group = {name: self._tensor(name, table.column(name)) for name in self._columns}
        self._cache[number] = group
        while len(self._cache) > 1 and self._held() > self._cache_bytes:
            self._cache.popitem(last=False)
        return group

    def _held(self) -> int:
        return sum(values.nbytes for group in self._cache.values() for values in group.values())

    def _tensor(self, name: str, column: Any) -> Tensor:
        """A column; lists of one length become an axis."""
        if column.null_count:
            raise DataError(f"{self._path}: column {name!r} has {column.null_count} missing values; fill or drop them")
        values, shape = column.combine_chunks(), [len(column)]
        while hasattr(values.type, "value_type") and hasattr(values, "flatten"):
            flat = values.flatten()
            length, rest = divmod(len(flat), len(values)) if len(values) else (0, 0)
            if rest or (hasattr(values, "value_lengths") and len(values.value_lengths().unique()) > 1):
                raise DataError(f"{self._path}: lists in column {name!r} differ in length; pad them")
            values, shape = flat, [*shape, length]
        try:
            return torch.from_numpy(np.array(values.to_numpy(zero_copy_only=False))).reshape(shape)
        except TypeError as error:
            raise DataError(
                f"{self._path}: column {name!r} is {column.type}; expected numbers; choose with columns="
            ) from error
