"""Schedules: settings that change with progress, computed on the device so that a captured graph never changes."""

import dataclasses

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
        if not 0 <= self.begin < self.until <= 1:
            raise InputError(f"Linear(begin={self.begin}, until={self.until}): expected 0 <= begin < until <= 1")

    def at(self, progress: Tensor) -> Tensor:
        """Value at a progress: float32 `[]`."""
        part = ((progress - self.begin) / (self.until - self.begin)).clamp(0, 1)
        return self.start + (self.end - self.start) * part


Schedule = float | Linear


def value_at(schedule: Schedule, progress: Tensor) -> Tensor:
    """Value of a number or a schedule: float32 `[]` on the device of `progress`."""
    if isinstance(schedule, Linear):
        return schedule.at(progress)
    return torch.full_like(progress, schedule)
