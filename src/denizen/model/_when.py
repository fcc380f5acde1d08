"""When an intervention is on: by the clock, by the days of the week, or by what the state shows.

Times are given in days, dates or steps. Before a run they are turned into whole steps, so that the device compares
integers and nothing rounds.
"""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from denizen import _dates
from denizen._arguments import whole
from denizen._units import in_days
from denizen.errors import InputError, ModelError, expect_function
from denizen.model._state import State

FINEST = 1_000_000  # parts of a day: a step is a fraction of days whose denominator is at most this


@dataclasses.dataclass(frozen=True)
class Clock:
    """What steps of a run are in days and dates.

    Attributes:
        dt: length of a step in `unit`.
        unit: the model's unit of time.
        start: the day of the first step, as an ISO date, or None.
    """

    dt: float = 1.0
    unit: str = "step"
    start: str | None = None

    @classmethod
    def of(cls, caller: str, unit: str, dt: float, start: Any) -> "Clock":
        """The clock of a run whose start is given as people give dates."""
        if start is None:
            return cls(dt, unit)
        clock = cls(dt, unit, str(_dates.day(caller, "start", start)))
        clock.step_in_days(f"{caller}: start={clock.start}")
        return clock

    def step_in_days(self, caller: str) -> Fraction:
        """Length of a step in days; raises `InputError` where the model's unit of time is none of the calendar's."""
        days = in_days(self.unit)
        if days is None:
            raise InputError(
                f"{caller} needs a model whose time_unit is a unit such as 'day', and it is {self.unit!r}; set "
                f"time_unit in the model, or give steps: During(start, stop)"
            )
        step = Fraction(self.dt).limit_denominator(FINEST) * days
        if not step or abs(float(step / days) - self.dt) > 1e-9 * self.dt:
            raise InputError(f"{caller}: dt={self.dt:g} {self.unit} is no fraction of a day; give steps instead")
        return step

    def day_of(self, caller: str, date: str) -> int:
        """Days from the start of the run to a date."""
        if self.start is None:
            raise InputError(f"{caller} needs the date of the first step; give simulate(…, start='2020-03-01')")
        days = int((np.datetime64(date) - np.datetime64(self.start)).astype(int))
        if days < 0:
            raise InputError(f"{caller}: {date} lies before start={self.start}, the day of the first step")
        return days


