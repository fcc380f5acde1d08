"""Every error that denizen raises on purpose, in one tree.

    DenizenError
    ├── InputError (ValueError)          an argument, option or file content is wrong
    │   ├── DataError                    a population, network, table or run folder holds something unusable
    │   └── ConfigError                  a configuration file or flag is wrong
    ├── ModelError (ValueError)          a model breaks a rule of authoring; names the line
    │   └── CapacityError                a declared bound or capacity was exceeded on the device
    ├── BudgetError (AssertionError)     a region did more than `dz.budget` allows; names the lines
    ├── StorageError (OSError)           a file could not be written or read; says what is safe on disk
    └── MissingExtra (ImportError)       an optional package is absent; names the extra to install

Messages say which argument, the value that came, what was expected and what to do about it.
"""

import difflib
import importlib
import inspect
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from denizen._garbage import uncollected


class DenizenError(Exception):
    """Base of all deliberate errors of denizen."""


class InputError(DenizenError, ValueError):
    """An argument, option or file content is wrong."""


class DataError(InputError):
    """A population, network, table or run folder holds something that cannot be used."""


class ConfigError(InputError):
    """A configuration file or a command-line flag is wrong."""


class ModelError(DenizenError, ValueError):
    """A model breaks one of the rules of authoring.

    Attributes:
        place: of the first world of the run that it came from, among its worlds, where that is known.
    """

    place: int | None = None


class CapacityError(ModelError):
    """A declared bound or capacity was exceeded while running."""


class BudgetError(DenizenError, AssertionError):
    """A region did more than its budget allows.

    Attributes:
        report: what was counted (`denizen.perf.BudgetReport`).
    """

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message)
        self.report = report


class StorageError(DenizenError, OSError):
    """A file could not be written or read.

    Attributes:
        run: the `Run` whose folder could not be written, whole in memory; None where there is none.
    """

    run: Any = None


class MissingExtra(DenizenError, ImportError):
    """An optional package is not installed."""


def need(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional package late, or say which extra brings it.

    Args:
        module: importable name, for example ``"polars"``.
        extra: the extra of denizen's that installs it.
        purpose: what it is needed for, completing "… is needed to …".
    """
    try:
        with uncollected():
            return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{module} is needed to {purpose} and is not installed; run: pip install 'denizen[{extra}]'"
        ) from error


def expect_function(
    what: str, function: Any, *given: str, named: Iterable[str] = (), wanted: str | None = None
) -> None:
    """Raise `InputError` unless a function that the user passed in can be called as it will be.

    Args:
        what: caller and argument for the message, for example ``"Act: change"``.
        function: what came.
        *given: a word for each argument by position.
        named: arguments by name.
        wanted: what the message calls right, where several forms are.
    """
    words = [*given, *named]
    wanted = wanted or (f"a function of ({', '.join(words)})" if words else "a function without arguments")
    if not callable(function):
        raise InputError(f"{what}={function!r}, expected {wanted}")
    try:  # what a decorator gives takes what its own code says, not what it wraps
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # written in C: it has to tell itself
        return
    try:
        signature.bind(*given, **dict.fromkeys(named))
    except TypeError as error:
        takes = ", ".join(map(_parameter, signature.parameters.values()))
        name = getattr(function, "__qualname__", type(function).__name__).rpartition("<locals>.")[2]
        raise InputError(f"{what} is {name}({takes}), expected {wanted}: {error}") from error


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")  # pyrefly: ignore
    return f"{stars}{parameter.name}{'' if parameter.default is parameter.empty else '=…'}"


def nearest(name: object, valid: Iterable[str]) -> str:
    """A sentence that lists the valid names, the closest one first: ``did you mean 'x'? valid: x, y``."""
    names = sorted(valid)
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}valid: {', '.join(names) if names else '(none)'}"
