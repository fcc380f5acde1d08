"""Snapshots as Zarr: one array `[replicates, snapshots, …]` for each field.

A chunk that counts is at most replaced, in one piece, by one with more snapshots in it. The manifest says how many
snapshots count, with a digest for each field of each. Only format 3 is opened: format 2 knows a codec that unpickles.
"""

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from denizen.errors import DataError, DenizenError, StorageError
from denizen.run._atomic import digest, sync
from denizen.run._blocks import META, Blocks, create_group
from denizen.run._manifest import Taken
from denizen.run._narrow import BITS, Form

FOLDER = "snapshots"
# Snapshots to a chunk at most, and their bytes: the writer waits for the disk once a chunk.
EACH, GATHERED = 512, 16 << 20
LARGE = 1 << 20  # bytes from which a thread pays


class ZarrSnapshots:
    """The snapshots in a run folder, to write to; see `denizen.run._writer.Sink`.

    Small snapshots are gathered and written several to a chunk. What has not been written yet is in memory: a sync that
    failed can be tried again.

    Attributes:
        digests: one text for each snapshot, with a word for each field.
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
        self._group, self._gathered = -1, []  # the group of snapshots in memory, `[replicates, each, …]` of each field
        self._unsaved = False  # whether it holds some that are not on the disk
        self._unnamed: set[Path] = set()  # folders with names in them that may not be on the disk
        self._lent: tuple[tuple[int, int], np.ndarray] | None = None  # the block that was read last

    def write(self, place: int, arrays: list[np.ndarray]) -> None:
        """Gather or write snapshots, not yet safe.

        Raises:
            StorageError: what counts is intact.
        """
        with self._explained():
            each = self._opened([values[0] for values in arrays])[0].each
            stop = place + len(arrays[0])
            while place < stop:
                some = min(stop, place - place % each + each) - place  # those that lie in one chunk
                part = [values[:some] for values in arrays]
                with self._digesting(part) as words:
                    self._write_some(place, part)
                self.digests[place:] = words
                place, arrays = place + some, [values[some:] for values in arrays]

    @contextlib.contextmanager
    def _digesting(self, arrays: list[np.ndarray]) -> Iterator[list[str]]:
        """The digests of snapshots, complete when the block is done: large ones are made beside it, by a thread."""
        words: list[str] = []

        def make() -> None:
            words.extend(map(" ".join, zip(*(map(_digest, values) for values in arrays), strict=True)))

        if sum(values.nbytes for values in arrays) < LARGE:
            make()
            yield words
            return
        thread = threading.Thread(target=make, name="denizen-digests")
        thread.start()
        try:
            yield words
        finally:
            thread.join()
        assert len(words) == len(arrays[0]), "digested"

    def _write_some(self, place: int, arrays: list[np.ndarray]) -> None:
        """Gather or write snapshots that lie in one chunk."""
        group, within = divmod(place, self._blocks[0].each)
        self._lent = None
        if self._blocks[0].each == 1:
            for block, values in zip(self._blocks, arrays, strict=True):
                block.write(group, values.swapaxes(0, 1), self._unnamed)
            return
        self._enter(group, within)
        end = within + len(arrays[0])
        for whole, values in zip(self._gathered, arrays, strict=True):
            whole[:, within:end] = values.swapaxes(0, 1)
        self._unsaved = True
        if end == self._blocks[0].each:
            self._write_group(end)

    def sync(self) -> None:
        """Bring what was gathered to the disk, and let readers see all of it."""
        with self._explained():
            if self._unsaved:
                self._write_group(len(self.digests) - self._group * self._blocks[0].each)
            for folder in filter(Path.is_dir, self._unnamed):  # others were trimmed
                sync(folder)
            self._unnamed.clear()
            for block in self._blocks:
                block.resize(len(self.digests))

    def trim(self, count: int) -> None:
        """Remove all but the first `count`: a chunk that failed or a killed process left them."""
        with self._explained():
            del self.digests[count:]
            self._lent = None
            for block in self._opened(None):
                if self._group * block.each >= count:
                    self._group, self._unsaved = -1, False
                block.resize(min(block.length(), count))
                block.remove(-(-count // block.each))

    def read(self, place: int, field: int) -> np.ndarray:
        """A field of a snapshot."""
        with _readable(self._root):
            block = self._opened(None)[field]
            group, within = divmod(place, block.each)
            if group == self._group:
                values = self._gathered[field]
            elif self._lent is not None and self._lent[0] == (field, group):
                values = self._lent[1]
            else:
                values = block.read(group)
                self._lent = (field, group), values
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
            each = max(1, min(EACH, GATHERED // max(sum(values.nbytes for values in arrays), 1)))
            blocks = [
                Blocks.planned(self._root / name, values.shape, values.dtype, each)
                for name, values in zip(self._forms, arrays, strict=True)
            ]
            for block, form in zip(blocks, self._forms.values(), strict=True):
                block.create({"denizen": dataclasses.asdict(form)} if form.stored != form.dtype else {})
            create_group(self._root)  # last: what failed half-way is made again
            self._blocks = blocks
        return self._blocks

    def _enter(self, group: int, within: int) -> None:
        """Gather a group from its place `within` on; what comes before was written earlier."""
        if group == self._group:
            return
        self._group = -1
        if not self._gathered:  # the memory stays: the system takes its time to hand out new pages
            self._gathered = [
                np.zeros((block.shape[0], block.each, *block.shape[1:]), block.dtype) for block in self._blocks
            ]
        if within:
            for whole, block in zip(self._gathered, self._blocks, strict=True):
                whole[...] = block.read(group)
        self._group = group

    def _write_group(self, count: int) -> None:
        for block, whole in zip(self._blocks, self._gathered, strict=True):
            block.write(self._group, whole[:, :count], self._unnamed)
        self._unsaved = False

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Whatever fails while writing is a `StorageError` that says what is safe."""
        try:
            yield
        except DenizenError:
            raise
        except Exception as error:
            told = error if isinstance(error, OSError) else OSError(f"{type(error).__name__}: {str(error)[:200]}")
            raise StorageError(self.explain(told)) from error


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
                packed = form.stored == BITS and block.shape[-1] != -(-form.size // 8)
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
    if _digest(values) != expected:
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


def _digest(values: np.ndarray) -> str:
    whole = np.ascontiguousarray(values)
    return digest(f"{_form(whole.dtype, whole.shape)} {digest(whole.reshape(-1).view(np.uint8).data)}".encode())


@functools.lru_cache
def _form(dtype: np.dtype, shape: tuple[int, ...]) -> str:
    return f"{dtype} {shape}"  # NumPy takes longer to say this than BLAKE to hash 10 KB
