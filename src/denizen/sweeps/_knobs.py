"""Knobs: what of a model may be swept. A parameter, one entry of it, a plain field, or a number of an intervention.

A knob that is a parameter takes another value in each row of one launch. Any other makes another model, and so launches
of its own: it is called fixed, since it is so within a launch.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen import _units
from denizen.errors import InputError, nearest
from denizen.model import Intervention, Model, Param

ENTRY = re.compile(r"(\w+)\[(\d+)\]")
WORDS = {"number": "a number", "whole": "a whole number", "switch": "True or False", "text": "a text"}
PLAIN = (bool, int, float, str)


@dataclasses.dataclass(frozen=True)
class Knob:
    """Something that may be swept.

    Attributes:
        name: as it was asked for.
        kind: of its values: ``"number"``, ``"whole"``, ``"switch"`` or ``"text"``.
        fixed: whether it is the same in all rows of a launch.
        spec: bounds of a parameter; None elsewhere.
        choices: texts that it may be; empty for any.
    """

    name: str
    kind: str
    fixed: bool
    spec: Param | None = None
    choices: tuple[str, ...] = ()

    @property
    def low(self) -> float | None:
        """Its lower bound."""
        return self.spec.low if self.spec else None

    @property
    def high(self) -> float | None:
        """Its upper bound."""
        return self.spec.high if self.spec else None

    def read(self, value: Any, where: str = "") -> Any:
        """A value, a text that stands for one, or a quantity of a parameter, as this knob takes it.

        Raises:
            InputError: it is none, or out of bounds.
        """
        told = f"sweep: {self.name}={value!r}{where}"
        plain = isinstance(value, str) and not _units.unit_of(value)  # 0.3 of a command line
        if self.spec is not None and _units.is_quantity(value) and not plain:
            value = self.spec.number(value, f"sweep: {self.name}{where}")
        found = _read(self.kind, value)
        if found is None:
            raise InputError(f"{told}, expected {WORDS[self.kind]}")
        if self.choices and found not in self.choices:
            raise InputError(f"{told}, {nearest(found, self.choices)}")
        if self.spec is not None:
            self.spec.check(torch.tensor(found, dtype=torch.float32), f"sweep: {self.name}{where}")
        return found


def _read(kind: str, value: Any) -> Any:
    """None where it is no value of that kind."""
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a number of NumPy or torch
        value = value.item()
    if kind == "text":
        return value if isinstance(value, str) and value else None
    if kind == "switch":
        return {"true": True, "false": False}.get(str(value).lower())
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if number != number or number in (float("inf"), -float("inf")):
        return None
    if kind == "number":
        return number
    return int(number) if number == int(number) and abs(number) < 1 << 53 else None


def kind_of(value: Any) -> str | None:
    """What kind of values a knob takes that is `value` now; None where it cannot be swept."""
    if isinstance(value, bool):
        return "switch"
    return next(
        (kind for kind, types in (("whole", int), ("number", float), ("text", str)) if isinstance(value, types)), None
    )


def of_model(model: Model, name: str) -> Knob | None:
    """A knob of a model: a parameter, an entry of one, or a plain field; None where there is none of that name."""
    entry = ENTRY.fullmatch(name)
    head = entry[1] if entry else name
    if head in model.params:
        value = getattr(model, head)
        if entry and not (value.dim() == 1 and int(entry[2]) < len(value)):
            raise InputError(f"sweep: {name}: {head} has shape {tuple(value.shape)}, so there is no entry {entry[2]}")
        return Knob(name, "number", False, model.params[head])
    value = getattr(model, name) if name in model.field_names else None
    kind = kind_of(value)
    return None if kind is None else Knob(name, kind, True)


def of_interventions(given: Sequence[Intervention], name: str) -> Knob | None:
    """A number of an intervention, such as ``lockdown.factor`` and ``lockdown.start``."""
    head, dot, field = name.partition(".")
    for one in given:
        if dot and one.name == head:
            kind = kind_of(_numbers(one).get(field))
            return None if kind is None else Knob(name, kind, True)
    return None


def names(model: Model, given: Sequence[Intervention]) -> list[str]:
    """All that may be swept."""
    fields = [name for name in model.field_names if name not in model.params and kind_of(getattr(model, name))]
    return [*model.params, *fields, *(f"{one.name}.{field}" for one in given for field in _numbers(one))]


def with_fixed(
    model: Model, given: Sequence[Intervention], values: Mapping[str, Any]
) -> tuple[Model, tuple[Intervention, ...]]:
    """Model and interventions where fixed knobs have these values."""
    fields = {name: value for name, value in values.items() if name in model.field_names}
    changed = []
    for one in given:
        numbers = {name.partition(".")[2]: v for name, v in values.items() if name.partition(".")[0] == one.name}
        changed.append(_changed(one, {k: v for k, v in numbers.items() if k}))
    return (model.replace(**fields) if fields else model), tuple(changed)


def with_rows(model: Model, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters of a launch, `[rows, …]` by name, from numbers of knobs, float64 `[rows]`.

    A number for a parameter of several entries stands for each of them.
    """
    found: dict[str, Tensor] = {}
    for name, numbers in sorted(values.items(), key=lambda one: bool(ENTRY.fullmatch(one[0]))):  # whole ones first
        entry = ENTRY.fullmatch(name)
        head = entry[1] if entry else name
        own = getattr(model, head)
        rows = found.get(head, own.expand(len(numbers), *own.shape).clone())
        narrow = numbers.to(rows.dtype)
        if entry:
            rows[:, int(entry[2])] = narrow
        else:
            rows[:] = narrow.reshape(-1, *[1] * own.dim())
        found[head] = rows
    return found


def _numbers(one: Intervention) -> dict[str, Any]:
    """What may be changed of an intervention, by name."""
    found = {}
    for owner in (one, one.when):
        if dataclasses.is_dataclass(owner):
            found |= {
                f.name: getattr(owner, f.name)
                for f in dataclasses.fields(owner)
                if f.init and f.name not in ("name", "target") and kind_of(getattr(owner, f.name))
            }
    return found


def _changed(one: Intervention, values: Mapping[str, Any]) -> Intervention:
    if not values:
        return one
    own = {f.name for f in dataclasses.fields(one)}
    mine = {name: value for name, value in values.items() if name in own}
    others = {name: value for name, value in values.items() if name not in own}
    if others:
        mine["when"] = dataclasses.replace(one.when, **others)  # type: ignore[type-var]
    return dataclasses.replace(one, **mine)
