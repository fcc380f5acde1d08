"""Writing a figure of matplotlib to a file."""

import os
from pathlib import Path
from typing import Any

from denizen.errors import InputError, StorageError


def save_figure(figure: Any, path: Any, dpi: float | str = "figure") -> None:
    """Write a figure of matplotlib to a file."""
    is_path = isinstance(path, str | os.PathLike)
    if "\0" in str(path) if is_path else not hasattr(path, "write"):
        raise InputError(f"plot: path={path!r}, expected the path of a file, such as 'plot.png'")
    if is_path and Path(path).is_dir():  # matplotlib would write beside it
        wanted = f"name a file in it, such as {Path(path) / 'plot.png'}"
        raise StorageError(f"plot {path} could not be written: it is a folder; {wanted}")
    try:
        figure.savefig(path, dpi=dpi)
    except (OSError, ValueError) as error:  # ValueError: a suffix that matplotlib does not know
        raise StorageError(f"plot {path} could not be written: {error}") from error
