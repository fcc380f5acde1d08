"""Designs: which sets of values a sweep has, as a grid, a list, or points spread over ranges.

A design is an object with a method `sets(knobs)`, which gives names and rows of values. What is swept is a knob: it
says what values it takes and between which bounds, see `denizen.sweeps._knobs`.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from denizen._arguments import path, switch, whole
from denizen.errors import DataError, InputError, need
from denizen.rng import MAX_SEED
from denizen.space.files import table
from denizen.sweeps._knobs import Knob

MOST_SETS = 1_000_000

Find = Callable[[str], Knob]
Sets = tuple[list[str], list[list[Any]]]
Range = tuple[float, float] | None


class Design(Protocol):
    """Which sets of values a sweep has."""

    def sets(self, find: Find) -> Sets:
        """Names, and a row of values for each set; `find(name)` tells what may be swept of that name."""
        ...


@dataclasses.dataclass(frozen=True)
class Grid:
    """Every combination of some values: the last name changes fastest.

    Attributes:
        values: a list of values by name.
    """

    values: Mapping[str, Sequence[Any]]

    def sets(self, find: Find) -> Sets:
        if not isinstance(self.values, Mapping) or not self.values:
            raise InputError(f"Grid: values={self.values!r}, expected lists of values by name, such as {{'R': [2, 3]}}")
        read = {}
        for name, given in self.values.items():
            knob = find(name)
            if isinstance(given, str) or not hasattr(given, "__iter__"):
                raise InputError(f"Grid: {name}={given!r}, expected a list of values")
            values = [knob.read(value) for value in given]
            if not values:
                raise InputError(f"Grid: {name} has no values, so the grid is empty; give at least one")
            seen: set[Any] = set()
            for value in values:
                if value in seen:
                    raise InputError(f"Grid: {name} has {value!r} twice; give each value once")
                seen.add(value)
            read[name] = values
        _check_count("Grid", math.prod(map(len, read.values())))
        return list(read), [list(row) for row in itertools.product(*read.values())]


@dataclasses.dataclass(frozen=True)
class Listed:
    """Sets that are written out.

    Attributes:
        rows: values by name, one mapping for each set, all of the same names.
    """

    rows: Sequence[Mapping[str, Any]]
    _places: Sequence[str] = dataclasses.field(default=(), repr=False, compare=False)  # lines of a file

    @classmethod
    def from_csv(cls, file: Path | str) -> "Listed":
        """The rows of a CSV file, whose header has the names.

        Raises:
            DataError: it cannot be read, or has no rows; names the line.
        """
        file = path("Listed.from_csv", "file", file)
        _, rows = table(file, str(file), marks=",")
        if not rows:
            raise DataError(f"{file} has no rows; expected a header with names, and a line of values for each set")
        return cls([row for _, row in rows], [f" in line {line} of {file}" for line, _ in rows])

    def sets(self, find: Find) -> Sets:
        if isinstance(self.rows, str | Mapping) or not isinstance(self.rows, Iterable):
            raise InputError(f"Listed: rows={self.rows!r}, expected a list of values by name, a mapping for each set")
        rows = list(self.rows)
        if not rows or not all(isinstance(row, Mapping) and row for row in rows):
            raise InputError("Listed: expected values by name, a mapping for each set, at least one")
        names = list(rows[0])
        _check_count("Listed", len(rows))
        for k, row in enumerate(rows):
            if set(row) != set(names):
                odd = sorted(set(row) ^ set(names))[0]
                raise InputError(f"Listed: set {k} and set 0 differ in {odd!r}; give every set the same names")
        knobs = {name: find(name) for name in names}
        places = self._places or [f" in set {k}" for k in range(len(rows))]
        return names, [
            [knobs[name].read(row[name], place) for name in names] for place, row in zip(places, rows, strict=True)
        ]


@dataclasses.dataclass(frozen=True)
class _Spread:
    """Points spread over ranges.

    Attributes:
        count: number of sets.
        ranges: (low, high) by name; None for the bounds that the model declares. Or names alone, for these bounds.
        seed: of the points.
    """

    count: int
    ranges: Mapping[str, Range] | Sequence[str]
    seed: int = 0

    def sets(self, find: Find) -> Sets:
        caller = type(self).__name__
        count = whole(caller, "count", self.count, 1, MOST_SETS)
        whole(caller, "seed", self.seed, 0, MAX_SEED)
        spans = self.spans(find)
        points = self._points(count, list(spans))
        _check_count(caller, len(points))
        columns = [span.of(points[:, k]) for k, span in enumerate(spans.values())]
        return list(spans), [list(row) for row in zip(*columns, strict=True)]

    def spans(self, find: Find) -> dict[str, "Span"]:
        """The ranges, checked."""
        caller, given = type(self).__name__, self.ranges
        if isinstance(given, str) or not isinstance(given, Iterable) or not list(given):
            raise InputError(f"{caller}: ranges={given!r}, expected (low, high) by name, such as {{'R': (1, 4)}}")
        pairs = given.items() if isinstance(given, Mapping) else [(name, None) for name in given]
        return {name: _span(caller, find(name), ends) for name, ends in pairs}

    def _points(self, count: int, names: list[str]) -> np.ndarray:
        """Float64 `[sets, names]` from 0 to 1."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Span:
    """A range of a knob: from low to high, of whole numbers where `whole`."""

    low: float
    high: float
    whole: bool

    def of(self, unit: np.ndarray) -> list[Any]:
        """Numbers from 0 to 1 in this range; of whole numbers each gets an equal share."""
        if self.whole:
            shares = np.floor(self.low + unit * (self.high - self.low + 1))
            return [int(value) for value in np.clip(shares, self.low, self.high)]
        return [float(value) for value in np.clip(self.low + unit * (self.high - self.low), self.low, self.high)]


