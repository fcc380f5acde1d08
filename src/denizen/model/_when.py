"""When an intervention is on: by the clock, by the days of the week, or by what the state shows.

Times are given in days, dates or steps. Before a run they are turned into whole steps, so that the device compares
integers and nothing rounds.
"""

import dataclasses
import datetime
import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from denizen import _dates
from denizen._arguments import whole
from denizen._units import fraction, in_days
from denizen.errors import InputError, ModelError, expect_function
from denizen.model._state import State


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
        step = fraction(self.dt) * days
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

    def __post_init__(self) -> None:
        self.check()

    def __and__(self, other: "When") -> "Together":
        """On while both are."""
        return Together("and", (self, other))

    def __or__(self, other: "When") -> "Together":
        """On while one of them is."""
        return Together("or", (self, other))

    def __invert__(self) -> "Together":
        """On while it is not."""
        return Together("not", (self,))

    def check(self) -> None:
        """Raise `InputError` where what was given is none."""

    def at(self, clock: Clock) -> Self:
        """The same in steps of a run."""
        return self

    def on(self, now: State, was_on: Tensor) -> Tensor:
        """0-d bool tensor from the state and from whether it was on in the step before (0-d bool)."""
        raise NotImplementedError

    def switch(self, now: State, was: Tensor) -> tuple[Tensor, Tensor]:
        """(whether it is on, what it keeps for the next step), 0-d bool and int8.

        Args:
            now: the state.
            was: int8 0-d, what it kept in the step before; 0 at first.
        """
        on = self.on(now, was != 0)
        return on, on.to(torch.int8)


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
        if self.start is not None:
            return self
        name = "days" if self.days is not None else "dates"
        told = f"During: {name}={getattr(self, name)!r}"
        step = clock.step_in_days(told)
        if self.days is not None:
            ends = [fraction(day) for day in self._days()]
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
            if not _real(day):
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


@dataclasses.dataclass(frozen=True, init=False)
class Weekly(When):
    """On at some days of each week, all day or between two hours: ``Weekly("saturday", "sunday")``.

    In a run with a start date the days are those of the calendar; in others, `first` says on which day of the week the
    first step begins. A step is on where it begins within the time; steps longer than a day would miss days, and are
    refused. ``Weekly("monday", "friday", hours=(8, 16.5))`` is on from 8:00 until before 16:30; hours that go past
    midnight, such as ``(22, 6)``, belong to the day that they begin on.

    Attributes:
        days: names of days, or their first three letters.
        hours: two hours of the day, from 0 to 24; None for all day.
        first: the day of the week of the first step, in runs without a start date.
    """

    days: tuple[str, ...]
    hours: tuple[float, float] | None
    first: str | None

    def __init__(self, *days: str, hours: tuple[float, float] | None = None, first: str | None = None) -> None:
        for name, value in (("days", days), ("hours", hours), ("first", first)):
            object.__setattr__(self, name, value)
        self.check()

    @classmethod
    def of_fields(cls, days: tuple[str, ...], hours: Any = None, first: str | None = None) -> "Weekly":
        """The same from its fields, as a folder has them."""
        return cls(*days, hours=hours, first=first)

    def check(self) -> None:
        """Raise `InputError` where a day or an hour is none."""
        if not self.days:
            raise InputError("Weekly: no day given, expected names such as Weekly('saturday', 'sunday')")
        for day in (*self.days, *([] if self.first is None else [self.first])):
            _weekday(day)
        if self.hours is None:
            return
        wanted = f"Weekly: hours={self.hours!r}, expected two different numbers from 0 to 24, such as (8, 16.5)"
        if not isinstance(self.hours, list | tuple) or len(self.hours) != 2 or self.hours[0] == self.hours[1]:
            raise InputError(wanted)
        if not all(_real(hour) and 0 <= hour <= 24 for hour in self.hours):
            raise InputError(wanted)

    def at(self, clock: Clock) -> "Repeating":  # type: ignore[override]
        """In steps."""
        told = f"Weekly: {', '.join(self.days)}"
        step = clock.step_in_days(told)
        if step > 1 or (step == 1 and self.hours is not None):
            shorter = "at most a day" if self.hours is None else "shorter than a day"
            raise InputError(f"{told}: steps are {float(step):g} days, expected {shorter}; take a smaller dt")
        if self.first is None and clock.start is None:
            raise InputError(f"{told} needs the day of the first step; give first='monday', or simulate(…, start=…)")
        if self.first is not None and clock.start is not None and _weekday(self.first) != _of_date(clock.start):
            raise InputError(
                f"{told}: first={self.first!r}, and start={clock.start} is a {NAMES[_of_date(clock.start)]}"
            )
        first = _of_date(clock.start) if clock.start is not None else _weekday(self.first)
        parts, length = step.denominator, step.numerator
        spans: list[tuple[int, int]] = []
        for day in sorted({(_weekday(day) - first) % 7 for day in self.days}):
            begin, end = (0.0, 24.0) if self.hours is None else self.hours
            hours = [fraction(hour) / 24 for hour in (begin, end + 24 * (end < begin))]
            low, high = (math.ceil((day + hour) * parts) for hour in hours)
            spans += [(low, min(high, 7 * parts))] + ([(0, high - 7 * parts)] if high > 7 * parts else [])
        found = Repeating(tuple(spans), length, 7 * parts)
        if found.never():
            size = f"{float(step):g} days"
            raise InputError(f"{told}, hours={self.hours}: no step of {size} begins in it; take a smaller dt")
        return found

    def on(self, now: State, was_on: Tensor) -> Tensor:
        raise InputError("Weekly: the run has not placed it in its steps")


_LONGEST = 2**32  # parts of a step: 2**31 steps of it are counted in int64


