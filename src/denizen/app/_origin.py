"""The file that a model or a world was taken from: kept in the manifest, and compared before a run goes on.

A manifest has one place for it, whatever its kind: `settings["origin"]`, where the model came from a file.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from denizen._atomic import digest
from denizen.errors import ConfigError, DataError

KEY = "origin"  # in a manifest's settings


@dataclasses.dataclass(frozen=True)
class Origin:
    """A file of the user's, as it was when a run began.

    Attributes:
        file: absolute path.
        name: what was taken from it.
        digest: BLAKE2b of its content.
    """

    file: str
    name: str
    digest: str

    @classmethod
    def of(cls, file: Path | str, name: str) -> "Origin":
        """A file as it is now.

        Raises:
            ConfigError: it cannot be read.
        """
        path = Path(file).absolute()
        try:
            return cls(str(path), name, digest(path.read_bytes()))
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}") from error

    def settings(self) -> dict[str, Any]:
        """What goes into a manifest's settings."""
        return {KEY: dataclasses.asdict(self)}

    def unchanged(self, now: "Origin | None", folder: Path | str, instead: str) -> None:
        """Refuse to go on where the file is not what it was.

        Args:
            now: the file that the command line names, as it is now.
            folder: what was begun with it.
            instead: how to go on all the same in Python.

        Raises:
            DataError: it is another file, or it has changed.
        """
        ways = f"begin a new run, or go on all the same in Python: {instead}"
        if now is None or now.name != self.name:
            found = "a name of the zoo" if now is None else f"{now.file}:{now.name}"
            raise DataError(f"{folder} was begun with {self.file}:{self.name}, not with {found}; name that, {ways}")
        if now.digest != self.digest:
            raise DataError(
                f"{self.file} has changed since {folder} was begun with it (content {now.digest}, then "
                f"{self.digest}); bring it back, {ways}"
            )


def origin_of(settings: Mapping[str, Any] | None, folder: Path | str) -> Origin | None:
    """Where the model of a run folder came from; None where it is one of denizen's own, or began from Python.

    Raises:
        DataError: the manifest's entry is damaged.
    """
    held = (settings or {}).get(KEY)
    if held is None:
        return None
    names = [field.name for field in dataclasses.fields(Origin)]
    if not isinstance(held, dict) or sorted(held) != sorted(names) or not all(isinstance(held[n], str) for n in names):
        raise DataError(f"{folder}/manifest.json: settings: {KEY} is {held!r}, expected texts for {', '.join(names)}")
    return Origin(**held)
