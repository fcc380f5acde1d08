"""Snapshots as Zarr: one array `[replicates, snapshots, …]` for each field.

A chunk that counts is at most replaced, in one piece, by one with more snapshots in it. The manifest says how many
snapshots count, with a digest for each field of each. Only format 3 is opened: format 2 knows a codec that unpickles.
"""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from denizen._atomic import digest, sync, uninterrupted
from denizen.errors import DataError, DenizenError, StorageError
from denizen.run._blocks import CHUNK_BYTES, META, Blocks, create_group
from denizen.run._manifest import Taken
from denizen.run._narrow import Form

FOLDER = "snapshots"
EACH = 512  # snapshots to a chunk at most
# Threads that digest, compress and wait for the disk, each without the interpreter's lock: one alone keeps up with a
# third of a good disk. Small snapshots are gathered until there is a chunk for each thread.
THREADS = 4
WIDTH = 1 << 16  # words that are added up with factors of their own
MIX = 0xBF58476D1CE4E5B9  # odd, of SplitMix64: see `_factors`


class ZarrSnapshots:
    """The snapshots in a run folder, to write to; see `denizen.run._writer.Sink`.

    Small snapshots are gathered and written several to a chunk. What has not been written yet is in memory: a sync that
    failed can be tried again.

    Attributes:
        digests: one text for each snapshot that was written, with a word for each field; of all of them after a sync.
        explain: the message for what the system says; tells what is safe.
    """

    def __init__(
        self,
        folder: Path,
        forms: Mapping[str, Form],
        explain: Callable[[OSError], str],
        digests: tuple[str, ...] = (),
    ) -> None:
        """Args:
        folder: the run folder.
        forms: how each field is stored.
        explain: see the attribute.
        digests: of the snapshots that are there and count.
        """
        self._root, self._forms, self.explain = folder / FOLDER, dict(forms), explain
        self.digests = list(digests)
        self._blocks: list[Blocks] = []
        self._ahead = 1  # chunks that are gathered
        self._first = -1  # of the snapshots that are gathered; -1 for none
        self._gathered: list[np.ndarray] = []  # of each field `[replicates, ahead * each, …]`
        self._count = len(self.digests)  # of snapshots, with those that are only gathered
        self._pool: ThreadPoolExecutor | None = None  # until the next sync, so that no thread is left behind
        self._unnamed: set[Path] = set()  # folders with names in them that may not be on the disk
        self._lent: tuple[tuple[int, int], np.ndarray] | None = None  # the block that was read last

    def write(self, place: int, arrays: list[np.ndarray]) -> None:
        """Gather or write snapshots, not yet safe.

        Raises:
            StorageError: what counts is intact.
        """
        with self._explained(going_on=True):
            unit = self._opened([values[0] for values in arrays])[0].each * self._ahead
            self._lent = None
            self._forget(place)
            while len(arrays[0]):
                some = len(arrays[0]) if unit == 1 else min(len(arrays[0]), unit - place % unit)
                part = [values[:some].swapaxes(0, 1) for values in arrays]
                if unit == 1:
                    self._write_out(place, part)
                else:
                    self._gather(place, unit, part)
                    if (place + some) % unit == 0:
                        self._write_gathered(place + some)
                self._count = place = place + some
                arrays = [values[some:] for values in arrays]

    def _write_gathered(self, stop: int) -> None:
        """Write what is gathered up to a place and not on the disk."""
        start = len(self.digests)
        start = max(self._first, start - start % self._blocks[0].each)
        self._write_out(start, [whole[:, start - self._first : stop - self._first] for whole in self._gathered])

    def _write_out(self, start: int, arrays: list[np.ndarray]) -> None:
        """Write snapshots, each field `[replicates, snapshots, …]`, of which the first is the first of a chunk."""
        each, known, count = self._blocks[0].each, len(self.digests) - start, arrays[0].shape[1]
        size = -(-(count - known) // THREADS)
        calls = [
            functools.partial(_sums, values[:, k : k + size].swapaxes(0, 1))
            for values in arrays
            for k in range(known, count, size)
        ]
        files = [
            call
            for block, values in zip(self._blocks, arrays, strict=True)
            for k in range(0, count, each)
            for call in block.writes((start + k) // each, values[:, k : k + each], self._unnamed)
        ]
        words = list(itertools.chain(*self._together([*calls, *files])[: len(calls)]))
        self.digests += [" ".join(words[k :: count - known]) for k in range(count - known)]

    def _together(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """What calls return that are made at once, by several threads; raises the first error, when all have ended."""
        self._pool = self._pool or ThreadPoolExecutor(THREADS, "denizen-snapshots")
        with uninterrupted():  # none is left behind at work
            made = [self._pool.submit(call) for call in calls]
            wait(made)
        return [one.result() for one in made]

    def sync(self) -> None:
        """Bring what was gathered to the disk, and let readers see all of it."""
        with self._explained():
            if len(self.digests) < self._count:
                self._write_gathered(self._count)
            for folder in filter(Path.is_dir, self._unnamed):  # others were trimmed
                sync(folder)
            self._unnamed.clear()
            for block in self._blocks:
                block.resize(self._count)

    def trim(self, count: int) -> None:
        """Remove all but the first `count`: a chunk that failed or a killed process left them."""
        with self._explained():
            self._lent = None
            self._forget(count)
            for block in self._opened(None):
                block.resize(min(block.length(), count))
                block.remove(-(-count // block.each))

    def _forget(self, count: int) -> None:
        """What is gathered and known of all but the first `count` is void."""
        del self.digests[count:]
        self._count = min(self._count, count)
        if self._first > count:
            self._first = -1

    def read(self, place: int, field: int) -> np.ndarray:
        """A field of a snapshot."""
        with _readable(self._root):
            block = self._opened(None)[field]
            group, within = divmod(place, block.each)
            if 0 <= self._first <= place < self._first + block.each * self._ahead:
                values, within = self._gathered[field], place - self._first
            elif self._lent is not None and self._lent[0] == (field, group):
                values = self._lent[1]
            else:
                values = block.read(group)
                self._lent = (field, group), values
            if place >= len(self.digests):  # only gathered
                return values[:, within]
            return _checked(values[:, within], self.digests[place].split(" ")[field], place, block.path)

    @property
    def nbytes(self) -> int:
        """Of host memory."""
        return sum(values.nbytes for values in self._gathered)

    def _opened(self, arrays: list[np.ndarray] | None) -> list[Blocks]:
        """Where each field goes; made by the first snapshot that is written."""
        if self._blocks:
            return self._blocks
        if self.digests or (self._root / META).exists():
            self._blocks = [Blocks.opened(self._root / name) for name in self._forms]
            if len({block.each for block in self._blocks}) != 1:
                raise DataError(f"{self._root}: its arrays have different numbers of snapshots to a chunk")
        elif arrays is not None:
            each = max(1, min(EACH, CHUNK_BYTES // max(sum(values.nbytes for values in arrays), 1)))
            blocks = [
                Blocks.planned(self._root / name, values.shape, values.dtype, each)
                for name, values in zip(self._forms, arrays, strict=True)
            ]
            for block, form in zip(blocks, self._forms.values(), strict=True):
                block.create({"denizen": dataclasses.asdict(form)} if form.stored != form.dtype else {})
            create_group(self._root)  # last: what failed half-way is made again
            self._blocks = blocks
        if self._blocks:
            group = sum(block.each * block.nbytes for block in self._blocks)
            self._ahead = max(1, min(THREADS, THREADS * CHUNK_BYTES // max(group, 1)))
        return self._blocks

    def _gather(self, place: int, unit: int, arrays: list[np.ndarray]) -> None:
        """Take over snapshots that are gathered together; what comes before them was written earlier."""
        first, within = place - place % unit, place % unit
        if first != self._first:
            self._first = -1
            if not self._gathered:  # the memory stays: the system takes its time to hand out new pages
                self._gathered = [
                    np.zeros((block.shape[0], unit, *block.shape[1:]), block.dtype) for block in self._blocks
                ]
            for whole, block in zip(self._gathered, self._blocks, strict=True):
                for k in range(0, within, block.each):
                    whole[:, k : k + block.each] = block.read((first + k) // block.each)
            self._first = first
        for whole, values in zip(self._gathered, arrays, strict=True):
            whole[:, within : within + values.shape[1]] = values

    @contextlib.contextmanager
    def _explained(self, going_on: bool = False) -> Iterator[None]:
        """Whatever fails while writing is a `StorageError` that says what is safe.

        Threads end with the block, unless it comes to a good end and more is to be written.
        """
        rest = True
        try:
            yield
            rest = not going_on
        except DenizenError:
            raise
        except Exception as error:
            told = error if isinstance(error, OSError) else OSError(f"{type(error).__name__}: {str(error)[:200]}")
            raise StorageError(self.explain(told)) from error
        finally:
            if rest and self._pool is not None:
                self._pool.shutdown()
                self._pool = None


class StoredSnapshots:
    """The snapshots that a manifest names, to read from."""

    def __init__(self, folder: Path, taken: Taken, worlds: int) -> None:
        """Open them.

        Raises:
            DataError: they are missing or have another form.
        """
        self._root, self._taken = folder / FOLDER, taken
        self._lent: tuple[tuple[int, int], np.ndarray] | None = None  # the block that was read last
        with _readable(self._root):
            self._blocks = [Blocks.opened(self._root / name) for name in taken.fields]
            for form, block in zip(taken.forms, self._blocks, strict=True):
                packed = form.bits and block.shape[-1] != form.width
                if block.shape[0] != worlds or block.length() < len(taken.steps) or packed:
                    raise DataError(f"{block.path} does not hold {worlds} replicates × {len(taken.steps)} snapshots")
                if block.dtype.name != form.hosted:
                    raise DataError(f"{block.path} holds {block.dtype}, the manifest says {form.hosted}")

    @property
    def forms(self) -> dict[str, Form]:
        """How each field is stored."""
        return dict(zip(self._taken.fields, self._taken.forms, strict=True))

    @property
    def nbytes(self) -> int:
        """Of host memory."""
        return 0

    def read(self, place: int, field: int) -> np.ndarray:
        """A field of a snapshot.

        Raises:
            DataError: it differs from what was written.
        """
        words, block = self._taken.digests[place].split(" "), self._blocks[field]
        with _readable(self._root):
            group, within = divmod(place, block.each)
            if self._lent is None or self._lent[0] != (field, group):
                self._lent = (field, group), block.read(group)
            return _checked(self._lent[1][:, within], words[field] if field < len(words) else "", place, block.path)

    def verify(self) -> None:
        """Read everything once, a field of a snapshot at a time.

        Raises:
            DataError: something differs from what was written.
        """
        for field in range(len(self._blocks)):
            for place in range(len(self._taken.steps)):
                self.read(place, field)


def _checked(values: np.ndarray, expected: str, place: int, where: Path) -> np.ndarray:
    if (_digest(values) if len(expected) == 32 else _sums(values[None])[0]) != expected:
        raise DataError(f"{where}: snapshot {place} differs from what was written")
    return values


@contextlib.contextmanager
def _readable(where: Path) -> Iterator[None]:
    try:
        yield
    except DenizenError:
        raise
    except Exception as error:  # whatever a damaged store leads to
        raise DataError(f"{where} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


def _sums(values: np.ndarray) -> list[str]:
    """Checksums of snapshots `[snapshots, …]`: 64-bit words, mixed, times odd numbers, added up.

    They tell damage, not malice; no change within a word is missed. Without the mixing, changes of the highest bits of
    an even number of words would be missed: the signs of two numbers. A few calls without the interpreter's lock make
    all of them. A cryptographic hash takes a call for each, between which four threads keep the one that steps from the
    lock (35 % slower on an H200's host), and four times as long as to compress.
    """
    count, size = len(values), values.nbytes // len(values)
    words = max(1, -(-size // 8))
    width = min(words, WIDTH)
    rows = -(-words // width)
    padded = np.zeros((count, rows * width * 8), np.uint8)
    padded[:, :size] = np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(count, size)
    mixed, halves = padded.view(np.uint64), padded.view(np.uint32)
    mixed *= np.uint64(MIX)
    halves[:, ::2] ^= halves[:, 1::2]
    factors = _factors(width + rows)
    sums = mixed.reshape(count, rows, width) @ factors[:width] @ factors[width:]
    form = int(digest(_form(values.dtype, values.shape[1:]).encode())[:16], 16)
    return [f"{one ^ form:016x}" for one in sums.tolist()]


@functools.lru_cache(16)
def _factors(count: int) -> np.ndarray:
    """Odd numbers, as random as SplitMix64 is (Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195)."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)


def _digest(values: np.ndarray) -> str:
    """What older folders hold."""
    whole = np.ascontiguousarray(values)
    return digest(f"{_form(whole.dtype, whole.shape)} {digest(whole.reshape(-1).view(np.uint8).data)}".encode())


@functools.lru_cache
def _form(dtype: np.dtype, shape: tuple[int, ...]) -> str:
    return f"{dtype} {shape}"  # NumPy takes longer to say this than BLAKE to hash 10 KB
