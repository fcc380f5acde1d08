"""The folder that a run writes itself to while it runs.

    manifest.json            what the run is, and what of it is safe, with checksums; replaced last, in one piece
    inputs.safetensors       identities and parameters per replicate, where they were given
    metrics/part-*.parquet   series, one row per step and replicate; a part is never written again
    checkpoints/*.safetensors    the state after the last safe step; the one before is removed afterwards
    snapshots/               Zarr arrays
    log.txt                  what happened when

A save writes new files, brings them to the disk, and replaces the manifest at the very end: a kill at any instant
leaves the previous save or this one.
"""

import contextlib
import dataclasses
import itertools
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denizen.errors import StorageError, need
from denizen.run import _facts, _manifest, _metrics, _zarr
from denizen.run._atomic import TEMPORARY, digest, locked, uninterrupted, write_atomic
from denizen.run._blocks import PURPOSE
from denizen.run._device import device_failed
from denizen.run._files import write
from denizen.run._manifest import Manifest, Part, Taken

if TYPE_CHECKING:
    from denizen.run._run import Run
    from denizen.run._snapshots import SnapshotStore

SECONDS = 2.0  # between saves, at least
RESERVE, RESERVED = f".reserve{TEMPORARY}", 16 << 10  # a file, and its bytes
SHARE = 0.02  # of a run's time that saving may take, and that a kill may cost once the run is long


def check_free(path: Path) -> None:
    """Raise `StorageError` where a run folder cannot be made: only a new or an empty folder will do."""
    try:
        taken = path.exists() and any(entry.name != ".lock" for entry in path.iterdir())
    except OSError as error:
        raise StorageError(f"run folder {path} cannot be written: {error.strerror or error}") from error
    if taken:
        raise StorageError(f"run folder {path} is not empty; choose another folder, or resume the run in it")


