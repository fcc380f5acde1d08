"""Around the steps of a run: its folder, and whatever ends it, nothing that was computed is lost without a word."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from denizen import run
from denizen.app._folders import Interrupted, resume_command
from denizen.errors import DenizenError, StorageError
from denizen.run import Run
from denizen.run._device import device_failed

MANIFEST = "manifest.json"


@contextlib.contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """A run folder, made before anything is said of the run; removed where nothing was written to it.

    Raises:
        StorageError: it cannot be made.
    """
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"run folder {folder} cannot be written: {error.strerror or error}") from error
    try:
        yield
    finally:
        if new:
            with contextlib.suppress(OSError):
                folder.rmdir()  # fails where it holds something


@contextlib.contextmanager
def safe_in(folder: Path, begun: int, target: str) -> Iterator[None]:
    """Around steps: whatever ends them, nothing that was computed is lost without a word.

    Args:
        folder: of the run.
        begun: steps that it has already.
        target: what to name beside the folder to go on; "" where nothing is needed.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not (folder / MANIFEST).exists():
            raise
        raise Interrupted(folder, f"{run.load(folder).steps} steps", target) from None
    except StorageError as error:
        current = error.run
        if current is None:
            raise
        what = (
            str(error).partition(" Nothing is lost in memory")[0].partition("; run.save(")[0]
        )  # the rest is for Python
        saved = current.steps == begun  # as where another process writes to the folder: there is nothing new to save
        raise StorageError(what if saved else f"{what}\n{_rescue(current, target)}") from error
    except DenizenError as error:
        steps = run.load(folder).steps if (folder / MANIFEST).exists() else 0
        if steps:
            error.add_note(f"{folder} holds the {steps} steps before it")
        raise
    except Exception as error:
        if not device_failed(error):
            raise
        told = f"the device failed: {str(error).partition(chr(10))[0]}"
        if (folder / MANIFEST).exists():
            told += f"\n{run.load(folder).steps} steps are safe, go on with: {resume_command(folder, target)}"
        raise DenizenError(told) from error


def _rescue(current: Run, target: str) -> str:
    """Save elsewhere what the full or vanished disk did not take; says where, or that it could not."""
    for place in (tempfile.gettempdir(), str(Path.home())):
        with contextlib.suppress(DenizenError, OSError):
            folder = Path(tempfile.mkdtemp(prefix="denizen-rescued-", dir=place))
            current.save(folder)
            return (
                f"All {current.steps} steps were saved to {folder} instead; go on with: "
                f"{resume_command(folder, target)}"
            )
    return "No other place could be written either."
