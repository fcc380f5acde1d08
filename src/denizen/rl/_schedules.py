"""Schedules: settings that change with progress, computed on the device so that a captured graph never changes."""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from denizen.errors import InputError


@dataclasses.dataclass(frozen=True)
class Linear:
    """From `start` to `end` while progress goes from `begin` to `until`, constant before and after.

    Attributes:
        start: value up to `begin`.
        end: value from `until` on.
        begin: progress, 0 to 1.
        until: progress, 0 to 1.
    """

    start: float
    end: float
    begin: float = 0.0
    until: float = 1.0

    def __post_init__(self) -> None:
        check_finite(self, "start", "end", "begin", "until")
        if not 0 <= self.begin < self.until <= 1:
            raise InputError(f"Linear(begin={self.begin}, until={self.until}): expected 0 <= begin < until <= 1")

    def at(self, progress: Tensor) -> Tensor:
        """Value at a progress: float32 `[]`."""
        part = ((progress - self.begin) / (self.until - self.begin)).clamp(0, 1)
        return self.start + (self.end - self.start) * part


Schedule = float | Linear


def finite(value: Any) -> bool:
    """Whether this is a finite number; a bool is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_finite(owner: Any, *names: str) -> None:
    """Raise `InputError` where a setting is no finite number."""
    for name in names:
        if not finite(getattr(owner, name)):
            raise InputError(f"{type(owner).__name__}({name}={getattr(owner, name)!r}): expected a finite number")


def check_amounts(owner: Any, *names: str, schedule: bool = False) -> None:
    """Raise `InputError` where a setting is no number of at least 0, nor, with `schedule`, a `Linear` of such."""
    for name in names:
        value = getattr(owner, name)
        ends = (value.start, value.end) if schedule and isinstance(value, Linear) else (value,)
        if not all(finite(end) and end >= 0 for end in ends):
            more = ", or a dz.rl.Linear between such" if schedule else ""
            raise InputError(f"{type(owner).__name__}({name}={value!r}): expected a number, at least 0{more}")


def check_above(owner: Any, *names: str, none: bool = False) -> None:
    """Raise `InputError` where a setting is no number above 0, nor None where that is allowed."""
    for name in names:
        value = getattr(owner, name)
        if value is None and none:
            continue
        if not (finite(value) and value > 0):
            more = ", or None for none" if none else ""
            raise InputError(f"{type(owner).__name__}({name}={value!r}): expected a number above 0{more}")


def check_switches(owner: Any) -> None:
    """Raise `InputError` where a setting that is declared a bool is none: any word, "no" as well, would count as on."""
    for field in dataclasses.fields(owner):
        value = getattr(owner, field.name)
        if field.type is bool and not isinstance(value, bool):
            raise InputError(f"{type(owner).__name__}({field.name}={value!r}): expected True or False")


def value_at(schedule: Schedule, progress: Tensor) -> Tensor:
    """Value of a number or a schedule: float32 `[]` on the device of `progress`."""
    if isinstance(schedule, Linear):
        return schedule.at(progress)
    return torch.full_like(progress, schedule)