def new_folder(parent: Path, stem: str) -> Path:
    """Make a folder that nobody else has, in however many processes at once: `stem`, else `stem-1`, `stem-2` and so on.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count():
            path = parent / (f"{stem}-{number}" if number else stem)
            with contextlib.suppress(FileExistsError):
                path.mkdir()  # fails where it is there: of several processes one gets it
                return path
    except OSError as error:
        raise StorageError(_no_folder(parent / stem, error)) from error
    raise AssertionError


def _reason(error: OSError) -> str:
    """What the system said."""
    cause = error.__cause__ if isinstance(error, StorageError) and isinstance(error.__cause__, OSError) else error
    return f"{cause.strerror or cause}"


def _no_folder(path: Path, error: OSError) -> str:
    return f"run folder {path} cannot be written: {error.strerror or error}"


class RunFolder:
    """A folder and the manifest that was last written to it.

    Attributes:
        path: the folder.
        manifest: what is safe on disk.
        sink: where snapshots are written; None where none are kept.
    """

    sink: _zarr.ZarrSnapshots | None

    def __init__(self, path: Path, manifest: Manifest, data: bytes) -> None:
        self.path, self.manifest = path, manifest
        self._known = digest(data)
        self._opened = self._saved = time.monotonic()
        self._cost = 0.0  # seconds that the last save took
        taken = manifest.snapshots
        forms = dict(zip(taken.fields, taken.forms, strict=True)) if taken else {}
        self.sink = _zarr.ZarrSnapshots(path, forms, self._explain, taken.digests) if taken else None
        self._tidy = False  # whether nothing lies in the folder that the manifest does not name

    @classmethod
    def create(
        cls, path: Path | str, run: "Run", settings: Mapping[str, Any] | None = None, wanted: int = 0
    ) -> "RunFolder":
        """Make the folder and save the run to it.

        Args:
            path: must not exist yet, or be empty.
            run: the run, at whatever step it is.
            settings: kept in the manifest; JSON values only.
            wanted: steps that the run is asked for.

        Raises:
            StorageError: the folder holds something already, or cannot be written.
            MissingExtra: polars, or zarr where there are snapshots, is not installed.
        """
        path = Path(path)
        need("polars", "tables", _metrics.PURPOSE)
        _metrics.check_names(run.series_names)
        if run._snapshots is not None:
            need("zarr", "storage", PURPOSE)
        check_free(path)
        made: list[Path] = []
        try:
            path.mkdir(parents=True, exist_ok=True)
            with locked(path):
                check_free(path)  # again: another run may just have been begun in it
                return cls._create(path, run, settings, wanted, made)
        except BaseException as error:
            for what in made:  # so that another attempt finds the folder empty
                shutil.rmtree(what, ignore_errors=True)
                with contextlib.suppress(OSError):
                    what.unlink()
            if isinstance(error, OSError) and not isinstance(error, StorageError):
                raise StorageError(_no_folder(path, error)) from error
            raise

    @classmethod
    def _create(
        cls, path: Path, run: "Run", settings: Mapping[str, Any] | None, wanted: int, made: list[Path]
    ) -> "RunFolder":
        for name in ("metrics", "checkpoints"):
            (path / name).mkdir()
            made.append(path / name)
        made.extend(path / name for name in ("inputs.safetensors", _zarr.FOLDER, "log.txt", _manifest.NAME))
        inputs = write(path, "inputs.safetensors", 0, 0, _facts.inputs(run))
        checkpoint = Part("", 0, 0, 0, "")  # replaced by the save below
        manifest = _facts.first_manifest(run, wanted, inputs, checkpoint, settings)
        folder = cls(path, manifest, b"")
        folder._tidy = True
        folder._log(f"created: {manifest.model['class']}, {manifest.model['agents']} agents")
        store = run._snapshots
        if store is not None:
            folder.sink = _zarr.ZarrSnapshots(path, store.forms, lambda error: _no_folder(path, error))
            store.copy_to(folder.sink, run.steps)
            folder.sink.explain = folder._explain
        folder._save(run, "running" if run.steps == 0 else "finished", None, forced=True)
        made.clear()
        if store is not None and folder.sink is not None:
            store.keep_in(folder.sink)
        return folder

    def _remove_leftovers(self) -> None:
        """Remove what a killed process wrote and no save includes."""
        listed = {self.manifest.checkpoint.file, *(part.file for part in self.manifest.metrics)}
        with contextlib.suppress(OSError):  # leftovers that cannot be removed are in nobody's way
            for path in [*self.path.glob("metrics/*"), *self.path.glob("checkpoints/*")]:
                if path.relative_to(self.path).as_posix() not in listed:
                    path.unlink()
            for path in [*self.path.glob(f".*{TEMPORARY}"), *self.path.glob("snapshots/**/*.partial")]:
                path.unlink()
        if self.sink is not None and self.manifest.snapshots is not None:
            self.sink.trim(len(self.manifest.snapshots.steps))
        self._log(f"resumed after step {self.manifest.steps}")

    @contextlib.contextmanager
    def session(self, run: "Run", wanted: int) -> Iterator[None]:
        """While the block runs the folder is this run's; saved at its end, also where it ends with an error."""
        with self._locked():
            with self._explained():
                if not self._tidy:
                    self._remove_leftovers()
                    self._tidy = True
                self._commit(dataclasses.replace(self.manifest, status="running", error=None, wanted=wanted))
            try:
                with self._reserve():
                    yield
                self.save(run, "finished")
            except StorageError as error:
                if self.manifest.status == "running":  # a snapshot could not be written; a save has said so itself
                    self._mark("failed", _reason(error))
                raise
            except BaseException as error:
                self._save_at_last(run, error)
                raise

    def _save_at_last(self, run: "Run", error: BaseException) -> None:
        """Save what can be saved of a run that ends with an error, which stays the one that is raised."""
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        message = f"{type(error).__name__}: {error}".strip(": ")
        lost: BaseException | None = error if device_failed(error) else None
        if lost is None:
            try:
                self.save(run, status, message)
            except StorageError as failure:
                error.add_note(str(failure))
            except Exception as failure:  # the state cannot be read: the device is gone
                lost = failure
        if lost is not None:  # nothing on the device can be read any more
            self._mark(status, message)
            why = "" if lost is error else f" (what came after them could not be read: {str(lost)[:200]})"
            error.add_note(
                f"{self._safe()}{why}. Go on in a new process: denizen.run.resume({str(self.path)!r}, model)"
            )

    @contextlib.contextmanager
    def _reserve(self) -> Iterator[None]:
        """Keep some room for the last manifest of a run that fills the disk."""
        path = self.path / RESERVE
        with contextlib.suppress(OSError):
            path.write_bytes(bytes(RESERVED))
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()

    def _mark(self, status: str, message: str) -> None:
        """Say in the manifest what ended the run, where the disk still takes that little; nothing else is saved."""
        with contextlib.suppress(OSError):
            (self.path / RESERVE).unlink(missing_ok=True)
            self._commit(dataclasses.replace(self.manifest, status=status, error=message))
        self._log(f"{status}, {self.manifest.steps} steps safe: {message}")

    def save_if_due(self, run: "Run") -> None:
        """Save where the last save is a while ago; called after every chunk of steps."""
        if time.monotonic() - self._saved >= self._pause():
            self.save(run, "running")

    def _pause(self) -> float:
        """Seconds between saves: few, but longer where saving is dear or the run is old."""
        return max(SECONDS, self._cost / SHARE, SHARE * (time.monotonic() - self._opened))

    def save(self, run: "Run", status: str, error: str | None = None) -> None:
        """Write what is new; called with the lock held.

        Raises:
            StorageError: says what is safe on disk. The run in memory is as it was and can be saved again.
        """
        began = time.monotonic()
        with self._explained(), uninterrupted():
            try:
                self._save(run, status, error)
            except OSError as failure:
                self._mark("interrupted" if status == "interrupted" else "failed", _reason(failure))
                raise
        self._saved = time.monotonic()
        self._cost = self._saved - began

    def save_now(self, run: "Run") -> None:
        """Save outside a session."""
        with self._locked():
            self.save(run, "finished" if run.steps >= self.manifest.wanted else "interrupted")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._explained(), contextlib.ExitStack() as opening:
            opening.enter_context(locked(self.path))
            if digest((self.path / _manifest.NAME).read_bytes()) != self._known:
                raise StorageError(
                    f"run folder {self.path} was changed by another run since this one last wrote to it; "
                    f"run.save('another folder') keeps this one"
                )
            held = opening.pop_all()
        with held:
            yield

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what the system says into a `StorageError` that says what is safe."""
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(self._explain(error)) from error

    def _save(self, run: "Run", status: str, error: str | None, forced: bool = False) -> None:
        old, steps = self.manifest, run.steps
        changes: dict[str, Any] = {}
        if steps > old.steps or forced:
            file = f"checkpoints/step-{steps:08d}.safetensors"
            changes["checkpoint"] = write(self.path, file, steps, steps, _facts.checkpoint(run))
        if steps > old.steps:
            table = _facts.table(run, old.steps)
            file = f"metrics/part-{len(old.metrics):05d}.parquet"
            changes["metrics"] = (*old.metrics, write(self.path, file, old.steps + 1, steps, _metrics.encode(table)))
            changes["series"] = _facts.series(run)
        if run._snapshots is not None:
            changes["snapshots"] = self._save_snapshots(run._snapshots, steps)
        changes |= {"status": status, "error": error, "updated": _facts.now(), "steps": steps}
        self._commit(dataclasses.replace(old, **changes, wanted=max(old.wanted, steps)))
        if old.checkpoint.file not in ("", self.manifest.checkpoint.file):
            with contextlib.suppress(OSError):
                (self.path / old.checkpoint.file).unlink()
        if steps > old.steps or status != "running":
            self._log(f"{status}, {steps} steps safe{f': {error}' if error else ''}")

    def _save_snapshots(self, store: "SnapshotStore", steps: int) -> Taken:
        """Wait until the snapshots are on the disk; what counts of them."""
        assert self.sink is not None
        if store.sink is self.sink:  # else all of them have just been copied there
            store.flush()
        taken = tuple(range(0, steps + 1, store.every))
        return Taken(
            store.every,
            tuple(store.forms),
            tuple(store.forms.values()),
            taken,
            tuple(self.sink.digests[: len(taken)]),
            store.ring.wanted,
        )

    def _commit(self, manifest: Manifest) -> None:
        """Replace the manifest: from here on what it names counts."""
        data = manifest.encode()
        try:
            write_atomic(self.path / _manifest.NAME, data)
        except BaseException:
            with contextlib.suppress(OSError):
                if (self.path / _manifest.NAME).read_bytes() == data:  # replaced, only the last sync failed
                    self.manifest, self._known = manifest, digest(data)
            raise
        self.manifest, self._known = manifest, digest(data)

    def _log(self, message: str) -> None:
        with contextlib.suppress(OSError), open(self.path / "log.txt", "a", encoding="utf-8") as file:
            file.write(f"{_facts.now()} {message}\n")  # a line of the log is not worth a run

    def _explain(self, error: OSError) -> str:
        kept = " (snapshots that are safe are not kept in memory: leave them there)" if self.sink is not None else ""
        return (
            f"run folder {self.path} could not be written: {error.strerror or error}. {self._safe()}. Nothing is lost "
            f"in memory{kept}: make room and call run.save(), or call run.save('another folder')"
        )

    def _safe(self) -> str:
        """What counts by now."""
        safe = self.manifest
        taken = f", {len(safe.snapshots.steps)} snapshots" if safe.snapshots else ""
        what = f"every series up to step {safe.steps}, the state after it{taken}" if safe.steps else "the initial state"
        return f"Safe on disk: {what}"
