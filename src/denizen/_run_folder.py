"""The run folder: what a run of any kind keeps itself in, so that a kill at any instant loses nothing that was saved.

    manifest.json    what runs, how far it is safe on disk, and the checksum of each file; replaced last, in one piece
    checkpoints/     tensors, as safetensors; those that the manifest names no more are removed
    log.txt          what happened when
    .lock            held by the process that writes

A save writes new files, brings them to the disk, and replaces the manifest at the very end: a kill leaves the previous
save or this one.

A kind of run is a subclass of `RunFolder`, most easily of `StateFolder`. Its `KIND` stands in the manifest, so that
whoever finds a folder knows what to do with it: see `kind_of`.
"""

import contextlib
import dataclasses
import datetime
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy
import torch
from torch import Tensor

from denizen._atomic import TEMPORARY, Lock, digest, is_locked, open_plain, read_plain, uninterrupted, write_atomic
from denizen._version import __version__
from denizen.errors import DataError, StorageError

NAME = "manifest.json"
LARGEST = 1 << 26  # bytes of a manifest
SHARE = 0.02  # of a run's time that saving may take
# Folders of 2026 name no kind; what they hold goes by the format of their manifest.
KINDS = {"denizen run 1": "simulation", "denizen training 1": "training", "denizen dotgat 1": "dotgat"}
_BEGUN = ("checkpoints", "log.txt")  # what there is of a folder before its first save

M = TypeVar("M")
T = TypeVar("T")


class Entries(dict[str, Any]):
    """A manifest that was read: an entry that it lacks is told as such."""

    def __init__(self, entries: Mapping[str, Any], file: Path) -> None:
        super().__init__(entries)
        self._file = file

    def __missing__(self, name: str) -> Any:
        raise DataError(f"{self._file}: entry {name!r} is missing; the file was damaged, or something else wrote it")


