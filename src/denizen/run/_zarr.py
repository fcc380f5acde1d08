"""Snapshots as Zarr: one array `[replicates, snapshots, …]` for each field, a chunk never spans two snapshots.

What counts is not touched again; only the arrays' length, a line of metadata, grows. The manifest says how many
snapshots count, with a digest for each field of each. Only format 3 is opened: format 2 knows a codec that unpickles.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from denizen.errors import DataError, StorageError, need
from denizen.run._atomic import digest, sync
from denizen.run._manifest import Taken
from denizen.run._narrow import BITS, Form

FOLDER = "snapshots"
CHUNK_BYTES = 1 << 26
PURPOSE = "store snapshots"


class ZarrSnapshots:
    """The snapshots in a run folder, to write to; see `denizen.run._writer.Sink`.

    Attributes:
        digests: one text for each snapshot, with a word for each field.
        explain: the message for what the system says; tells what is safe.
    """

    nbytes = 0  # of host memory

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
        self._arrays: dict[str, Any] = {}
        self._group: Any = None
        self._unsafe: list[int] = []

    def write(self, place: int, arrays: list[np.ndarray]) -> None:
        """Write a snapshot, not yet safe.

        Raises:
            StorageError: what counts is intact.
        """
        with self._explained():
            words = []
            for name, values in zip(self._forms, arrays, strict=True):
                array = self._array(name, values)
                if array.shape[1] <= place:
                    array.resize((values.shape[0], place + 1, *values.shape[1:]))
                array[:, place] = values
                words.append(_digest(values))
            self._unsafe.append(place)
            self.digests[place:] = [" ".join(words)]

    def sync(self) -> None:
        """Bring what was written to the disk: Zarr leaves that to the system."""
        with self._explained():
            _sync(self._root, self._unsafe)
            self._unsafe = []

    def trim(self, count: int) -> None:
        """Remove all but the first `count`: a chunk that failed or a killed process left them."""
        self._unsafe = [place for place in self._unsafe if place < count]
        with self._explained():
            for name in self._forms:
                array = self._existing(name)
                if array is not None and array.shape[1] > count:
                    array.resize((array.shape[0], count, *array.shape[2:]))
            del self.digests[count:]

    def read(self, place: int, field: int) -> np.ndarray:
        """A field of a snapshot."""
        with _readable(self._root):
            name = list(self._forms)[field]
            return _read(self._existing(name), place, self.digests[place].split(" ")[field], self._root)

    def _existing(self, name: str) -> Any:
        if name not in self._arrays:
            if self._group is None:
                zarr = need("zarr", "storage", PURPOSE)
                self._group = zarr.open_group(self._root, mode="a", zarr_format=3)
            if name in self._group:
                self._arrays[name] = self._group[name]
        return self._arrays.get(name)

    def _array(self, name: str, values: np.ndarray) -> Any:
        array = self._existing(name)
        if array is not None:
            return array
        one = max(values.nbytes // max(values.shape[0], 1), 1)
        agents = [max(1, size if one <= CHUNK_BYTES else size * CHUNK_BYTES // one) for size in values.shape[1:2]]
        rows = max(1, min(values.shape[0], CHUNK_BYTES // one))
        form = self._forms[name]
        self._arrays[name] = self._group.create_array(
            name,
            shape=(values.shape[0], 0, *values.shape[1:]),
            chunks=(rows, 1, *agents, *(max(1, size) for size in values.shape[2:])),
            dtype=values.dtype,
            attributes={"denizen": dataclasses.asdict(form)} if form.stored != form.dtype else {},
        )
        return self._arrays[name]

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Whatever fails while writing is a `StorageError` that says what is safe."""
        try:
            yield
        except StorageError:
            raise
        except Exception as error:
            self._arrays, self._group = {}, None  # they may know lengths that did not reach the disk
            told = error if isinstance(error, OSError) else OSError(f"{type(error).__name__}: {str(error)[:200]}")
            raise StorageError(self.explain(told)) from error


class StoredSnapshots:
    """The snapshots that a manifest names, to read from."""

    def __init__(self, folder: Path, taken: Taken, worlds: int) -> None:
        """Open them.

        Raises:
            DataError: they are missing or have another form.
        """
        zarr = need("zarr", "storage", PURPOSE)
        self._root, self._taken = folder / FOLDER, taken
        with _readable(self._root):
            group = zarr.open_group(self._root, mode="r", zarr_format=3)
            self._arrays = [group[name] for name in taken.fields]
            for name, form, array in zip(taken.fields, taken.forms, self._arrays, strict=True):
                packed = form.stored == BITS and array.shape[-1] != -(-form.size // 8)
                if array.shape[0] != worlds or array.shape[1] < len(taken.steps) or packed:
                    raise DataError(
                        f"{self._root} does not hold {worlds} replicates × {len(taken.steps)} snapshots of each field"
                    )
                if str(array.dtype) != form.hosted:
                    raise DataError(f"{self._root}/{name} holds {array.dtype}, the manifest says {form.hosted}")

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
        words = self._taken.digests[place].split(" ")
        with _readable(self._root):
            return _read(self._arrays[field], place, words[field] if field < len(words) else "", self._root)

    def verify(self) -> None:
        """Read everything once, a field of a snapshot at a time.

        Raises:
            DataError: something differs from what was written.
        """
        for place in range(len(self._taken.steps)):
            for field in range(len(self._arrays)):
                self.read(place, field)


def _read(array: Any, place: int, expected: str, where: Path) -> np.ndarray:
    values = np.asarray(array[:, place])
    if _digest(values) != expected:
        raise DataError(f"{where}: snapshot {place} of {array.basename} differs from what was written")
    return values


@contextlib.contextmanager
def _readable(where: Path) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except ImportError:
        raise
    except Exception as error:  # zarr raises many types for a damaged store
        raise DataError(f"{where} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


def _digest(values: np.ndarray) -> str:
    whole = np.ascontiguousarray(values)
    return digest(f"{whole.dtype} {whole.shape} {digest(whole.reshape(-1).view(np.uint8).data)}".encode())


def _sync(root: Path, places: list[int]) -> None:
    """Bring metadata and the chunks of some snapshots to the disk, and the names of both."""
    for path in (root / "zarr.json", *root.glob("*/zarr.json")):
        sync(path)
        sync(path.parent)
    for row in root.glob("*/c/*"):
        sync(row)
        for chunk in (row / str(place) for place in places):
            if chunk.exists():  # chunks of zeros are not written
                for path in (chunk, *chunk.rglob("*")):
                    sync(path)
