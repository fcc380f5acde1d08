"""The run folder of a training: a manifest, metrics by epoch, the last and the best state.

A save writes new files and replaces the manifest at the very end: a kill at any instant leaves one save or the other.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from denizen.errors import DataError, InputError, StorageError, nearest
from denizen.run._atomic import Lock, uninterrupted, write_atomic
from denizen.run._facts import commit, now, versions
from denizen.run._files import Entries, content, write
from denizen.run._folder import check_free
from denizen.run._manifest import Part
from denizen.zoo.dotgat.config import Settings

FORMAT = "denizen dotgat 1"
MANIFEST = "manifest.json"


class Folder:
    """A training's folder.

    Attributes:
        path: the folder.
        manifest: what is safe on disk: settings, epochs done, measures of each, files with checksums.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest = path, manifest
        self._lock = Lock(path)

    @classmethod
    def create(cls, path: Path, settings: Settings, facts: Mapping[str, Any]) -> "Folder":
        """Make a folder that is not there or empty, and hold its lock until `release`.

        Raises:
            StorageError: it holds something, or cannot be written.
        """
        check_free(path)
        manifest = {
            "format": FORMAT,
            "created": now(),
            "status": "running",
            "reason": "",
            "epochs": 0,
            "settings": dataclasses.asdict(settings),
            "data": dict(facts),
            "metrics": [],
            "versions": versions(),
            "commit": commit(),
            "last": None,
            "best": None,
        }
        folder = cls(path, manifest)
        try:
            path.mkdir(parents=True, exist_ok=True)
            folder._lock.take()
            check_free(path)  # again: another training may just have been begun in it
            (path / "checkpoints").mkdir(exist_ok=True)
            folder._commit({})
        except BaseException as error:
            folder.release()
            if isinstance(error, OSError) and not isinstance(error, StorageError):
                raise StorageError(f"run folder {path} cannot be written: {error.strerror or error}") from error
            raise
        return folder

    @classmethod
    def open(cls, path: Path) -> "Folder":
        """The training in a folder.

        Raises:
            DataError: there is none, or its manifest is damaged.
        """
        return cls(path, _read(path))

    def hold(self) -> None:
        """Hold the folder's lock until `release`, and know what is safe in it by now.

        Raises:
            StorageError: another training holds it, or it cannot be written.
        """
        self._lock.take()
        self.manifest = _read(self.path)

    def release(self) -> None:
        """Let go of the folder's lock, where it is held."""
        self._lock.release()

    def settings(self) -> Settings:
        """What is trained."""
        held, known = self.manifest["settings"], [field.name for field in dataclasses.fields(Settings)]
        for name in held:
            if name not in known:
                raise DataError(f"{self.path / MANIFEST}: unknown setting {name!r}; {nearest(name, known)}")
        try:
            settings = Settings(**held)
            settings.check()
        except (InputError, TypeError) as error:
            raise DataError(f"{self.path / MANIFEST}: {error}") from error
        return settings

    def save(
        self, epochs: int, row: Mapping[str, Any], last: dict[str, Tensor], best: dict[str, Tensor] | None
    ) -> None:
        """Make an epoch safe.

        Args:
            epochs: done.
            row: measures of the epoch.
            last: everything that the next epoch depends on.
            best: weights of the best epoch, where this one is; None keeps those that are there.

        Raises:
            StorageError: the disk is full or gone; the save before stays.
        """
        try:
            with uninterrupted():
                parts = {}
                for name, tensors in (("last", last), ("best", best)):
                    if tensors is not None:
                        held = {k: v.detach().to("cpu", copy=True).contiguous() for k, v in tensors.items()}
                        file = f"checkpoints/{name}-{epochs:05d}.safetensors"
                        parts[name] = dataclasses.asdict(write(self.path, file, epochs, epochs, save(held)))
                self._commit({**parts, "epochs": epochs, "metrics": [*self.manifest["metrics"], dict(row)]})
                listed = {entry["file"] for name in ("last", "best") if (entry := self.manifest[name])}
                for old in self.path.glob("checkpoints/*.safetensors"):
                    if old.relative_to(self.path).as_posix() not in listed:
                        old.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                f"run folder {self.path}: {error.strerror or error}; safe are {self.manifest['epochs']} epochs"
            ) from error

    def finish(self, reason: str, results: Mapping[str, Any]) -> None:
        """Note why the training ended and how well it does.

        Raises:
            StorageError: the disk is full or gone; resuming does it again.
        """
        try:
            self._commit({"status": "done", "reason": reason, "results": dict(results)})
        except OSError as error:
            raise StorageError(
                f"run folder {self.path}: {error.strerror or error}; all epochs are safe, resume it for the results"
            ) from error

    def load(self, which: str) -> dict[str, Tensor]:
        """Tensors of the ``"last"`` or ``"best"`` epoch.

        Raises:
            DataError: there are none, or they are damaged.
        """
        entry = self.manifest.get(which)
        if entry is None:
            raise DataError(f"run folder {self.path} has no {which} epoch yet")
        try:
            return load(content(self.path, Part(**entry)))
        except (SafetensorError, TypeError) as error:
            raise DataError(f"run folder {self.path}: its {which} epoch cannot be read: {error}") from error

    def _commit(self, changes: Mapping[str, Any]) -> None:
        manifest = Entries({**self.manifest, **changes, "updated": now()}, self.path / MANIFEST)
        write_atomic(self.path / MANIFEST, json.dumps(manifest, indent=1).encode() + b"\n")
        self.manifest = manifest


def _read(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
    except OSError as error:
        raise DataError(f"{path} is no run folder: {MANIFEST} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path / MANIFEST} is damaged: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{path} holds no training of `denizen train dotgat`")
    return Entries(manifest, path / MANIFEST)
