"""Arguments that several functions take, checked the same way: the error names caller, argument and value."""

import operator
import os
from numbers import Real
from pathlib import Path
from typing import Any

from denizen.errors import InputError


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


def folder(caller: str, name: str, value: Any) -> Path:
    """The path of a folder, which need not exist."""
    if not isinstance(value, str | os.PathLike) or "\0" in str(value):
        raise InputError(f"{caller}: {name}={value!r}, expected the path of a folder")
    return Path(value)
