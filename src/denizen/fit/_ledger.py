"""The ledger of a calibration: what each launch gave, in the order in which they came.

A search is a function of its seed and of what launches give. So it is not the search that is saved but its launches: to
go on, the search runs again from its beginning and is served from the ledger until that ends.

The file is only ever appended to. An entry is a length (8 bytes, little endian), a checksum (BLAKE2b, 16 bytes), and as
many bytes as the length says, which the checksum is of: a digest of the inputs (16 bytes) and arrays as safetensors. An
entry whose end is missing, as a kill may leave it, is cut off.
"""

import contextlib
import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from denizen.errors import DataError, StorageError

LENGTH, SUM = 8, 16  # bytes of the two parts of an entry's head
HEAD = LENGTH + SUM
SYNC = 1.0  # seconds between the times when entries are brought to the disk; a killed process loses none of them

Arrays = dict[str, np.ndarray]


class Ledger:
    """An open ledger.

    Attributes:
        launches: entries that were served or added so far.
    """

    def __init__(self, file: Path, explain: Callable[[OSError], str]) -> None:
        """Args: file: is made where it is missing; explain: what is safe after an error of the system."""
        self._path, self._explain = file, explain
        self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        self._end = os.fstat(self._descriptor).st_size
        self._at = 0
        self._synced = time.monotonic()
        self.launches = 0

    def recorded(self, what: str, inputs: Iterable[Any], compute: Callable[[], Mapping[str, Any]]) -> Arrays:
        """The next entry, or what `compute` gives, which becomes the next entry.

        Where the search asks for something else than the ledger has next, as another version of a library may make it,
        a warning says so, and the ledger ends there.
        """
        key = _digest([what, *inputs])
        held = self._next()
        if held is not None and held[0] == key:
            self._at, self.launches = held[2], self.launches + 1
            return held[1]
        if held is not None:
            warnings.warn(
                f"{self._path}: launch {self.launches + 1} is not the one that was kept: the search takes another way "
                f"here, as with another version or processor; it goes on from there, and its numbers may differ from "
                f"those of a calibration that was never stopped",
                stacklevel=2,
            )
            self._cut()
        # By name, as they are when they are served: what depends on their order must not tell the two apart.
        found = {name: np.asarray(value) for name, value in sorted(compute().items())}
        self._append(key, found)
        return found

    def close(self) -> None:
        """Bring all entries to the disk."""
        with contextlib.suppress(OSError):
            os.fsync(self._descriptor)
        os.close(self._descriptor)

    def _next(self) -> tuple[bytes, Arrays, int] | None:
        """(digest of inputs, arrays, where the entry ends); None at the end."""
        if self._at >= self._end:
            return None
        head = os.pread(self._descriptor, HEAD, self._at)
        length = int.from_bytes(head[:LENGTH], "little")
        stop = self._at + HEAD + length
        if len(head) < HEAD or stop > self._end:  # a kill while it was written
            self._cut()
            return None
        body = os.pread(self._descriptor, length, self._at + HEAD)
        if length < SUM or hashlib.blake2b(body, digest_size=SUM).digest() != head[LENGTH:]:
            if stop == self._end:  # its last bytes did not reach the disk, as in a power cut
                self._cut()
                return None
            raise DataError(
                f"{self._path}: the entry of launch {self.launches + 1} is damaged; begin a new calibration"
            )
        return body[:SUM], _decode(body[SUM:], self._path), stop

    def _append(self, key: bytes, arrays: Arrays) -> None:
        from safetensors.numpy import save

        body = key + save({name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()})
        data = len(body).to_bytes(LENGTH, "little") + hashlib.blake2b(body, digest_size=SUM).digest() + body
        done = 0
        try:
            while done < len(data):  # one call writes at most 2 GiB
                done += os.pwrite(self._descriptor, memoryview(data)[done:], self._at + done)
            if time.monotonic() - self._synced > SYNC:
                os.fsync(self._descriptor)
                self._synced = time.monotonic()
        except OSError as error:
            self._cut()
            raise StorageError(self._explain(error)) from error
        except BaseException:
            self._cut()
            raise
        self._at = self._end = self._at + len(data)
        self.launches += 1

    def _cut(self) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, self._at)
        self._end = self._at


def count(file: Path) -> int:
    """Entries of a ledger, which may be growing; 0 where there is none."""
    return sum(1 for _ in _heads(file))


def _heads(file: Path) -> Iterator[int]:
    with contextlib.suppress(OSError), open(file, "rb") as opened:
        size, at = os.fstat(opened.fileno()).st_size, 0
        while at + HEAD <= size:
            opened.seek(at)
            at += HEAD + int.from_bytes(opened.read(LENGTH), "little")
            if at <= size:
                yield at


def _digest(parts: Iterable[Any]) -> bytes:
    state = hashlib.blake2b(digest_size=SUM)
    for part in parts:
        if isinstance(part, np.ndarray):
            data = np.ascontiguousarray(part)
            state.update(f"{data.dtype.str} {data.shape} ".encode())
            state.update(data.reshape(-1).view(np.uint8).data)
        else:
            text = repr(part).encode()
            state.update(f"{len(text)} ".encode())
            state.update(text)
    return state.digest()


def _decode(data: bytes, file: Path) -> Arrays:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return dict(sorted(load(data).items()))
    except (SafetensorError, ValueError, KeyError) as error:
        raise DataError(f"{file} cannot be read as safetensors: {str(error)[:200]}") from error
