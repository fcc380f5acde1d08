"""What a step uses from outside: variables of enclosing functions, globals, attributes of its object."""

import contextlib
import dis
import inspect
import types
from collections.abc import Iterator
from typing import Any

from torch import nn

DEPTH = 3  # of functions that a step calls
FOREIGN = ("torch", "numpy", "denizen")


def used(step: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Variables from outside that a function and those it calls use, and attributes of its object if it is a method."""
    owner = getattr(step, "__self__", None)
    if owner is not None and not isinstance(owner, nn.Module):
        yield from ((f"self.{name}", thing) for name, thing in getattr(owner, "__dict__", {}).items())
    function = getattr(step, "__func__", step)
    if not inspect.isfunction(function) or depth > DEPTH or (function.__module__ or "").partition(".")[0] in FOREIGN:
        return
    for name, thing in _outside(function).items():
        yield name, thing
        yield from used(thing, depth + 1)


def _outside(function: types.FunctionType) -> dict[str, Any]:
    """Globals and variables of enclosing functions that a function reads, functions defined inside it included."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not filled yet
            found[name] = cell.cell_contents
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        names = {it.argval for it in dis.get_instructions(code) if it.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        found |= {name: function.__globals__[name] for name in names if name in function.__globals__}
    return found
