"""Arguments that several functions take, checked the same way: the error names caller, argument and value."""

import operator
import os
from numbers import Real
from pathlib import Path
from typing import Any

from denizen.errors import InputError, StorageError
from denizen.model import Env, Model


def whole(caller: str, name: str, value: Any, low: int, high: int | None = None) -> int:
    """A whole number, of whatever integer type."""
    limit = f"a whole number from {low} to {high}" if high is not None else f"a whole number, at least {low}"
    try:
        number = operator.index(value)
    except TypeError as error:
        raise InputError(f"{caller}: {name}={value!r}, expected {limit}") from error
    if isinstance(value, bool) or number < low or (high is not None and number > high):
        raise InputError(f"{caller}: {name}={value!r}, expected {limit}")
    return number


def step_length(caller: str, dt: Any) -> float:
    """`dt`, a positive number."""
    length = float(dt) if isinstance(dt, Real) and not isinstance(dt, bool) else 0.0
    if not 0 < length < float("inf"):
        raise InputError(f"{caller}: dt={dt!r}, expected a positive number")
    return length


def switch(caller: str, name: str, value: Any) -> None:
    """True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{caller}: {name}={value!r}, expected True or False")


def model_to_run(caller: str, model: Any) -> None:
    """A model that takes its steps by itself: an instance, and no environment."""
    if isinstance(model, type) and issubclass(model, Model):
        name = model.__name__
        raise InputError(f"{caller}: model is the class {name}, expected an instance of a dz.Model: {name}(…)")
    if not isinstance(model, Model):
        raise InputError(f"{caller}: model is {type(model).__name__}, expected an instance of a dz.Model")
    if isinstance(model, Env):
        raise InputError(
            f"{caller}: model is {type(model).__name__}, an environment, and its step needs actions; dz.train and "
            "dz.rl.evaluate run it under a policy, dz.rl.Worlds under actions of your own"
        )


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


def folder(caller: str, name: str, value: Any) -> Path:
    """The path of a folder, which need not exist."""
    if not isinstance(value, str | os.PathLike) or "\0" in str(value):
        raise InputError(f"{caller}: {name}={value!r}, expected the path of a folder")
    return Path(value)
