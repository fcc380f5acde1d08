"""Arguments checked the same way everywhere; the error names caller, argument, value and what was expected.

    steps = whole("simulate", "steps", steps, low=1)     # simulate: steps=0, expected a whole number, at least 1

A check stands where a user enters, once. Each function returns the argument in the plain type that code below can use,
or raises `InputError`.
"""

import json
import math
import operator
import os
from collections.abc import Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from denizen.errors import InputError, nearest


def whole(caller: str, name: str, value: Any, low: int | None = None, high: int | None = None, hint: str = "") -> int:
    """A whole number of any integer type but bool.

    Args:
        caller: function or class that was called, for the message.
        name: the argument.
        value: what came.
        low: smallest number allowed; None: any.
        high: largest number allowed; None: any.
        hint: what the message ends with, such as `", or None for no limit"`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not _within(number, low, high):
        raise InputError(f"{caller}: {name}={value!r}, expected a whole number{_limits(low, high)}{hint}")
    return number


def number(
    caller: str,
    name: str,
    value: Any,
    low: float | None = None,
    high: float | None = None,
    *,
    above: float | None = None,
    hint: str = "",
) -> float:
    """A finite number.

    Args:
        caller: function or class that was called, for the message.
        name: the argument.
        value: what came.
        low: smallest number allowed; None: any.
        high: largest number allowed; None: any.
        above: a number that must be exceeded; in place of `low`.
        hint: what the message ends with.
    """
    try:
        real = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        real = math.nan
    if not math.isfinite(real) or not _within(value, low, high) or (above is not None and not real > above):
        limits = _limits(low, high)
        if above is not None:
            limits = f" above {above}" + ("" if high is None else f", at most {high}")
        raise InputError(f"{caller}: {name}={value!r}, expected a number{limits}{hint}")
    return real


def share(caller: str, name: str, value: Any, hint: str = "") -> float:
    """A number from 0 to 1."""
    return number(caller, name, value, 0, 1, hint=hint)


def switch(caller: str, name: str, value: Any, hint: str = "") -> bool:
    """True or False, NumPy's too."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{caller}: {name}={value!r}, expected True or False{hint}")
    return bool(value)


def one_of(caller: str, name: str, value: Any, valid: Iterable[str]) -> str:
    """One of several words; the message names the nearest."""
    words = tuple(valid)
    if not isinstance(value, str) or value not in words:
        raise InputError(f"{caller}: {name}={value!r}, {nearest(value, words)}")
    return value


def path(caller: str, name: str, value: Any, what: str = "the path of a file") -> Path:
    """The path of a file or a folder, which need not exist."""
    if not isinstance(value, str | os.PathLike) or "\0" in os.fspath(value):
        raise InputError(f"{caller}: {name}={value!r}, expected {what}")
    return Path(value)


def folder(caller: str, name: str, value: Any) -> Path:
    """The path of a folder, which need not exist."""
    return path(caller, name, value, "the path of a folder")


def json_values(caller: str, name: str, values: Any) -> Mapping[str, Any]:
    """JSON values by name: texts, numbers, True, False, None, or lists and dictionaries of these."""
    if not isinstance(values, Mapping):
        raise InputError(f"{caller}: {name}={values!r}, expected JSON values by name, or None")
    for key, value in values.items():
        try:
            json.dumps({key: value})
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{caller}: {name}[{key!r}] = {value!r}: expected a JSON value (text, number, True, False, None, or "
                f"lists and dictionaries of these); {error}"
            ) from error
    return values


def _within(value: Any, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _limits(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if low is not None:
        return f", at least {low}"
    return "" if high is None else f", at most {high}"
