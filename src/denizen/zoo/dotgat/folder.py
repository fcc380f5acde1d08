"""The run folder of a training: a run folder whose manifest has measures by epoch, the last and the best state."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from denizen.errors import DataError, InputError, nearest
from denizen.run import StateFolder
from denizen.zoo.dotgat.config import Settings


class Folder(StateFolder):
    """A training's folder; its manifest holds settings, epochs done, measures of each."""

    KIND, FORMAT, COUNT = "dotgat", "denizen dotgat 1", "epochs"
    FILES: ClassVar = {"last": "last-{:05d}", "best": "best-{:05d}"}

    @classmethod
    def create(cls, path: Path, settings: Settings, facts: Mapping[str, Any]) -> "Folder":
        """Make a folder that is not there or empty, and hold its lock until `release`.

        Raises:
            StorageError: it holds something, or cannot be written.
        """
        entries = {"settings": dataclasses.asdict(settings), "data": dict(facts), "reason": "", "metrics": []}
        folder = cls.begin(path, entries)
        try:
            folder.note()
        except BaseException:
            folder.release()
            raise
        return folder

    def settings(self) -> Settings:
        """What is trained."""
        held, known = self.manifest["settings"], [field.name for field in dataclasses.fields(Settings)]
        for name in held:
            if name not in known:
                raise DataError(f"{self.path}/manifest.json: unknown setting {name!r}; {nearest(name, known)}")
        try:
            settings = Settings(**held)
            settings.check()
        except (InputError, TypeError) as error:
            raise DataError(f"{self.path}/manifest.json: {error}") from error
        return settings
