"""The folder that a training writes itself to while it runs.

    manifest.json                 what trains, and what of it is safe, with checksums; replaced last, in one piece
    checkpoints/update-*.safetensors    everything that the next update depends on
    checkpoints/best-*.safetensors      the best policy so far
    metrics.jsonl                 one row for each update
    log.txt                       what happened when

A save writes new files, brings them to the disk, and replaces the manifest at the very end: a kill at any instant
leaves the previous save or this one.
"""

import contextlib
import dataclasses
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from denizen.errors import DataError, StorageError
from denizen.rl import _processes as processes
from denizen.rl._argument_names import with_present_names
from denizen.run._atomic import TEMPORARY, Lock, is_locked, uninterrupted, write_atomic
from denizen.run._facts import commit, now, versions
from denizen.run._files import Entries, content, write
from denizen.run._folder import check_free
from denizen.run._manifest import FORMAT as RUN
from denizen.run._manifest import Part

FORMAT = "denizen training 1"
NAME, METRICS = "manifest.json", "metrics.jsonl"
SECONDS = 20.0  # between saves, at least
SHARE = 0.02  # of a training's time that saving may take
_BEGUN = ("checkpoints", "log.txt")  # what there is of a folder before its first save
LARGEST = 1 << 26  # bytes of a manifest


