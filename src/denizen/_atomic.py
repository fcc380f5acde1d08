"""Files that are there whole or not at all, locks, and delayed interrupts: what safe writing to a run folder needs."""

import contextlib
import errno
import hashlib
import os
import signal
import stat
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from denizen.errors import StorageError

TEMPORARY = ".tmp"


def write_atomic(path: Path, data: bytes, named: bool = True) -> None:
    """Write a file so that after a crash at any instant `path` holds the old content or the new one, never a part.

    Args:
        path: the file.
        data: its content.
        named: whether the new one must be there after a crash that follows; else `sync` the folder later.

    Raises:
        OSError: what the system says; the old content is still there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        if named:
            sync(path.parent)  # the name, too, must survive a power cut
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Make sure that a file, or the names in a folder, have reached the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open folders; it writes names through
    # Windows writes a file through only by a descriptor that may write.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_plain(path: Path, folder: Path) -> BinaryIO:
    """Open a file of a folder that somebody else may have made, to read.

    Raises:
        OSError: there is none, it leads out of the folder, or it is a pipe or a device, which could be read for ever.
    """
    try:
        place = path.resolve()
        inside = place.is_relative_to(folder.resolve())
    except RuntimeError as error:  # links in a circle, before Python 3.13
        raise OSError(errno.ELOOP, "its links lead in a circle") from error
    if not inside:
        raise OSError(errno.EPERM, "it leads out of the run folder")
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))
    descriptor = os.open(place, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no ordinary file")
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path, folder: Path, most: int) -> bytes:
    """The content of a file as `open_plain` opens it.

    Raises:
        OSError: as there, or it is longer than `most` bytes.
    """
    with open_plain(path, folder) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it is larger than {most / (1 << 20):,.4g} MiB")
        return file.read()


def digest(data: bytes | memoryview) -> str:
    """BLAKE2b, 16 bytes, in hexadecimal."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _in_use(folder: Path) -> StorageError:
    return StorageError(
        f"run folder {folder}: another run is writing to it now; wait for it to end, or choose another folder"
    )


class Lock:
    """A folder's lock; a killed process lets go of it by itself.

    It is no property of the folder's files: `.lock` stays there for ever, since who removes a file on which another
    process waits lets both of them in.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def take(self) -> None:
        """Hold it from here on, also where it is held by this object already.

        Raises:
            StorageError: another run holds it, or the folder cannot be written.
        """
        if self._descriptor is not None:
            return
        try:
            import fcntl
        except ImportError:  # not on Windows: there two runs in one folder go unnoticed until manifests are compared
            return
        try:
            descriptor = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StorageError(f"run folder {self._folder} cannot be written: {error.strerror or error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise _in_use(self._folder) from None
        except OSError:
            pass  # a file system without locks
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go of it, where it is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock while the block runs.

    Raises:
        StorageError: another run holds it, or the folder cannot be written.
    """
    lock = Lock(folder)
    lock.take()
    try:
        yield
    finally:
        lock.release()


def is_locked(folder: Path) -> bool:
    """Whether a process holds the folder's lock; False where that cannot be told."""
    try:
        import fcntl

        descriptor = os.open(folder / ".lock", os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def status_now(folder: Path, status: str) -> str:
    """What a manifest says of its folder, or ``"killed"`` where it says ``"running"`` and no process works on it.

    Without locks of files, as on Windows, a killed run stays ``"running"``: one that works must not be told as killed.
    """
    locks = find_spec("fcntl") is not None
    return "killed" if status == "running" and locks and not is_locked(folder) else status


def refuse_locked(folder: Path) -> None:
    """Raise `StorageError` where another run writes to the folder, so that what is read of it now may go meanwhile."""
    if is_locked(folder):
        raise _in_use(folder)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the block is done: a write that has begun is finished, then the interrupt is raised."""
    if threading.current_thread() is not threading.main_thread():
        yield  # interrupts reach the main thread only
        return
    came: list[tuple[int, FrameType | None]] = []
    before: Any = signal.getsignal(signal.SIGINT)
    if not callable(before):
        yield  # ignored, or not set from Python
        return
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])
