"""The run folder of a command: the one that it names, or a new one in `runs`."""

import contextlib
import datetime
from collections.abc import Iterator
from pathlib import Path

from denizen.run._folder import new_folder

RUNS = Path("runs")


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
    made = new_folder(RUNS, name)
    try:
        yield made
    finally:
        _remove_empty(made)


def _remove_empty(folder: Path) -> None:
    """Remove a folder that nothing was written to, as where flags did not go together."""
    with contextlib.suppress(OSError):
        if [entry.name for entry in folder.iterdir()] == [".lock"]:
            (folder / ".lock").unlink()
        folder.rmdir()  # fails where it holds something
