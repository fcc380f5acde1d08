"""What a calibration was given and what it found, as JSON with arrays beside it, and back; nothing of it is code.

Read back are numbers, texts, dates, arrays, objects of the dataclasses that `denizen.fit` and `denizen.relax` name,
interventions, and distributions of torch. Anything else is described, so that it can be compared, and is given again.
"""

import dataclasses
import datetime
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from denizen._atomic import digest
from denizen._fingerprint import describe
from denizen.errors import DataError, InputError
from denizen.fit._priors import arguments
from denizen.model import Together

SHOWN = 16  # arrays of at most so many finite numbers are written out
INTERVENTIONS = ("Act", "Ask", "Course", "During", "Every", "Scale", "Trigger", "Weekly")

Tensors = dict[str, Tensor]


def encode(value: Any, tensors: Tensors) -> Any:
    """A value as JSON; large arrays are added to `tensors`, by a digest of their content."""
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64):
        value = value.item()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, np.datetime64):
        return {"date64": str(value)}
    if isinstance(value, datetime.date):
        return {"date": value.isoformat()}
    if isinstance(value, np.ndarray) and value.dtype.kind == "M":
        return {"dates": [str(one) for one in value.reshape(-1)], "shape": list(value.shape)}
    if isinstance(value, np.ndarray | Tensor):
        return _array(value, tensors)
    if isinstance(value, Mapping):
        return {"map": [[str(name), encode(one, tensors)] for name, one in value.items()]}
    if isinstance(value, list | tuple):
        return [encode(one, tensors) for one in value]
    if isinstance(value, Distribution):
        return _distribution(value, tensors)
    if isinstance(value, type):
        path = f"{value.__module__}.{value.__qualname__}"
        return {"optimizer": value.__name__} if getattr(torch.optim, value.__name__, 0) is value else {"unknown": path}
    name = _name(type(value))
    return _object(name, value, tensors) if name else {"unknown": describe(value)}


def _array(value: np.ndarray | Tensor, tensors: Tensors) -> Any:
    try:
        tensor = torch.as_tensor(value).detach().cpu().contiguous()
    except (TypeError, ValueError):  # texts, objects
        return {"unknown": f"array {getattr(value, 'shape', '')} {digest(repr(value).encode())}"}
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.numel() <= SHOWN and tensor.dtype != torch.bfloat16 and bool(torch.isfinite(tensor).all()):
        return {"numbers": tensor.reshape(-1).tolist(), "shape": list(tensor.shape), "dtype": kind}
    content = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    key = digest(f"{kind} {tuple(tensor.shape)} ".encode() + content)
    tensors[key] = tensor
    return {"array": key}


def _distribution(value: Distribution, tensors: Tensors) -> Any:
    cls = type(value)
    if found := arguments(value):
        return {"distribution": cls.__name__, "with": {name: encode(one, tensors) for name, one in found.items()}}
    ours = getattr(torch.distributions, cls.__name__, None) is cls
    return {"unknown": repr(value) if ours else f"{cls.__module__}.{cls.__qualname__}"}


def _object(name: str, value: Any, tensors: Tensors) -> Any:
    """Fields that are as they are by default are left out, so that a version with more of them reads older files."""
    found = {}
    for field in dataclasses.fields(value):
        told = encode(getattr(value, field.name), tensors)
        if field.init and told != _default(field):
            found[field.name] = told
    return {"object": name, "with": found}


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return encode(field.default, {})
    return encode(field.default_factory(), {}) if field.default_factory is not dataclasses.MISSING else {"none": True}


def _name(cls: type) -> str | None:
    return next((name for name, one in _classes().items() if one is cls), None)


def _classes() -> dict[str, type]:
    """Classes whose objects are read back, by name."""
    from denizen import fit, model, relax

    named = [(name, getattr(home, name)) for home in (fit, relax) for name in vars(home) if not name.startswith("_")]
    named += [(name, getattr(model, name)) for name in INTERVENTIONS] + [("Together", Together)]
    return {name: one for name, one in named if isinstance(one, type) and dataclasses.is_dataclass(one)}


