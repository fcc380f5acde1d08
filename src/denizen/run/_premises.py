"""What a recorded step took from Python: numbers, tensors and functions that the model and the interventions hold.

A graph keeps them as they were. `premises` of then and of now differ where something else would be recorded now. What
torch counts, entries written into a tensor, is not part of it: a graph reads those.
"""

from collections.abc import Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor

PLAIN = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
DEPTH = 6  # objects within objects
FOREIGN = ("builtins", "denizen", "math", "numpy", "torch")  # whose code holds nothing of a model
MOST = 4096  # entries of one list or mapping; a longer one counts by its identity


def premises(*values: Any) -> list[Any]:
    """Everything, in an order of its own; holds the tensors, so that no other takes the place of one."""
    found: list[Any] = []
    for value in values:
        _add(value, found, set(), DEPTH)
    return found


def alike(one: list[Any], other: list[Any]) -> bool:
    """Whether two are the same."""
    return len(one) == len(other) and all(map(_same, one, other))


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, PLAIN) and repr(one) == repr(other))


def _add(value: Any, found: list[Any], seen: set[int], depth: int) -> None:
    if isinstance(value, PLAIN):
        found.append(value)
        return
    if isinstance(value, MethodType):
        found.append(value.__func__)
        value = value.__self__
    else:
        found.append(value)
    if isinstance(value, Tensor):
        found.append(value.data_ptr() if value.layout == torch.strided and not value.is_meta else None)
        return
    if id(value) in seen or depth == 0:
        return
    seen.add(id(value))
    for part in _parts(value):
        _add(part, found, seen, depth - 1)


def _parts(value: Any) -> list[Any]:
    """What an object holds."""
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != cell.__class__()]
        return [*cells, *(value.__defaults__ or ()), *_named(value)]
    if isinstance(value, Mapping):
        return [part for pair in value.items() for part in pair] if len(value) <= MOST else []
    if isinstance(value, list | tuple):
        return list(value) if len(value) <= MOST else []
    if isinstance(value, type):
        bases = [base for base in value.__bases__ if not _foreign(base.__module__)]
        return [*bases, *(part for part in vars(value).values() if isinstance(part, FunctionType | int | float))]
    held = getattr(value, "__dict__", {})
    return [type(value), *(part for pair in held.items() for part in pair)]


def _named(function: FunctionType) -> list[Any]:
    """What a function of an author names of its module, and numbers that it names of other modules of his."""
    given, names = function.__globals__, function.__code__.co_names
    if _foreign(function.__module__):
        return []
    found = [given[name] for name in names if name in given]
    modules = [one for one in found if isinstance(one, ModuleType) and not _foreign(one.__name__)]
    numbers = [getattr(one, name, None) for one in modules for name in names]
    kept = [one for one in found if not isinstance(one, ModuleType | type)]
    return kept + [one for one in numbers if isinstance(one, PLAIN)]


def _foreign(module: str | None) -> bool:
    return (module or "").partition(".")[0] in FOREIGN
