"""Fingerprints: a model, an intervention or a function as short text that differs where results could differ.

A run folder keeps them, so that a run is only resumed with what it was begun with. They are for comparing and for
people; nothing is rebuilt from them.
"""

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import CodeType, FunctionType
from typing import Any, NotRequired, TypedDict

import torch
from torch import Tensor

from denizen._atomic import digest
from denizen.model import Env, Model, stages
from denizen.space import Graph, Layers

SHOWN = 16  # tensors up to this many entries are written out

# Of a model: `fields` name -> text, `code` method -> digest, `python` the version that these digests belong to.
Fingerprint = TypedDict(
    "Fingerprint",
    {
        "class": str,
        "time_unit": str,
        "agents": int,
        "fields": dict[str, str],
        "python": str,
        "code": dict[str, str],
        "stages": NotRequired[str],  # of a step that has some
    },
)


def fingerprint(model: Model) -> Fingerprint:
    """Class, size, fields and code of a model."""
    cls, parts = type(model), ", ".join(stages(model))
    told: Fingerprint = {
        "class": f"{cls.__module__}.{cls.__qualname__}",
        "time_unit": model.time_unit,
        "agents": model.num_agents,
        "fields": {f.name: describe(model.__dict__[f.name]) for f in dataclasses.fields(model)},  # type: ignore[arg-type]
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "code": {name: _function(method) for name, method in _methods(model).items()} | _code_inside(model),
    }
    return {**told, "stages": parts} if parts else told


def differences(saved: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """What differs between two fingerprints, in words; methods are compared under one Python version only.

    A method that is gone counts where `Model` or `Env` has one in its place. Whatever else is gone was a helper, which
    methods that have the code that they had do not call.
    """
    found = [
        f"{what} is {given.get(what)} here and was {saved.get(what)}"
        for what in ("class", "time_unit", "agents", "stages")
        if saved.get(what) != given.get(what)
    ]
    if not found:
        found = _differing(saved["fields"], given["fields"], "is {here} here and was {there}")
        if saved["python"] == given["python"]:
            gone = [name for name in saved["code"] if name not in given["code"] and not _hook(name)]
            kept = {name: code for name, code in saved["code"].items() if name not in gone}
            found += _differing(kept, given["code"], "has other code than it had", "method ")
    return found


def _differing(saved: Mapping[str, str], given: Mapping[str, str], text: str, prefix: str = "") -> list[str]:
    names = [*saved, *(name for name in given if name not in saved)]
    return [
        f"{prefix}{name} {text.format(here=given.get(name, 'absent'), there=saved.get(name, 'absent'))}"
        for name in names
        if saved.get(name) != given.get(name)
    ]


def describe(value: Any) -> str:
    """A value as text: numbers and short tensors in full, large ones and functions by a digest."""
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, Graph):
        arrays = [value.in_ptr, value.in_idx, *([] if value.weight is None else [value.weight])]
        return f"Graph of {value.num_agents} agents and {value.num_edges} edges #{_bits(*arrays)}"
    if isinstance(value, Layers):
        parts = [f"{name}: {describe(g)} × {describe(value.strength[name])}" for name, g in value.graphs.items()]
        return f"Layers({', '.join(parts)})"
    if isinstance(value, torch.nn.Module):
        state = value.state_dict()
        return f"{type(value).__qualname__} with {', '.join(state)} #{_bits(*state.values())}"
    if isinstance(value, FunctionType):
        return f"{value.__module__}.{value.__qualname__} #{_function(value)}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = [(f, getattr(value, f.name)) for f in dataclasses.fields(value)]
        told = [(f, v) for f, v in held if v is not f.metadata.get("unless", f)]  # of fields that older runs lack
        fields = ", ".join(f"{f.name}={describe(v)}" for f, v in told)
        return f"{type(value).__qualname__}({fields})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {describe(v)}' for name, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(describe, value))}]"
    if value is None or isinstance(value, bool | int | float | str | Fraction):
        return repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}"  # its content cannot be compared


def _tensor(value: Tensor) -> str:
    shape = f"[{', '.join(map(str, value.shape))}]" if value.dim() else "number"
    kind = f"{str(value.dtype).removeprefix('torch.')} {shape}"
    if value.numel() > SHOWN:
        return f"{kind} #{_bits(value)}"
    host = value.detach().cpu()
    # numpy writes a float32 with as few digits as tell it from its neighbours: 0.05, not 0.05000000074505806
    items = map(str, host.flatten().tolist() if host.dtype == torch.bfloat16 else host.flatten().numpy())
    return f"{kind} {', '.join(items)}"


def _bits(*tensors: Tensor) -> str:
    return digest(b"".join(digest(_bytes(t).data).encode() for t in tensors))


def _bytes(tensor: Tensor) -> Any:
    if not tensor.numel():  # may have a stride of 0, as in a graph without edges, which view refuses
        return torch.empty(0, dtype=torch.uint8).numpy()
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _methods(model: Model) -> dict[str, FunctionType]:
    """Each function that a model's class and its bases define, but for denizen's own `Model` and `Env`.

    Those that change no result are left out: `draw`, where nobody calls it, and `__post_init__`, where it leaves
    nothing behind but fields, which are compared.
    """
    found: dict[str, FunctionType] = {}
    for base in reversed(type(model).__mro__):
        if issubclass(base, Model) and base not in (Model, Env):
            for name, member in vars(base).items():
                function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if isinstance(function, FunctionType) and not _generated(function):
                    found[name] = function
    fields = {field.name for field in dataclasses.fields(model)}  # type: ignore[arg-type]
    if all(name in fields or _cached(type(model), name) for name in model.__dict__):
        found.pop("__post_init__", None)
    if not any("draw" in _names(function.__code__) for function in found.values()):
        found.pop("draw", None)
    return found


def _code_inside(model: Model) -> dict[str, str]:
    """The same of environments among the fields, such as the one that another is around."""
    return {
        f"{place}.{name}": digest
        for place, inner in model.__dict__.items()
        if isinstance(inner, Env)
        for name, digest in {n: _function(m) for n, m in _methods(inner).items()}.items() | _code_inside(inner).items()
    }


def _names(code: CodeType) -> set[str]:
    """What a function and those within it name."""
    return {*code.co_names, *(n for one in code.co_consts if isinstance(one, CodeType) for n in _names(one))}


def _cached(cls: type, name: str) -> bool:
    return isinstance(getattr(cls, name, None), functools.cached_property)


def _hook(name: str) -> bool:
    """Whether a model without a method of this name has that of `Model` or `Env`, and other results with it."""
    return name not in ("draw", "__post_init__") and (hasattr(Model, name) or hasattr(Env, name))


def _generated(function: Callable[..., Any]) -> bool:
    """Whether dataclasses wrote it; `Model` wraps their constructor."""
    return inspect.unwrap(function).__code__.co_filename == "<string>"  # type: ignore[attr-defined]


def _function(function: FunctionType) -> str:
    bound = [_content(cell) for cell in function.__closure__ or ()] + list(function.__defaults__ or ())
    plain = [value for value in bound if isinstance(value, bool | int | float | str | None)]
    return digest(f"{_code(function.__code__)} {plain!r}".encode())[:12]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None


def _code(code: CodeType) -> str:
    """Bytecode, names and constants; comments, line numbers and the docstring do not count."""
    first = code.co_consts[:1]  # the docstring, or a constant where there is none
    constants = code.co_consts[1:] if first and isinstance(first[0], str) else code.co_consts
    return f"{code.co_code.hex()} {code.co_names} {[_constant(value) for value in constants]}"


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _code(value)
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)  # sets have no fixed order