class When:
    """Base of what decides whether an intervention is on."""

    def check(self) -> None:
        """Raise `InputError` where what was given is none."""

    def at(self, clock: Clock) -> Self:
        """The same in steps of a run."""
        return self

    def on(self, now: State, was_on: Tensor) -> Tensor:
        """0-d bool tensor from the state and from whether it was on in the step before (0-d bool)."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class During(When):
    """On from `start` until before `stop`, for ever where `stop` is None.

    A step is on where it begins within that time. ``During(40, 80)`` counts steps, whatever the length of one;
    ``During(days=(20, 40))`` counts days from the beginning of the first step, in every model whose `time_unit` is one
    of the calendar's; ``During(dates=("2020-03-15", "2020-05-01"))`` is on from the first date until before the second,
    in runs with a start date, ``simulate(…, start="2020-03-01")``.

    Attributes:
        start: first step.
        stop: the step before which it ends.
        days: the same in days, fractions allowed: one number, or two.
        dates: the same as dates: one, or two.
    """

    start: int | None = None
    stop: int | None = None
    days: Any = dataclasses.field(default=None, kw_only=True, metadata={"unless": None})
    dates: Any = dataclasses.field(default=None, kw_only=True, metadata={"unless": None})

    def check(self) -> None:
        """Raise `InputError` where the times are none, or out of order."""
        given = [name for name in ("start", "days", "dates") if getattr(self, name) is not None]
        if len(given) != 1 or (self.stop is not None and given != ["start"]):
            told = " and ".join(given) or "nothing"
            raise InputError(f"During: {told} given, expected steps, as in During(20, 40), or days=, or dates=")
        if self.days is not None:
            self._days()
        elif self.dates is not None:
            self._dates()
        else:
            whole("During", "start", self.start, 0)
            if self.stop is not None and whole("During", "stop", self.stop, 0) < self.start:  # type: ignore[operator]
                raise InputError(f"During: stop={self.stop} lies before start={self.start}")

    def at(self, clock: Clock) -> "During":  # type: ignore[override]
        """In steps: from the first that begins at the time or after it."""
        self.check()
        if self.start is not None:
            return self
        name = "days" if self.days is not None else "dates"
        told = f"During: {name}={getattr(self, name)!r}"
        step = clock.step_in_days(told)
        if self.days is not None:
            ends = [Fraction(day).limit_denominator(FINEST) for day in self._days()]
        else:
            ends = [Fraction(clock.day_of(told, date)) for date in self._dates()]
        steps = [math.ceil(end / step) for end in ends]
        if len(steps) == 2 and steps[0] == steps[1] and ends[0] != ends[1]:
            raise InputError(f"{told}: no step of {float(step):g} days begins in it; take a smaller dt")
        return During(*steps)

    def on(self, now: State, was_on: Tensor) -> Tensor:
        assert self.start is not None  # `at` has been called
        started = now.time.step >= self.start
        return started if self.stop is None else started & (now.time.step < self.stop)

    def _days(self) -> list[float]:
        wanted = f"During: days={self.days!r}, expected a number from 0, or two in order, such as (20, 40)"
        given = _one_or_two(self.days, wanted)
        for day in given:
            if isinstance(day, bool) or not isinstance(day, int | float | np.number) or not math.isfinite(day):
                raise InputError(wanted)
        days = [float(day) for day in given]
        if days[0] < 0 or days != sorted(days):
            raise InputError(wanted)
        return days

    def _dates(self) -> list[str]:
        given = [self.dates] if isinstance(self.dates, str) else self.dates
        wanted = f"During: dates={self.dates!r}, expected one date or two, {_dates.FORMS}"
        days = [str(_dates.day("During", "dates", date)) for date in _one_or_two(given, wanted)]
        if days != sorted(days):
            raise InputError(f"During: dates={self.dates!r} are out of order; the first is when it begins")
        return days


ALWAYS = During(0)


def _one_or_two(given: Any, wanted: str) -> list[Any]:
    entries = list(given) if isinstance(given, list | tuple | np.ndarray) else [given]
    if len(entries) not in (1, 2):
        raise InputError(wanted)
    return entries


@dataclasses.dataclass(frozen=True)
class Trigger(When):
    """On once `start(now)` holds, and off again once `stop(now)` holds (never by default).

    Both take the state and return a 0-d bool tensor: ``Trigger(lambda now: now.infected.sum() > 500)``.
    """

    start: Callable[[Any], Tensor]
    stop: Callable[[Any], Tensor] | None = None

    def check(self) -> None:
        """Raise `InputError` where a condition is not a function."""
        for name, condition in (("start", self.start), ("stop", self.stop)):
            if not (name == "stop" and condition is None):
                expect_function(f"Trigger: {name}", condition, "now")

    def on(self, now: State, was_on: Tensor) -> Tensor:
        begins = _condition("start", self.start, now)
        if self.stop is None:
            return was_on | begins
        return torch.where(was_on, ~_condition("stop", self.stop, now), begins)


def _condition(name: str, condition: Callable[[Any], Tensor], now: State) -> Tensor:
    """One answer for the world; one for each agent, or None of a forgotten return, would change what `Scale` does."""
    answer = condition(now)
    if not isinstance(answer, Tensor) or answer.dim():
        got = f"shape {tuple(answer.shape)}" if isinstance(answer, Tensor) else f"{type(answer).__name__} {answer!r}"
        raise ModelError(f"Trigger: {name} returned {got}, expected one truth as a 0-d tensor, such as x.sum() > 10")
    return answer != 0
