"""Run folders of the commands: what a command does with one by its kind, new ones, and how nothing in one is lost."""

import contextlib
import datetime
import shlex
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denizen import run
from denizen._device import device_failed
from denizen._run_folder import kind_of, new_folder, read_object
from denizen.errors import ConfigError, DenizenError, StorageError, nearest
from denizen.run import Run

if TYPE_CHECKING:
    from denizen._printing import Console


RUNS, MANIFEST = Path("runs"), "manifest.json"


class Interrupted(KeyboardInterrupt):
    """A run was interrupted and is safe in its folder.

    Attributes:
        folder: of the run.
        safe: how far it is there, in words.
        target: what to name beside the folder to go on; "" where nothing is needed.
    """

    def __init__(self, folder: Path, safe: str, target: str = "") -> None:
        self.folder, self.safe, self.target = folder, safe, target


# A kind of run folder, and the module of `denizen.app` that knows it: for each command that takes such a folder, a
# function of the command's name, of (command, console). A new kind is a line here.
KINDS = {
    "simulation": "_run",
    "calibration": "_calibrate",
    "sbc": "_sbc",
    "sweep": "_sweep",
    "training": "_trained",
    "dotgat": "_train_dotgat",
}


OF_TRAININGS = ("evaluate", "watch")  # which take no other kind
COMPARED = ("simulation", "training", "calibration")


def do(name: str, command: Any, console: "Console") -> Any:
    """Do what a command says with the folder `command.run`, as its kind has it done.

    Raises:
        ConfigError: this command is not for folders of this kind.
        DataError: there is no run in the folder, or it is damaged.
    """
    kind = expect(command.run, name)
    return getattr(import_module(f"denizen.app.{KINDS[kind]}"), name)(command, console)


def expect(path: Path, name: str) -> str:
    """The kind of run in a folder that a command is to take.

    Raises:
        ConfigError: this command is not for folders of this kind.
        DataError: there is no run in the folder.
    """
    # Several seeds of a training lie in folders of their own within one without a manifest.
    several = next(path.glob("seed-*/manifest.json"), None)
    kind = "training" if several and not (path / "manifest.json").exists() else kind_of(path)
    if kind is None:
        read_object(path)  # says what is wrong; a manifest of no kind is the oldest simulation's
        kind = "simulation"
    if kind not in KINDS:
        raise ConfigError(f"{path} holds a run of kind {kind!r}, which is unknown here; {nearest(kind, KINDS)}")
    fitting = [one for one in ("show", "resume", "report", "compare", "export", *OF_TRAININGS) if _takes(one, kind)]
    if name not in fitting:
        takes = " or ".join(other for other in KINDS if _takes(name, other))
        raise ConfigError(
            f"{path} holds a run of kind {kind}, and denizen {name} takes one of kind {takes}; for {kind} there is "
            f"denizen {', '.join(fitting[:-1])} and {fitting[-1]}"
        )
    return kind


def _takes(name: str, kind: str) -> bool:
    if name in OF_TRAININGS:
        return kind == "training"
    if name == "compare":
        return kind in COMPARED
    return hasattr(import_module(f"denizen.app.{KINDS[kind]}"), name)


@contextlib.contextmanager
def run_folder(out: Path | str | None, stem: str, *, writes: bool = True) -> Iterator[Path]:
    """A folder for what the block writes.

    Args:
        out: what the command names; None: `runs/STEM-DATE-TIME`, or that with a number behind it where another run was
            begun in the same second. Nobody else gets it, in however many processes, since it is made here.
        stem: what is run.
        writes: False in the processes of a training that write nothing.

    Raises:
        StorageError: the new folder cannot be made.
    """
    if out is not None:
        yield Path(out)
        return
    name = f"{stem}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    if not writes:
        yield RUNS / name
        return
    first = not RUNS.exists()
    made = new_folder(RUNS, name)
    try:
        yield made
    finally:
        _remove_empty(made)
        if first:
            with contextlib.suppress(OSError):
                RUNS.rmdir()  # fails where it holds something


def stem(word: str) -> str:
    """What a new run folder is called by: the model's own name where it is one of a file."""
    return word.rpartition(":")[2].replace(".", "-") or "run"


def resume_command(folder: Path | str, target: str = "") -> str:
    """What to type to go on with a run; `target` is the file of its model, where that is not one of the zoo."""
    return shlex.join(["denizen", "resume", str(folder), *([target] if target else [])])


def _remove_empty(folder: Path) -> None:
    """Remove a folder that nothing was written to, as where flags did not go together."""
    with contextlib.suppress(OSError):
        if [entry.name for entry in folder.iterdir()] == [".lock"]:
            (folder / ".lock").unlink()
        folder.rmdir()  # fails where it holds something


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
