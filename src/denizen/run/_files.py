"""Files of a run folder that the manifest lists with their checksums."""

from pathlib import Path
from typing import Any

from denizen.errors import DataError
from denizen.run._atomic import digest, write_atomic
from denizen.run._manifest import Part


class Entries(dict[str, Any]):
    """A manifest that was read: an entry that it lacks is told as such."""

    def __init__(self, entries: dict[str, Any], file: Path) -> None:
        super().__init__(entries)
        self._file = file

    def __missing__(self, name: str) -> Any:
        raise DataError(f"{self._file}: entry {name!r} is missing; the file was damaged, or something else wrote it")


def write(folder: Path, file: str, first: int, last: int, data: bytes) -> Part:
    """Write a file of a run folder, atomically; returns its entry for the manifest."""
    write_atomic(folder / file, data)
    return Part(file, first, last, len(data), digest(data))


def content(folder: Path, part: Part) -> bytes:
    """The content of a file that a manifest names.

    Raises:
        DataError: it is missing or differs from what was written.
    """
    path = folder / part.file
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{path} leads out of the run folder")
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) != part.size or digest(data) != part.digest:
        raise DataError(
            f"{path} differs from what was written ({len(data)} bytes, expected {part.size}); it was damaged or changed"
        )
    return data
