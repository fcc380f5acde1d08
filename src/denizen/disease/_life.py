"""Life tables, and ages that follow the clock."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from denizen import _arguments
from denizen._units import in_days
from denizen.disease._rates import OLDEST, RateTable, read_table, real
from denizen.errors import DataError, InputError, ModelError, nearest

_CERTAIN = 2.0  # a year: the hazard of a last year that nobody survives, half of which they live on average


@dataclasses.dataclass(frozen=True)
class LifeTable:
    """A period life table with a constant hazard of death within each year of age.

    A cohort that is simulated with these hazards has the table's survivors at each birthday, at any dt that divides the
    year. The hazard of the last age holds on for those who are older.

    Attributes:
        hazard: 1/year, one for each whole year of age.
        source: where it comes from, for messages.

    Examples:
        >>> round(LifeTable.gompertz(5e-5, 0.09).e0, 1)
        76.9
    """

    hazard: tuple[float, ...]
    source: str = "LifeTable"

    def __post_init__(self) -> None:
        if not 1 <= len(self.hazard) <= OLDEST + 1:
            raise InputError(f"{self.source}: {len(self.hazard)} ages, expected 1 to {OLDEST + 1}")
        for age, hazard in enumerate(self.hazard):
            _arguments.number(f"{self.source}: age {age}", "hazard", hazard, 0)
        if self.hazard[-1] == 0:
            raise InputError(f"{self.source}: the hazard of the last age is 0, so nobody would ever die")

    @classmethod
    def from_qx(cls, qx: Sequence[float]) -> Self:
        """From probabilities to die within each year of age.

        Args:
            qx: from 0 to 1, of ages 0, 1, …; 1 at the last age alone, whose hazard then is 2 a year: a half is lived.
        """
        if isinstance(qx, str) or not hasattr(qx, "__len__"):
            raise InputError(f"LifeTable.from_qx: qx={qx!r}, expected a list of probabilities by year of age")
        hazards = [_hazard("LifeTable.from_qx", age, q, 1, age == len(qx) - 1) for age, q in enumerate(qx)]
        return cls(tuple(hazards), "LifeTable.from_qx")

    @classmethod
    def gompertz(cls, a: float, b: float, *, oldest: int = 110) -> Self:
        """Gompertz' law: hazard a * exp(b * age); exact at each birthday.

        Args:
            a: hazard at birth, 1/year.
            b: how fast it grows, 1/year.
            oldest: last age whose hazard grows.
        """
        a = _arguments.number("LifeTable.gompertz", "a", a, above=0)
        b = _arguments.number("LifeTable.gompertz", "b", b, above=0)
        oldest = _arguments.whole("LifeTable.gompertz", "oldest", oldest, 1, OLDEST)
        return cls(tuple(a / b * math.exp(b * x) * math.expm1(b) for x in range(oldest + 1)), "LifeTable.gompertz")

    @classmethod
    def from_csv(cls, path: str | Path, *, age: str = "age", value: str = "qx") -> Self:
        """Read a table by single years or by groups of ages.

        Args:
            path: CSV with a header.
            age: column of ages: the first of each interval, as in 0, 1, 5, 10, …, or groups as `RateTable` reads them;
                the last one is open.
            value: column: ``"qx"``, probabilities to die within the interval, of the open one within a year; or
                ``"mx"``, hazards in 1/year.

        Raises:
            DataError: names line or age.
        """
        value = _arguments.one_of("LifeTable.from_csv", "value", value, ("qx", "mx"))
        names, rows, origin = read_table(path, "LifeTable.from_csv")
        for wanted in (age, value):
            if wanted not in names:
                raise DataError(f"{origin}: it has no column {wanted!r}; {nearest(wanted, names)}")
        first = [row[age] for _, row in rows]
        if first[-1].endswith("+") and all(cell.isdecimal() for cell in first[:-1]):
            first[-1] = first[-1][:-1]
        if all(cell.isdecimal() for cell in first):
            begins = [int(cell) for cell in first]
            if begins[0] != 0 or begins != sorted(set(begins)):
                raise DataError(f"{origin}: ages {', '.join(first[:5])}, …: expected ages from 0 on that rise")
            ends = [*[begin - 1 for begin in begins[1:]], OLDEST]
            labels = [f"{b}-{e}" for b, e in zip(begins, ends, strict=True)]
        else:
            labels = first
        spans = RateTable(tuple(labels), (0.0,) * len(labels), origin)
        ages = [spans._span(label) for label in labels]
        oldest = max(low for low, _ in ages)
        lengths = [1 if high == OLDEST else high - low + 1 for low, high in ages]
        hazards = [real(row[value], f"{origin}, line {line}: {value}") for line, row in rows]
        certain = None  # the line of a last group that nobody survives
        for k, (line, _) in enumerate(rows if value == "qx" else ()):
            last = ages[k][0] == oldest
            certain = line if last and hazards[k] == 1 else certain
            hazards[k] = _hazard(f"{origin}, line {line}", k, hazards[k], lengths[k], last)
        found = cls(tuple(RateTable(tuple(labels), tuple(hazards), origin).by_year(oldest).double().tolist()), origin)
        if certain is not None and max(lengths) > 1:
            raise DataError(
                f"{origin}, line {certain}: qx=1 of the last group does not say how long they live; read hazards, "
                f"value='mx', or write the probability to die within a year there, that of an open group"
            )
        return found

    @property
    def qx(self) -> tuple[float, ...]:
        """Probability to die within each year of age."""
        return tuple(-math.expm1(-hazard) for hazard in self.hazard)

    def survival(self, oldest: int = 110) -> tuple[float, ...]:
        """Share alive at each birthday, from 0 to `oldest`."""
        out = [1.0]
        for age in range(oldest):
            out.append(out[-1] * math.exp(-self.hazard[min(age, len(self.hazard) - 1)]))
        return tuple(out)

    @property
    def e0(self) -> float:
        """Life expectancy at birth, in years: the integral of the survival."""
        alive, years = 1.0, 0.0
        for hazard in self.hazard[:-1]:
            years += alive * (-math.expm1(-hazard) / hazard if hazard else 1.0)
            alive *= math.exp(-hazard)
        return years + alive / self.hazard[-1]

    def rates(self, unit: str = "year") -> Tensor:
        """Hazards for `dz.model.lookup` by age in whole years: float32 `[OLDEST + 1]`, in 1/`unit`.

        Args:
            unit: the model's unit of time, its `time_unit`.
        """
        filled = [*self.hazard, *[self.hazard[-1]] * (OLDEST + 1 - len(self.hazard))]
        return torch.tensor(filled, dtype=torch.float64).mul(_years(unit, "LifeTable.rates")).to(torch.float32)


def years(now: Any, born: Tensor) -> Tensor:
    """Ages in whole years: uint8 `[agents]`, from 0 to 120, the code for `dz.model.lookup`.

    Args:
        now: the state, for its clock.
        born: float32 `[agents]`: when each was born, in years since the start of the run; negative for those who lived
            then: ``born = -age`` in `init`, and `birthday(now)` for the newborn.
    """
    if not isinstance(born, Tensor) or not born.is_floating_point():
        raise ModelError(
            "years: born is no real field; declare born: Tensor = dz.real('agents'), years since the start"
        )
    age = birthday(now) - born
    return (age + 1e-4).floor().clamp(0, OLDEST).to(torch.uint8)  # a birthday falls on its step in spite of rounding


def birthday(now: Any) -> Tensor:
    """The time of the step in years since the start, float32 0-d: when those who are born in it are born."""
    return now.time.step.to(torch.float32) * (now.time.dt * _years(now.time.unit, "birthday"))


def _years(unit: str, caller: str) -> float:
    days = in_days(unit)
    if days is None:
        raise InputError(f"{caller}: unit={unit!r}, expected one of the calendar, such as 'day'; set time_unit")
    return float(days) / 365.25


def _hazard(where: str, age: int, q: Any, length: int, last: bool) -> float:
    q = _arguments.share(f"{where}: row {age}", "qx", q)
    if q == 1 and not last:
        raise DataError(f"{where}: row {age} has qx=1, so nobody would reach the next age; end the table there")
    return _CERTAIN if q == 1 else -math.log1p(-q) / length
