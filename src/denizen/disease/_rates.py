"""Rates by group or by age from a table: looked up by name, every gap, overlap and missing group named."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from denizen import _arguments
from denizen.errors import DataError, InputError, nearest
from denizen.space.files import finite, table

OLDEST = 120
_SPAN = re.compile(r"(\d+)\s*(?:-|–|to)\s*(\d+)", re.IGNORECASE)
_OPEN = re.compile(r"(\d+)\s*(?:\+|and over|and older|or more)", re.IGNORECASE)
_UNDER = re.compile(r"(?:under|below|<)\s*(\d+)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class RateTable:
    """One rate for each group, such as deaths, births or hospital cases by age group.

    `of` gives the rates in the order of the codes that a model has, `by_year` those of single years of age. Both are
    tensors for fields or parameters of a model, looked up in the step by `dz.model.lookup`.

    Attributes:
        groups: names, as the file has them.
        rates: one for each, not negative.
        source: where they come from, for messages.

    Examples:
        >>> table = RateTable(("0-4", "5-64", "65+"), (0.01, 0.001, 0.05))
        >>> table.by_year()[[3, 40, 90]]
        tensor([0.0100, 0.0010, 0.0500])
    """

    groups: tuple[str, ...]
    rates: tuple[float, ...]
    source: str = "RateTable"

    def __post_init__(self) -> None:
        if not self.groups or len(self.groups) != len(self.rates):
            raise InputError(
                f"{self.source}: {len(self.groups)} groups and {len(self.rates)} rates, expected one for each"
            )
        for group, rate in zip(self.groups, self.rates, strict=True):
            _arguments.number(f"{self.source}: group {group!r}", "rate", rate, 0)
            if self.groups.count(group) > 1:
                raise DataError(f"{self.source}: group {group!r} is there twice; keep one row of it")

    @classmethod
    def from_csv(cls, path: str | Path, *, by: str = "age_group", rate: str | None = None) -> Self:
        """Read a CSV file with a header, its fields separated by commas, semicolons or tabs.

        Args:
            path: the file.
            by: name of the column of groups.
            rate: name of the column of rates; None where there is one besides `by`.

        Raises:
            DataError: a column that is missing, a cell that is no rate, a group that is there twice; names the line.
        """
        names, rows, origin = read_table(path, "RateTable.from_csv")
        if by not in names:
            raise DataError(f"{origin}: it has no column {by!r}; {nearest(by, names)}")
        others = [name for name in names if name != by]
        if rate is None and len(others) != 1:
            raise InputError(f"{origin}: columns {', '.join(others)} besides {by!r}; say which has the rates: rate=…")
        if rate is not None and rate not in others:
            raise DataError(f"{origin}: it has no column rate={rate!r}; {nearest(rate, others)}")
        chosen = others[0] if rate is None else rate
        groups, rates = [], []
        for line, row in rows:
            groups.append(row[by])
            rates.append(real(row[chosen], f"{origin}, line {line}: {chosen}"))
        return cls(tuple(groups), tuple(rates), origin)

    def of(self, groups: Sequence[str]) -> Tensor:
        """Rates in the order of a model's groups: float32 `[groups]`.

        Args:
            groups: names in the order of their codes, such as `denizen.zoo.covid.AGE_GROUPS`, or the labels of a
                population's column.

        Raises:
            DataError: a group that the table lacks.
        """
        if isinstance(groups, str) or not isinstance(groups, Sequence):
            raise InputError(f"{self.source}: groups={groups!r}, expected a list of names in the order of their codes")
        missing = [group for group in groups if group not in self.groups]
        if missing:
            raise DataError(
                f"{self.source}: no rate for {', '.join(map(repr, missing))}; {nearest(missing[0], self.groups)}"
            )
        return torch.tensor([self.rates[self.groups.index(group)] for group in groups], dtype=torch.float32)

    def by_year(self, oldest: int = OLDEST) -> Tensor:
        """Rates of single years of age: float32 `[oldest + 1]`; `age` in whole years is the code.

        Groups are ages such as "0-4" (the last year belongs to it), "17", "under 1", "65+".

        Args:
            oldest: last age that has a row; 120 is the oldest that `years` gives.

        Raises:
            DataError: a group that is no age, ages that no group has, or that two have.
        """
        oldest = _arguments.whole("RateTable.by_year", "oldest", oldest, 0, OLDEST)
        owner: dict[int, int] = {}
        for place, group in enumerate(self.groups):
            low, high = self._span(group)
            for age in range(low, min(high, oldest) + 1):
                if age in owner:
                    both = f"{self.groups[owner[age]]!r} and {group!r}"
                    raise DataError(f"{self.source}: age {age} is in {both}; let groups end before the next begins")
                owner[age] = place
        gaps = [age for age in range(oldest + 1) if age not in owner]
        if gaps:
            raise DataError(
                f"{self.source}: no rate for age{'s' if len(gaps) > 1 else ''} {_runs(gaps)}; add rows, or ask for "
                f"by_year(oldest=…) up to the last age of the table"
            )
        return torch.tensor([self.rates[owner[age]] for age in range(oldest + 1)], dtype=torch.float32)

    def _span(self, group: str) -> tuple[int, int]:
        text = group.strip()
        if found := _SPAN.fullmatch(text):
            low, high = int(found[1]), int(found[2])
            if low > high:
                raise DataError(f"{self.source}: group {group!r} ends before it begins")
            return low, high
        if found := _OPEN.fullmatch(text):
            return int(found[1]), OLDEST
        if found := _UNDER.fullmatch(text):
            return 0, int(found[1]) - 1
        if text.isdecimal():
            return int(text), int(text)
        raise DataError(f"{self.source}: group {group!r} is no age; expected such as '0-4', '17', 'under 1' or '65+'")


def read_table(path: Any, caller: str) -> tuple[list[str], list[tuple[int, dict[str, str]]], str]:
    """(names of the columns, rows with their lines, name of the file) of a CSV file with a header."""
    place = _arguments.path(caller, "path", path)
    names, rows = table(place, place.name)
    if not rows:
        raise DataError(f"{place.name}: expected a header and a row for each group")
    return names, rows, place.name


def real(cell: str, where: str) -> float:
    """A rate of a table."""
    value = finite(cell)
    if value is None or value < 0:
        raise DataError(f"{where} = {cell!r}, expected a number that is not negative, such as 0.05")
    return value


def _runs(ages: Iterable[int]) -> str:
    """Ages in words: ``5 to 9, 12``."""
    out: list[list[int]] = []
    for age in ages:
        if out and age == out[-1][1] + 1:
            out[-1][1] = age
        else:
            out.append([age, age])
    return ", ".join(f"{low}" if low == high else f"{low} to {high}" for low, high in out)
