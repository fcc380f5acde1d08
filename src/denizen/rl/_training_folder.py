"""The folder that a training writes itself to while it runs: a run folder, and a row for each update.

    checkpoints/update-*.safetensors    everything that the next update depends on
    checkpoints/best-*.safetensors      the best policy so far
    metrics.jsonl                       one row for each update

The rest is as in every run folder, see `denizen._run_folder`.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from denizen import _processes as processes
from denizen._arguments import path
from denizen._atomic import open_plain, write_atomic
from denizen._run_folder import NAME, Entries
from denizen.errors import DataError, StorageError
from denizen.rl._settings import with_present_names
from denizen.run import StateFolder

METRICS = "metrics.jsonl"


class TrainingFolder(StateFolder):
    """A training's folder."""

    KIND, FORMAT, COUNT = "training", "denizen training 1", "updates"
    FILES: ClassVar = {"checkpoint": "update-{:08d}", "best": "best-{:08d}"}

    @classmethod
    def create(cls, path: Path | str, what: Mapping[str, Any], settings: Mapping[str, Any] | None) -> "TrainingFolder":
        """Make the folder, and hold its lock: see `session`.

        Args:
            path: must be free, see `check_free`.
            what: facts that fix the training; JSON values.
            settings: of the command line, where it began the training.

        Raises:
            StorageError: the folder holds something already, or cannot be written.
        """
        folder = cls.begin(path, {**what, "error": None, "settings": dict(settings) if settings else None})
        folder.log("created")
        return folder

    @classmethod
    def read(cls, path: Path) -> dict[str, Any]:
        """The manifest of a training's folder; raises `DataError` where there is none."""
        return Entries(with_present_names(super().read(path)), path / NAME)

    def mark(self, status: str, error: str | None) -> None:
        """Note how a training ended that could not be saved."""
        with contextlib.suppress(OSError):
            self.note(status=status, error=error)

    def trim_metrics(self) -> None:
        """Take away rows of updates that no save includes; they come again."""
        path = self.path / METRICS
        if not path.exists():
            return
        kept = [line for line, row in _rows(path, path.read_bytes()) if row["step"] <= self.manifest["updates"]]
        write_atomic(path, "".join(f"{line}\n" for line in kept).encode())


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
    """The row of a line; empty where it holds none, as one that a kill has cut."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) and "\ufffd" not in line else {}


def _rows(file: Path, data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """(line, row) of each update; without a last line that a kill has cut.

    Raises:
        DataError: another line holds no row; names it.
    """
    lines = data.decode("utf-8", "replace").splitlines()
    found = [(line, _row(line)) for line in lines]
    for number, (line, row) in enumerate(found[:-1], start=1):
        if not row:
            raise DataError(
                f"{file}, line {number}: {line[:40]!r} is no row of an update; remove this line, or move the file away"
            )
    return found if not found or found[-1][1] else found[:-1]


def read_manifest(folder: Path | str) -> dict[str, Any]:
    """What fixes a training, how far it is safe and how it ended, as its folder says; also while it goes on.

    Raises:
        DataError: the folder holds no training, or its manifest is damaged.
    """
    return TrainingFolder.read(path("read_manifest", "folder", folder, "the path of a training"))


def read_metrics(folder: Path | str) -> list[dict[str, Any]]:
    """One row for each update of a training, in order, from its folder; none before the first save of a training.

    Raises:
        DataError: the folder holds no training, or its rows are damaged; names the line.
    """
    within = path("read_metrics", "folder", folder, "the path of a training")
    file = within / METRICS
    try:
        with open_plain(file, within) as opened:
            data = opened.read()
    except OSError as error:
        if isinstance(error, FileNotFoundError) and (within / NAME).exists() and not read_manifest(within)["updates"]:
            return []  # killed before its first row
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    rows = [row for _, row in _rows(file, data)]
    if not rows and (within / NAME).exists() and (updates := read_manifest(within)["updates"]):
        raise DataError(f"{file} holds no row, and {updates} updates are saved; restore it, or move the folder away")
    return rows


def difference(saved: Any, given: Any) -> str:
    """Where two facts of a manifest differ, in words; empty where they do not."""
    if saved == given:
        return ""
    if isinstance(saved, dict) and isinstance(given, dict):
        for name in sorted({*saved, *given}):
            if saved.get(name) != given.get(name):
                return f"{name}: {difference(saved.get(name), given.get(name))}"
    return f"{saved} then, {given} now"