class RunFolder:
    """A folder, its lock, and the manifest that was last written to it.

    Attributes:
        KIND: what runs, as the manifest says it.
        FORMAT: of the manifest.
        SECONDS: between saves, at least.
        LATER: share of its age that a run waits between saves, so that old runs save less often.
        path: the folder.
        manifest: what is safe on disk.
        every: seconds between saves, as somebody asked for; None: by the two above.
    """

    KIND: ClassVar[str]
    FORMAT: ClassVar[str]
    SECONDS: ClassVar[float] = 20.0
    LATER: ClassVar[float] = 0.0

    manifest: Any
    every: float | None = None

    def __init__(self, path: Path, manifest: Any, data: bytes = b"") -> None:
        self.path, self.manifest = path, manifest
        self._known = digest(data)  # of the manifest on disk
        self._opened = self._saved = time.monotonic()
        self._cost = 0.0  # seconds that the last save took

    def due(self) -> bool:
        """Whether enough time has passed since the last save."""
        return time.monotonic() - self._saved >= self._pause()

    def _pause(self) -> float:
        """Seconds between saves: as asked for, else few, but longer where saving is dear or the run is old."""
        if self.every is not None:
            return self.every
        return max(self.SECONDS, self._cost / SHARE, self.LATER * (time.monotonic() - self._opened))

    @contextlib.contextmanager
    def _saving(self) -> Generator[None]:
        """Around a save: Ctrl-C waits for its end, and what the system says becomes a `StorageError`."""
        began = time.monotonic()
        with self._explained(), uninterrupted():
            yield
        self._saved = time.monotonic()
        self._cost = self._saved - began

    def _commit(self, **changes: Any) -> None:
        """Replace the manifest: from here on what it names counts."""
        manifest = self._changed(changes)
        data = self._encoded(manifest)
        try:
            write_atomic(self.path / NAME, data)
        except BaseException:
            with contextlib.suppress(OSError):
                if (self.path / NAME).read_bytes() == data:  # replaced, only the last sync failed
                    self.manifest, self._known = manifest, digest(data)
            raise
        self.manifest, self._known = manifest, digest(data)

    def _changed(self, changes: Mapping[str, Any]) -> Any:
        """The manifest with some entries changed."""
        raise NotImplementedError

    def _encoded(self, manifest: Any) -> bytes:
        """A manifest as JSON."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        """Turn what the system says into a `StorageError` that says what is safe."""
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(self._explain(error)) from error

    def _explain(self, error: OSError) -> str:
        """What is safe after an error of the system."""
        raise NotImplementedError

    def log(self, text: str) -> None:
        """Add a line to the log, which is not worth a run."""
        with contextlib.suppress(OSError), open(self.path / "log.txt", "a", encoding="utf-8") as file:
            file.write(f"{now()} {text}\n")


class StateFolder(RunFolder):
    """The folder of a run whose state is a few groups of tensors, such as a training; its manifest is a dictionary.

    Attributes:
        COUNT: the manifest's entry that says how far the run is safe, such as ``"updates"``.
        FILES: the manifest's entries for groups of tensors, and the name of the file of each, with a place for that
            count.
    """

    COUNT: ClassVar[str]
    FILES: ClassVar[Mapping[str, str]]

    manifest: dict[str, Any]

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        super().__init__(path, manifest)
        self._lock = Lock(path)

    @classmethod
    def begin(cls, path: Path | str, facts: Mapping[str, Any]) -> Self:
        """Make the folder of a new run, and hold its lock until `release`; the first save writes the manifest.

        Args:
            path: must be free, see `check_free`.
            facts: what fixes the run; JSON values by name.

        Raises:
            StorageError: the folder holds something already, or cannot be written.
        """
        path = Path(path)
        check_free(path)
        manifest = {
            "format": cls.FORMAT,
            "kind": cls.KIND,
            "status": "running",
            "created": now(),
            "updated": now(),
            cls.COUNT: 0,
            **facts,
            "versions": versions(),
            "commit": commit(),
            **dict.fromkeys(cls.FILES),
        }
        folder = cls(path, Entries(manifest, path / NAME))
        folder._lock = take_new(path)
        try:
            with _as_new(path):
                (path / "checkpoints").mkdir()
        except BaseException:
            folder.release()
            raise
        return folder

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """The run in a folder.

        Raises:
            DataError: there is none of this kind, or its manifest is damaged.
        """
        return cls(Path(path), cls.read(Path(path)))

    @classmethod
    def read(cls, path: Path) -> dict[str, Any]:
        """The manifest of a folder; raises `DataError` where there is none of this kind."""
        file = path / NAME
        manifest = Entries(read_manifest(path, cls.KIND, cls.FORMAT)[0], file)
        count, settings = manifest[cls.COUNT], manifest.get("settings")
        if isinstance(count, bool) or not isinstance(count, int):
            raise DataError(f"{file}: {cls.COUNT} is {count!r}, expected a whole number")
        if not isinstance(settings, dict | None):
            raise DataError(f"{file}: settings is {settings!r}, expected a table or null")
        return manifest

    def hold(self) -> None:
        """Hold the folder's lock until `release`, and know what is safe in it by now.

        Raises:
            StorageError: another run holds it, or it cannot be written.
        """
        self._lock.take()
        try:
            self.manifest = self.read(self.path)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let go of the folder's lock, where it is held."""
        self._lock.release()

    @contextlib.contextmanager
    def session(self) -> Generator[None]:
        """Hold the folder while the block runs, as who made it does already."""
        self._lock.take()
        try:
            for left in (*self.path.glob(f".*{TEMPORARY}"), *self.path.glob(f"checkpoints/.*{TEMPORARY}")):
                left.unlink(missing_ok=True)
            yield
        finally:
            self.release()

    def save(self, count: int, states: Mapping[str, Mapping[str, Tensor]], **changes: Any) -> None:
        """Make a run safe as it is now.

        Args:
            count: how far it is.
            states: those of `FILES` that are written anew, each tensors by name.
            **changes: further entries of the manifest.

        Raises:
            StorageError: the disk is full or gone; the save before stays.
        """
        with self._saving():
            for name, tensors in states.items():
                file = f"checkpoints/{self.FILES[name].format(count)}.safetensors"
                changes[name] = dataclasses.asdict(write(self.path, file, count, count, encode(tensors)))
            self._commit(**changes, **{self.COUNT: count})
            listed = {entry["file"] for name in self.FILES if (entry := self.manifest[name])}
            for old in self.path.glob("checkpoints/*.safetensors"):
                if old.relative_to(self.path).as_posix() not in listed:
                    old.unlink(missing_ok=True)

    def note(self, **changes: Any) -> None:
        """Change entries of the manifest; what is safe stays.

        Raises:
            StorageError: the disk is full or gone.
        """
        with self._explained():
            self._commit(**changes)

    def load(self, which: str) -> dict[str, Tensor]:
        """The tensors of one of `FILES`, on the CPU.

        Raises:
            DataError: there are none, or they are damaged.
        """

        def tensors(manifest: dict[str, Any]) -> dict[str, Tensor]:
            self.manifest, entry = manifest, manifest.get(which)
            if entry is None:
                raise DataError(f"run folder {self.path} has no {which} yet")
            try:
                part = Part(**entry)
                return decode(content(self.path, part), str(self.path / part.file))
            except TypeError as error:
                raise DataError(f"{self.path / NAME}: {which} is {entry!r}, expected the entry of a file") from error

        return while_it_goes_on(self.manifest, lambda: self.read(self.path), tensors)

    def _changed(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        return Entries({**self.manifest, "kind": self.KIND, **changes, "updated": now()}, self.path / NAME)

    def _encoded(self, manifest: dict[str, Any]) -> bytes:
        return json.dumps(manifest, indent=1).encode() + b"\n"

    def _explain(self, error: OSError) -> str:
        safe = f"{self.manifest[self.COUNT]} {self.COUNT}"
        return f"run folder {self.path}: {error.strerror or error}; safe are {safe}"


def while_it_goes_on(manifest: M, read: Callable[[], M], use: Callable[[M], T]) -> T:
    """What `use(manifest)` gives; with the manifest of now where files have gone meanwhile, as a run goes on.

    Raises:
        DataError: what `use` raised, of a manifest that is still the folder's.
    """
    for _ in range(3):
        try:
            return use(manifest)
        except DataError:
            present = read()
            if present == manifest:
                raise
            manifest = present
    return use(manifest)


# --- manifests --------------------------------------------------------------------------------------------------------


def kind_of(path: Path) -> str | None:
    """What kind of run a folder holds; None: none that this can tell of, and reading it says why."""
    try:
        return _kind(read_object(path)[0])
    except DataError:
        return None


def _kind(manifest: Mapping[str, Any]) -> str | None:
    kind, form = manifest.get("kind"), manifest.get("format")
    if isinstance(kind, str):
        return kind
    return KINDS.get(form) if isinstance(form, str) else None


def read_manifest(path: Path, kind: str, form: str) -> tuple[dict[str, Any], bytes]:
    """The manifest of a folder, as JSON and its bytes.

    Raises:
        DataError: there is none, or it is of another kind or format.
    """
    manifest, data = read_object(path)
    found = _kind(manifest)
    if found not in (kind, None):
        raise DataError(f"{path} holds a run of kind {found!r}, expected {kind!r}; `denizen show` reads it")
    if manifest.get("format") != form:
        raise DataError(f"{path / NAME}: format is {manifest.get('format')!r}, expected {form!r}")
    return manifest, data


def read_object(path: Path) -> tuple[dict[str, Any], bytes]:
    """The manifest of a folder of any kind, as JSON and its bytes.

    Raises:
        DataError: there is no folder, no manifest, or none that can be read.
    """
    file = path / NAME
    if not path.is_dir():
        if path.exists():
            raise DataError(f"{path} is a file; expected a run folder, as a run with out= writes it")
        raise DataError(f"run folder {path} does not exist")
    try:
        data = read_plain(file, path, LARGEST)
    except FileNotFoundError:
        if unsaved(path):
            raise DataError(
                f"{path} holds a run that ended before its first save, so there is nothing in it to go on with; begin "
                f"a new one in it, as in an empty folder"
            ) from None
        raise DataError(
            f"{path} is not a run folder: it holds no {NAME} (or the run was killed before its first save)"
        ) from None
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    try:
        manifest = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is not valid JSON: {str(error)[:200]}") from None
    if not isinstance(manifest, dict):
        raise DataError(f"{file} is {str(manifest)[:60]}, expected an object")
    return manifest, data


def now() -> str:
    """The time, UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def versions() -> dict[str, str]:
    """Of everything that numbers may depend on."""
    return {
        "denizen": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def commit() -> str | None:
    """Commit of the git checkout that the process works in, "+" behind it for uncommitted changes; None outside one."""
    try:
        head, changed = (
            subprocess.run(["git", *words], capture_output=True, text=True, timeout=5, check=True).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return f"{head}+" if changed else head


# --- folders that are new ---------------------------------------------------------------------------------------------


def check_free(path: Path, held: bool = False) -> None:
    """Raise `StorageError` where no run can begin in a folder.

    One can where there is none, or it is empty, or holds only what a run left that ended before its first save.

    Args:
        path: the folder.
        held: whether this process holds its lock.
    """
    with _as_new(path):
        taken = path.exists() and any(entry.name != ".lock" for entry in path.iterdir())
    if taken and not (_only_begun(path) if held else unsaved(path)):
        raise StorageError(f"run folder {path} is not empty; choose another folder, or resume the run in it")


def unsaved(path: Path) -> bool:
    """Whether a folder holds what a run leaves that ended before its first save, and nothing beside."""
    return not is_locked(path) and _only_begun(path)  # what is locked goes on


def _only_begun(path: Path) -> bool:
    try:
        held = {entry.name for entry in path.iterdir()}
        states = [file.name for file in (path / "checkpoints").iterdir()] if "checkpoints" in held else []
    except OSError:
        return False
    known = all(name in (*_BEGUN, ".lock") or name.endswith(TEMPORARY) for name in held)
    # States of later updates are worth hours: a manifest was there, and somebody may find it again.
    first = all(name.endswith(("-00000000.safetensors", TEMPORARY)) for name in states)
    return known and first and any(name in held for name in _BEGUN) and ("log.txt" not in held or _own_log(path))


def _own_log(path: Path) -> bool:
    """Whether a folder's log begins as `RunFolder.log` writes it; another file of this name is somebody's own."""
    try:
        with open(path / "log.txt", encoding="utf-8", errors="replace") as file:
            line = file.readline(100)
    except OSError:
        return False
    return not line or re.match(r"\d{4}-\d\d-\d\dT[\d:]{8}Z ", line) is not None


def take_new(path: Path) -> Lock:
    """Make a folder that is empty but for its lock; gives that, held.

    Raises:
        StorageError: another run was begun in it, or it cannot be written.
    """
    lock = Lock(path)
    try:
        with _as_new(path):
            path.mkdir(parents=True, exist_ok=True)
            lock.take()  # before anything is removed or written: another run may begin in it right now
            check_free(path, held=True)
            for entry in path.iterdir():
                if entry.name != ".lock":
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    except BaseException:
        lock.release()
        raise
    return lock


@contextlib.contextmanager
def _as_new(path: Path) -> Generator[None]:
    """Turn what the system says into a `StorageError` of a folder that holds nothing yet."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(no_folder(path, error)) from error


def no_folder(path: Path, error: OSError) -> str:
    """That a folder cannot be written, and why."""
    return f"run folder {path} cannot be written: {error.strerror or error}"


def new_folder(parent: Path, stem: str) -> Path:
    """Make a folder that nobody else has, in however many processes at once: `stem`, else `stem-1`, `stem-2` and so on.

    Raises:
        StorageError: it cannot be made.
    """
    with _as_new(parent / stem):
        parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count():
            path = parent / (f"{stem}-{number}" if number else stem)
            with contextlib.suppress(FileExistsError):
                path.mkdir()  # fails where it is there: of several processes one gets it
                return path
    raise AssertionError


# --- files ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Part:
    """A file of the folder.

    Attributes:
        file: path within the folder.
        first, last: first and last step that it covers; for a checkpoint both are its step.
        size: bytes.
        digest: BLAKE2b of its content.
    """

    file: str
    first: int
    last: int
    size: int
    digest: str


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
        with open_plain(path, folder) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read() if size == part.size else b""  # what was not written here may be of any length
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if size != part.size or digest(data) != part.digest:
        raise DataError(
            f"{path} differs from what was written ({size} bytes, expected {part.size}); it was damaged or changed"
        )
    return data


def encode(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as safetensors."""
    from safetensors.torch import save

    return save({name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()})


def decode(data: bytes, where: str) -> dict[str, Tensor]:
    """Tensors of a safetensors file, on the CPU.

    Raises:
        DataError: it is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(data)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise DataError(f"{where} cannot be read as safetensors: {str(error)[:200]}") from error