def decode(told: Any, tensors: Mapping[str, Tensor], what: str) -> Any:
    """A value of what `encode` made of it; lists become tuples.

    Args:
        told: JSON.
        tensors: arrays by digest.
        what: for messages.

    Raises:
        InputError: a part of it is not kept, and has to be given again.
        DataError: it is nothing that `encode` makes.
    """
    if told is None or isinstance(told, bool | int | float | str):
        return told
    if isinstance(told, list):
        return tuple(decode(one, tensors, what) for one in told)
    try:
        return _made(told, tensors, what)
    except (InputError, DataError):
        raise
    except (TypeError, ValueError, KeyError, AttributeError, RuntimeError) as error:
        raise DataError(f"{what} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


def _made(told: Any, tensors: Mapping[str, Tensor], what: str) -> Any:
    match told:
        case {"unknown": text}:
            raise InputError(f"{what} has {text}, which no folder keeps; give it again")
        case {"float": text}:
            return float(text)
        case {"date64": text}:
            return np.datetime64(text)
        case {"date": text}:
            return datetime.datetime.fromisoformat(text) if "T" in text else datetime.date.fromisoformat(text)
        case {"dates": texts, "shape": shape}:
            return np.array(texts, dtype="datetime64").reshape(shape)
        case {"numbers": numbers, "shape": shape, "dtype": kind}:
            return torch.tensor(numbers, dtype=getattr(torch, kind)).reshape(shape).numpy()
        case {"array": key}:
            return tensors[key].numpy()
        case {"map": entries}:
            return {name: decode(one, tensors, what) for name, one in entries}
        case {"distribution": name, "with": parts}:
            values = {n: torch.as_tensor(decode(one, tensors, what)) for n, one in parts.items()}
            return _class_of(torch.distributions, name, Distribution, what)(**values)
        case {"optimizer": name}:
            return _class_of(torch.optim, name, torch.optim.Optimizer, what)
        case {"object": name, "with": parts}:
            cls = _classes()[name]
            return getattr(cls, "of_fields", cls)(**{n: decode(one, tensors, what) for n, one in parts.items()})
    raise DataError(f"{what} cannot be read: {str(told)[:100]}")


def _class_of(module: Any, name: str, kind: type, what: str) -> Any:
    found = getattr(module, name)
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise DataError(f"{what} has {name!r}, which is no {kind.__name__} of torch")
    return found


def differences(saved: Any, given: Any, name: str) -> list[str]:
    """What differs between two encoded values, in words."""
    if saved == given:
        return []
    if isinstance(saved, dict) and isinstance(given, dict) and saved.keys() == given.keys():
        if "map" in saved and [k for k, _ in saved["map"]] == [k for k, _ in given["map"]]:
            pairs = zip(saved["map"], given["map"], strict=True)
            return [text for (k, old), (_, new) in pairs for text in differences(old, new, f"{name}[{k!r}]")]
        if "map" not in saved and "with" in saved and {**saved, "with": 0} == {**given, "with": 0}:
            old, new = saved["with"], given["with"]
            keys = [*old, *(key for key in new if key not in old)]
            return [t for k in keys for t in differences(old.get(k, DEFAULT), new.get(k, DEFAULT), f"{name}.{k}")]
    return [f"{name} is {_shown(given)} here and was {_shown(saved)}"]


DEFAULT = {"default": True}


def _shown(told: Any) -> str:
    """An encoded value, short, for people."""
    match told:
        case {"default": _}:
            return "left out"
        case {"dates": [first, *_, last]}:
            return f"{first} to {last}"
        case {"array": key}:
            return f"an array #{key[:8]}"
        case {"numbers": numbers, "shape": shape}:
            return str(numbers if shape else numbers[0])
        case {"map": entries}:
            return f"{{{', '.join(f'{k}: {_shown(v)}' for k, v in entries)}}}"
        case {"distribution": name, "with": parts} | {"object": name, "with": parts}:
            return f"{name}({', '.join(f'{k}={_shown(v)}' for k, v in parts.items())})"
        case {"optimizer": text} | {"unknown": text} | {"date64": text} | {"date": text} | {"float": text}:
            return str(text)
        case list():
            return f"[{', '.join(map(_shown, told))}]"
    return str(told) if isinstance(told, dict) else repr(told)