class TrainingFolder:
    """A training's folder, and the manifest that was last written to it.

    Attributes:
        path: the folder.
        manifest: what is safe on disk.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest = path, manifest
        self._lock = Lock(path)
        self._saved, self._cost = time.monotonic(), 0.0

    @classmethod
    def create(cls, path: Path | str, what: Mapping[str, Any], settings: Mapping[str, Any] | None) -> "TrainingFolder":
        """Make the folder, and hold its lock: see `session`.

        Args:
            path: must not exist yet, be empty, or hold what a training left that was killed before its first save.
            what: facts that fix the training; JSON values.
            settings: of the command line, where it began the training.

        Raises:
            StorageError: the folder holds something already, or cannot be written.
        """
        path = Path(path)
        check_new(path)
        manifest = {
            "format": FORMAT,
            "status": "running",
            "error": None,
            "created": now(),
            "updated": now(),
            "updates": 0,
            **what,
            "settings": dict(settings) if settings else None,
            "versions": versions(),
            "commit": commit(),
            "checkpoint": None,
            "best": None,
        }
        folder = cls(path, manifest)
        try:
            path.mkdir(parents=True, exist_ok=True)
            folder._lock.take()  # before anything is removed or written: another training may begin in it right now
            folder._clear()
            (path / "checkpoints").mkdir(exist_ok=True)
        except BaseException as error:
            folder.release()
            if isinstance(error, OSError) and not isinstance(error, StorageError):
                raise StorageError(f"run folder {path} cannot be written: {error.strerror or error}") from error
            raise
        folder.log("created")
        return folder

    def _clear(self) -> None:
        """With the lock held: remove what a training left that ended before its first save."""
        if not _held_unsaved(self.path):
            check_free(self.path)
        for entry in self.path.iterdir():
            if entry.name != ".lock":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    @classmethod
    def open(cls, path: Path | str) -> "TrainingFolder":
        """The training in a folder.

        Raises:
            DataError: there is none, or its manifest is damaged.
        """
        path = Path(path)
        manifest = read_manifest(path)
        return cls(path, manifest)

    def hold(self) -> None:
        """Hold the folder's lock from here on, and know what is safe in it by now.

        Raises:
            StorageError: another training holds it, or it cannot be written.
        """
        self._lock.take()
        self.manifest = read_manifest(self.path)

    def release(self) -> None:
        """Let go of the folder's lock, where it is held."""
        self._lock.release()

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Hold the folder while the block runs, as who made it does already."""
        self._lock.take()
        try:
            for left in (*self.path.glob(f".*{TEMPORARY}"), *self.path.glob(f"checkpoints/.*{TEMPORARY}")):
                left.unlink(missing_ok=True)
            yield
        finally:
            self.release()

    def due(self) -> bool:
        """Whether enough time has passed since the last save."""
        return time.monotonic() - self._saved >= max(SECONDS, self._cost / SHARE)

    def save(
        self,
        updates: int,
        tensors: Mapping[str, Tensor],
        best: Mapping[str, Tensor],
        status: str = "running",
        error: str | None = None,
    ) -> None:
        """Make a training safe as it is now.

        Args:
            updates: done.
            tensors: everything that the next update depends on.
            best: the best policy so far.
            status: how things stand.
            error: what ended the training, where something did.

        Raises:
            StorageError: the disk is full or gone; the save before stays.
        """
        began = time.monotonic()
        try:
            with uninterrupted():
                parts = [
                    write(
                        self.path,
                        f"checkpoints/{name}-{updates:08d}.safetensors",
                        updates,
                        updates,
                        save(_on_host(held)),
                    )
                    for name, held in (("update", tensors), ("best", best))
                ]
                entries = dict(zip(("checkpoint", "best"), map(dataclasses.asdict, parts), strict=True))
                self._commit({**entries, "updates": updates, "status": status, "error": error})
                listed = {part.file for part in parts}
                for old in self.path.glob("checkpoints/*.safetensors"):
                    if old.relative_to(self.path).as_posix() not in listed:
                        old.unlink(missing_ok=True)
        except OSError as failure:
            raise StorageError(
                f"run folder {self.path}: {failure.strerror or failure}; safe are {self.manifest['updates']} updates"
            ) from failure
        self._saved, self._cost = time.monotonic(), time.monotonic() - began

    def mark(self, status: str, error: str | None) -> None:
        """Note how a training ended that could not be saved."""
        with contextlib.suppress(OSError):
            self._commit({"status": status, "error": error})

    def _commit(self, changes: Mapping[str, Any]) -> None:
        manifest = {**self.manifest, **changes, "updated": now()}
        write_atomic(self.path / NAME, json.dumps(manifest, indent=1).encode() + b"\n")
        self.manifest = manifest

    def load(self, which: str = "checkpoint") -> dict[str, Tensor]:
        """The tensors of the last checkpoint, or of the ``"best"`` policy.

        Raises:
            DataError: there is none, or it is damaged.
        """
        for _ in range(3):
            try:
                return self._load(which)
            except DataError:
                now_there = read_manifest(self.path)
                if now_there == self.manifest:  # else the training has gone on meanwhile: read again
                    raise
                self.manifest = now_there
        return self._load(which)

    def _load(self, which: str) -> dict[str, Tensor]:
        entry = self.manifest.get(which)
        if entry is None:
            raise DataError(f"run folder {self.path} has no {which} yet")
        try:
            return load(content(self.path, Part(**entry)))
        except (SafetensorError, TypeError) as error:
            raise DataError(f"run folder {self.path}: its {which} cannot be read: {error}") from error

    def trim_metrics(self) -> None:
        """Take away rows of updates that no save includes; they come again."""
        path = self.path / METRICS
        if not path.exists():
            return
        kept = [
            line
            for line in path.read_text().splitlines()
            if _row(line).get("step", 1 << 62) <= self.manifest["updates"]
        ]
        write_atomic(path, "".join(f"{line}\n" for line in kept).encode())

    def log(self, text: str) -> None:
        """Add a line to the log."""
        with contextlib.suppress(OSError), open(self.path / "log.txt", "a") as file:
            file.write(f"{now()} {text}\n")


def unsaved(path: Path) -> bool:
    """Whether a folder holds what a training leaves that ended before its first save, and nothing beside."""
    return not is_locked(path) and _held_unsaved(path)  # what is locked goes on


def _held_unsaved(path: Path) -> bool:
    """The same of a folder that no other training holds."""
    try:
        held = {entry.name for entry in path.iterdir()}
        states = [file.name for file in (path / "checkpoints").iterdir()] if "checkpoints" in held else []
    except OSError:
        return False
    known = all(name in (*_BEGUN, ".lock") or name.endswith(TEMPORARY) for name in held)
    # States of later updates are worth hours: a manifest was there, and somebody may find it again.
    first = all(name.endswith(("-00000000.safetensors", TEMPORARY)) for name in states)
    return known and first and any(name in held for name in _BEGUN)


def check_new(path: Path) -> None:
    """Raise `StorageError` where a training cannot begin in a folder."""
    if not unsaved(path):
        check_free(path)


def create_together(
    folder: Path | str, facts: dict[str, Any], settings: Mapping[str, Any] | None, device: torch.device
) -> TrainingFolder | None:
    """The folder in the first process, None in others.

    Raises:
        StorageError: the first process cannot write it; then no process goes on.
    """
    kept = error = None
    if processes.rank() == 0:
        try:
            kept = TrainingFolder.create(folder, facts, settings)
        except StorageError as told:
            error = told
    if bool(processes.total(torch.full((), float(error is not None), device=device)) > 0):
        raise error or StorageError(f"run folder {folder}: the first process cannot write it, and says why")
    return kept


def _row(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # a line that a kill has cut
        return {}
    return row if isinstance(row, dict) else {}


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a training's folder; raises `DataError` where there is none."""
    file = path / NAME
    try:
        if file.stat().st_size > LARGEST:
            raise DataError(f"{file} is too large for a manifest")
        manifest = json.loads(file.read_bytes())
    except OSError as error:
        if not path.is_dir():
            wrong = "is a file, no folder" if path.exists() else "does not exist"
            raise DataError(f"training folder {path} {wrong}") from error
        if unsaved(path):
            raise DataError(
                f"{path} holds a training that ended before its first save, so there is nothing in it to go on with; "
                f"train into it anew, as into an empty folder"
            ) from error
        raise DataError(f"{path} is no run folder: {file.name} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is damaged: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
        more = "; it holds a run: dz.run.load reads it, dz.run.resume goes on with it" if found == RUN else ""
        raise DataError(f"{path} holds no training: format {found!r}, expected {FORMAT!r}{more}")
    if not isinstance(manifest.get("updates"), int):
        raise DataError(f"{file}: updates is {manifest.get('updates')!r}, expected a whole number")
    if not isinstance(manifest.get("settings", {}), dict | None):
        raise DataError(f"{file}: settings is {manifest['settings']!r}, expected a table or null")
    return Entries(with_present_names(manifest), file)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Rows of a training's metrics, in order."""
    try:
        lines = (path / METRICS).read_text().splitlines()
    except OSError as error:
        raise DataError(f"{path / METRICS} cannot be read: {error.strerror}") from error
    return [row for row in map(_row, lines) if row]


def _on_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def difference(saved: Any, given: Any) -> str:
    """Where two facts of a manifest differ, in words; empty where they do not."""
    if saved == given:
        return ""
    if isinstance(saved, dict) and isinstance(given, dict):
        for name in sorted({*saved, *given}):
            if saved.get(name) != given.get(name):
                return f"{name}: {difference(saved.get(name), given.get(name))}"
    return f"{saved} then, {given} now"