class Random(_Spread):
    """Independent points, each as likely as any other."""

    def _points(self, count: int, names: list[str]) -> np.ndarray:
        return np.random.default_rng(self.seed).random((count, len(names)))


class Latin(_Spread):
    """A Latin hypercube: of every name each of `count` equal parts of its range is met once (scipy.stats.qmc)."""

    def _points(self, count: int, names: list[str]) -> np.ndarray:
        return _qmc().LatinHypercube(len(names), rng=np.random.default_rng(self.seed)).random(count)


class Sobol(_Spread):
    """Points of a scrambled Sobol sequence, which leave no gaps (scipy.stats.qmc); `count` is a power of two."""

    def _points(self, count: int, names: list[str]) -> np.ndarray:
        _check_power("Sobol", count)
        sampler = _qmc().Sobol(len(names), rng=np.random.default_rng(self.seed))
        return sampler.random_base2(count.bit_length() - 1)


@dataclasses.dataclass(frozen=True)
class Saltelli(_Spread):
    """Points for Sobol's indices (`Sweep.indices`): `count` times (names + 2) sets, by SALib.

    Attributes:
        second_order: whether indices of pairs are wanted, too: `count` times (2 names + 2) sets.
    """

    second_order: bool = False

    def _points(self, count: int, names: list[str]) -> np.ndarray:
        whole("Saltelli", "count", count, 2)  # of one point there is no variance
        _check_power("Saltelli", count)
        switch("Saltelli", "second_order", self.second_order)
        _check_count("Saltelli", count * ((1 + self.second_order) * len(names) + 2))
        sample = need("SALib.sample.sobol", "sensitivity", "draw the sets for Sobol's indices")
        found = sample.sample(problem(names), count, calc_second_order=self.second_order, seed=self.seed)
        return np.asarray(found, dtype=np.float64)


def problem(names: Sequence[str]) -> dict[str, Any]:
    """What SALib calls a problem: points from 0 to 1 for each name."""
    return {"num_vars": len(names), "names": list(names), "bounds": [[0.0, 1.0]] * len(names)}


def as_design(caller: str, given: Any) -> Design:
    """A design, where lists by name stand for a grid, and a list of mappings for itself.

    Raises:
        InputError: it is nothing of these.
    """
    if isinstance(given, Mapping):
        return Grid(given)
    if isinstance(given, list | tuple):
        return Listed(given)
    if isinstance(given, type) or not callable(getattr(given, "sets", None)):
        raise InputError(
            f"{caller}: design={given!r}, expected lists of values by name, such as {{'R': [2, 3]}}, or a design, such "
            f"as dz.sweeps.Latin(64, {{'R': (1, 4)}})"
        )
    return given


def _span(caller: str, knob: Knob, ends: Range) -> Span:
    if knob.kind not in ("number", "whole"):
        raise InputError(f"{caller}: {knob.name} is no number, so it has no range; sweep it with a grid or a list")
    if ends is None:
        lacking = [word for word, bound in (("lower", knob.low), ("upper", knob.high)) if bound is None]
        if lacking:
            raise InputError(
                f"{caller}: {knob.name} declares no {' and no '.join(lacking)} bound; give its range, such as "
                f"{{{knob.name!r}: (1, 4)}}"
            )
        ends = float(knob.low or 0), float(knob.high or 0)
    if not isinstance(ends, tuple | list) or len(ends) != 2:
        raise InputError(f"{caller}: {knob.name}={ends!r}, expected (low, high)")
    low, high = (knob.read(end) for end in ends)
    if not low < high:
        raise InputError(f"{caller}: {knob.name}={ends!r}, expected a range whose low end lies below its high end")
    return Span(low, high, knob.kind == "whole")


def _check_power(caller: str, count: int) -> None:
    if count & (count - 1):
        below = 1 << (count.bit_length() - 1)
        raise InputError(
            f"{caller}: count={count}, expected a power of two, such as {below} or {2 * below}: other sizes leave gaps"
        )


def _check_count(caller: str, count: int) -> None:
    if count > MOST_SETS:
        raise InputError(f"{caller}: {count:,} sets, expected at most {MOST_SETS:,}; take fewer values or points")


def _qmc() -> Any:
    return need("scipy.stats.qmc", "stats", "spread points over ranges")
