"""What a model holds besides parameters: fixed structures such as grids, mixing matrices and places, as pytrees."""

import dataclasses
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from denizen import _tree


class Structure:
    """Base of structures that a `Model` may have as fields; a subclass is a frozen dataclass.

    Its tensors, and structures among its fields, move with the model and are seen by torch's transforms; everything
    else is fixed. A structure with one entry for each agent has a field or property `num_agents`.

    Examples:
        >>> @dataclasses.dataclass(frozen=True, eq=False)
        ... class Weather(Structure):
        ...     rain: Tensor
        ...     unit: str = "mm"
        >>> Weather(torch.zeros(3)).to("cpu").unit
        'mm'
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _tree.register(cls, _flatten, partial(_unflatten, cls))

    def to(self, device: torch.device | str) -> Self:
        """The structure on another device."""
        return _tree.map_tensors(lambda tensor: tensor.to(device), self)


def _flatten(structure: Any) -> tuple[list[Any], Any]:
    held = {field.name: getattr(structure, field.name) for field in dataclasses.fields(structure)}
    dynamic = tuple(name for name, value in held.items() if isinstance(value, Tensor | Structure))
    static = tuple((name, value) for name, value in held.items() if name not in dynamic)
    return [held[name] for name in dynamic], (dynamic, static)


def _unflatten(cls: type[Any], children: list[Any], context: Any) -> Any:
    dynamic, static = context
    return bind(object.__new__(cls), **dict(zip(dynamic, children, strict=True)), **dict(static))


def with_fields(structure: Any, **changes: Any) -> Any:
    """The structure with some fields changed, bound as they are."""
    held = {field.name: getattr(structure, field.name) for field in dataclasses.fields(structure)}
    return bind(object.__new__(type(structure)), **{**held, **changes})


def bind(structure: Any, **fields: Any) -> Any:
    """Give a structure, which is frozen, its fields."""
    for name, value in fields.items():
        object.__setattr__(structure, name, value)
    return structure
