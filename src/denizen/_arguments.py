"""Arguments checked the same way everywhere; the error names caller, argument, value and what was expected.

    steps = whole("simulate", "steps", steps, low=1)     # simulate: steps=0, expected a whole number, at least 1

A check stands where a user enters, once. Each function returns the argument in the plain type that code below can use,
or raises `InputError`.
"""

import dataclasses
import functools
import json
import math
import operator
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

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


def checks_of(cls: type[Any]) -> dict[str, Callable[[str, str, Any], Any]]:
    """Checks of a dataclass's fields that are declared as `bool`, `int`, `float`, `Tensor`, or as one of these or None.

    Each is a function of (caller, name, value), as those above: whole numbers for `int`, numbers that may be infinite
    and tensors of one number for `float`. A field whose default is None or NaN takes that, too. Others have no check.
    """
    fields = [field for field in dataclasses.fields(cls) if field.init]
    kinds = {f.name: _kinds_of(_resolved(cls, f)) for f in fields}
    allowed = {f.name: kinds[f.name] | _kinds_of_default(f.default) for f in fields}
    return {name: functools.partial(_of_kind, kinds) for name, kinds in allowed.items() if _one_plain(kinds)}


def declared(owner: Any) -> None:
    """Have fields of a frozen dataclass be of the kinds that `checks_of` knows; raises `InputError`."""
    for name, check in checks_of(type(owner)).items():
        object.__setattr__(owner, name, check(type(owner).__name__, name, getattr(owner, name)))


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


def _resolved(cls: type[Any], field: "dataclasses.Field[Any]") -> Any:
    """A field's annotation; of one that is a text what it stands for, where the class's module has its names."""
    if not isinstance(field.type, str):
        return field.type
    holder = next((base for base in cls.__mro__ if field.name in vars(base).get("__annotations__", ())), cls)
    try:
        return eval(field.type, vars(sys.modules[holder.__module__]))  # noqa: S307  # the author's own words
    except Exception:  # names of a function, or for type checkers alone
        return field.type


def _kinds_of(annotation: Any) -> set[str]:
    """Names of the kinds that an annotation, perhaps a text, allows: ``{"int", "None"}`` of ``int | None``."""
    if isinstance(annotation, str):
        found = re.fullmatch(r"(?:\w+\.)*Optional\[(.*)\]", annotation.strip())
        parts = [*found.group(1).split("|"), "None"] if found else annotation.split("|")
        return {part.strip().rpartition(".")[2] for part in parts}
    union = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    kinds = typing.get_args(annotation) if union else (annotation,)
    # A class of another library may be called Tensor, too.
    return {_NAMES.get(kind, "other") if isinstance(kind, type | None) else "other" for kind in kinds}


_NAMES: dict[Any, str] = {None: "None", types.NoneType: "None", **{k: k.__name__ for k in (bool, int, float, Tensor)}}


def _kinds_of_default(default: Any) -> set[str]:
    """What a default allows beside the annotation."""
    if default is None:
        return {"None"}
    return {"nan"} if isinstance(default, float) and math.isnan(default) else set()


def _one_plain(kinds: set[str]) -> bool:
    """Whether values of these kinds can be checked: one that is known, perhaps None, or numbers of either kind."""
    named = kinds - {"None", "nan"}
    return named == {"int", "float"} or (len(named) == 1 and named <= {"bool", "int", "float", "Tensor"})


def _of_kind(kinds: set[str], caller: str, name: str, value: Any) -> Any:
    if "None" in kinds and value is None:
        return None
    hint = ", or None" if "None" in kinds else ""
    if "bool" in kinds:
        return switch(caller, name, value, hint)
    if "Tensor" in kinds:
        return _tensor(caller, name, value, hint)
    if "float" not in kinds:
        return whole(caller, name, value, hint=hint)
    if isinstance(value, Tensor) and value.dim() == 0 and not value.is_complex():
        return value  # which is not read: it may be on a device, or in the middle of a transform
    if not isinstance(value, Real) or isinstance(value, bool) or (value != value and "nan" not in kinds):
        raise InputError(f"{caller}: {name}={_short(value)}, expected a number{hint}")
    return value if isinstance(value, int | float) else float(value)


def _tensor(caller: str, name: str, value: Any, hint: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise InputError(
            f"{caller}: {name}={_short(value)}, expected a torch.Tensor{hint}; torch.as_tensor(…) makes one of lists "
            f"and arrays"
        )
    return value


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:100]}…"