@dataclasses.dataclass(frozen=True)
class Every(When):
    """On again and again: ``Every(days=14, on_for=3)`` is on for the first three days of every fourteen.

    A step is on where it begins within the time. What goes by days of the week says `Weekly`.

    Attributes:
        days: from one beginning to the next, fractions allowed.
        on_for: days that it stays on.
        first: day of the first beginning, from that of the first step; off before.
    """

    days: float
    on_for: float
    first: float = 0.0

    def check(self) -> None:
        """Raise `InputError` where a length of time is none."""
        if not (_real(self.days) and self.days > 0):
            raise InputError(f"Every: days={self.days!r}, expected a number above 0")
        if not (_real(self.on_for) and 0 < self.on_for <= self.days):
            raise InputError(f"Every: on_for={self.on_for!r}, expected a number above 0, at most days={self.days!r}")
        if not (_real(self.first) and self.first >= 0):
            raise InputError(f"Every: first={self.first!r}, expected a number of days, at least 0")

    def at(self, clock: Clock) -> "Together":  # type: ignore[override]
        """In steps."""
        step = clock.step_in_days(f"Every: days={self.days!r}")
        times = [fraction(time) for time in (self.days, self.on_for, self.first)]
        parts = math.lcm(step.denominator, *(time.denominator for time in times))
        length, period, lasts, first = (int(parts * time) for time in (step, *times))
        if length > _LONGEST:
            raise InputError(
                f"Every: days={self.days!r}, on_for={self.on_for!r}, first={self.first!r}, and steps of "
                f"{float(step):g} days are multiples of no time that could be counted; round them"
            )
        begin = first % period
        spans = [(begin, min(begin + lasts, period))]
        spans += [(0, begin + lasts - period)] if begin + lasts > period else []
        found = Repeating(tuple(spans), length, period)
        if found.never():
            raise InputError(
                f"Every: days={self.days!r}, on_for={self.on_for!r}: no step begins in it; take a smaller dt"
            )
        return found & During(days=self.first).at(clock)

    def on(self, now: State, was_on: Tensor) -> Tensor:
        raise InputError("Every: the run has not placed it in its steps")


@dataclasses.dataclass(frozen=True)
class Repeating(When):
    """On within spans of a period that repeats, in whole parts of a step; what `Weekly` and `Every` become for a run.

    Attributes:
        spans: from, and until before.
        length: of a step.
        period: length of the period.
    """

    spans: tuple[tuple[int, int], ...]
    length: int
    period: int

    def never(self) -> bool:
        """Whether no step begins in it, however many there are."""
        apart = math.gcd(self.length, self.period)  # steps begin at all multiples of it, some in later periods
        return not any(-(-low // apart) * apart < high for low, high in self.spans)

    def on(self, now: State, was_on: Tensor) -> Tensor:
        place = (now.time.step * self.length) % self.period
        found = [(place >= low) & (place < high) for low, high in self.spans]
        return functools.reduce(torch.logical_or, found)


TRIGGERS = 7  # bits of an int8 that is not negative
NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _weekday(day: Any) -> int:
    short = [name[:3] for name in NAMES]
    text = day.lower() if isinstance(day, str) else ""
    if text not in NAMES and text not in short:
        raise InputError(f"Weekly: {day!r} is no day of the week, expected {', '.join(NAMES)}")
    return short.index(text[:3])


def _of_date(date: str) -> int:
    return datetime.date.fromisoformat(date).weekday()


def _real(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float | np.number) and math.isfinite(value)


@dataclasses.dataclass(frozen=True)
class Together(When):
    """Several at once; made by ``a & b``, ``a | b`` and ``~a``.

    Each `Trigger` in it is on by its own past: a bit of what the whole keeps for the next step.

    Attributes:
        how: ``"and"``, ``"or"`` or ``"not"``.
        parts: what is combined.
    """

    how: str
    parts: tuple[When, ...]

    def check(self) -> None:
        """Raise `InputError` where a part is none, or there are too many triggers."""
        for part in self.parts:
            if not isinstance(part, During | Weekly | Every | Repeating | Trigger | Together):
                raise InputError(f"{type(part).__name__} cannot be combined by &, | and ~: only what says when can")
        if self._triggers() > TRIGGERS:
            raise InputError(f"a combination has {self._triggers()} triggers, expected at most {TRIGGERS}")

    def at(self, clock: Clock) -> "Together":  # type: ignore[override]
        """In steps."""
        return Together(self.how, tuple(part.at(clock) for part in self.parts))

    def on(self, now: State, was_on: Tensor) -> Tensor:
        raise InputError("a combination keeps more than whether it was on; see `switch`")

    def switch(self, now: State, was: Tensor) -> tuple[Tensor, Tensor]:
        kept: list[Tensor] = []
        on = self._on(now, was, kept)
        bits = [bit.to(torch.int8) << place for place, bit in enumerate(kept)]
        return on, functools.reduce(torch.bitwise_or, bits) if bits else on.to(torch.int8)

    def _on(self, now: State, was: Tensor, kept: list[Tensor]) -> Tensor:
        """Whether it is on; `kept` takes that of each trigger, in order."""
        found = []
        for part in self.parts:
            if isinstance(part, Together):
                found.append(part._on(now, was, kept))
                continue
            bit = (was >> len(kept)) & 1
            found.append(part.on(now, bit != 0))
            kept += [found[-1]] if isinstance(part, Trigger) else []
        if self.how == "not":
            return ~found[0]
        return functools.reduce(torch.logical_and if self.how == "and" else torch.logical_or, found)

    def _triggers(self) -> int:
        inner = [part._triggers() for part in self.parts if isinstance(part, Together)]
        return sum(inner) + sum(isinstance(part, Trigger) for part in self.parts)


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
