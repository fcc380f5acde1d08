"""Which column of a file names the agents, and from a name to the agent's row."""

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from denizen.errors import DataError
from denizen.population._columns import Raw
from denizen.space.files import Columns, is_missing, is_number, whole_numbers

_NAMES = ("id", "agentid", "personid", "individualid", "nodeid", "uniqueid", "pid", "uid")
_WHOLE = re.compile(r"\s*([+-]?\d{1,400})(?:\.0*)?\s*", re.ASCII)
_DENSE = 8  # ids that spread over fewer than this many numbers per agent are looked up in a table


def is_id(name: str) -> bool:
    """Whether a column of this name is taken to hold ids: `id`, `agent_id`, `Person ID` and so on."""
    return re.sub(r"[\s_.\-]", "", name).lower() in _NAMES


def named(names: Iterable[str], ids: str | bool, origin: str) -> str | None:
    """The one column of a file that holds ids, or None.

    Raises:
        DataError: more than one may.
    """
    found = [name for name in names if (name == ids if isinstance(ids, str) else ids and is_id(name))]
    if len(found) > 1:
        raise DataError(
            f"{origin}: columns {', '.join(map(repr, found))} may all hold ids; pass ids={found[0]!r}, or "
            f"rename the others"
        )
    return found[0] if found else None


class Ids:
    """The ids of the agents, one for each row, all different.

    Raises:
        DataError: a missing id, one that occurs twice, or real numbers.
    """

    def __init__(self, raw: Raw, column: str, origin: str) -> None:
        self.column, self.origin = column, origin
        self.raw = raw = self._sound(raw)
        self._exact: dict[str, int] = {}
        if raw.labels is None:
            self._order = np.argsort(raw.values, kind="stable")
            self._sorted = raw.values[self._order]
            again = np.flatnonzero(self._sorted[1:] == self._sorted[:-1])
            if again.size:
                self._twice(self._order[again[0] : again[0] + 2].tolist(), again.size)
        else:
            counts = np.bincount(raw.values, minlength=len(raw.labels))
            if (counts > 1).any():
                self._twice(np.flatnonzero(raw.values == counts.argmax())[:2].tolist(), int((counts > 1).sum()))
            rows = np.full(len(raw.labels), -1)
            rows[raw.values] = np.arange(len(raw.values))
            self._exact = {label: row for label, row in zip(raw.labels, rows.tolist(), strict=True) if row >= 0}

    def __len__(self) -> int:
        return len(self.raw.values)

    def __str__(self) -> str:
        return f"column {self.column!r} of {self.origin}"

    @property
    def texts(self) -> bool:
        """Whether ids are names rather than integers."""
        return self.raw.labels is not None

    @property
    def counted(self) -> bool:
        """Whether ids are the numbers of the rows."""
        return not self.texts and bool((self.raw.values == np.arange(len(self))).all())

    def holds(self, label: str) -> bool:
        """Whether some agent has this id."""
        return label in self._exact or int(self._by_label([label], [])[0]) >= 0

    def rows(self, where: Columns, side: str, raw: Raw, report: list[str]) -> np.ndarray:
        """The row of each of the ids in `raw`, int64; by spelling, or else by value where that is unambiguous.

        Raises:
            DataError: an id that is missing or that no agent has.
        """
        if raw.labels is None:
            values = whole_numbers(where, side, raw.values, report)
            if not self.texts:
                return self._known(where, side, values, self._by_value(values))
            distinct, codes = np.unique(values, return_inverse=True)
            raw = replace(raw, values=codes, labels=tuple(map(str, distinct.tolist())))
        missing = np.flatnonzero(raw.values < 0)
        labels = np.array([*(raw.labels or ()), "nothing"], dtype=object)
        if missing.size:
            raise where.error(
                side, missing, labels[raw.values], "every edge has two ends; complete or remove these rows"
            )
        found = self._by_label(labels[:-1].tolist(), report)
        return self._known(where, side, labels[raw.values], found[raw.values])

    def _by_value(self, values: np.ndarray) -> np.ndarray:
        if not len(self):
            return np.full(len(values), -1)
        low, high = int(self._sorted[0]), int(self._sorted[-1])
        if high - low < _DENSE * len(self):
            table = np.full(high - low + 2, -1)
            table[self._sorted - low] = self._order
            inside = (values >= low) & (values <= high)
            return table[np.where(inside, values, high + 1) - low]
        place = np.searchsorted(self._sorted, values).clip(max=len(self) - 1)
        return np.where(self._sorted[place] == values, self._order[place], -1)

    def _by_label(self, labels: Sequence[str], report: list[str]) -> np.ndarray:
        if not self.texts:
            whole = [_folded(label) for label in labels]
            numbers = [int(text) if _WHOLE.fullmatch(text) else 2**63 for text in whole]
            fits = np.array([-(2**63) <= number < 2**63 for number in numbers], dtype=bool)
            values = np.array([number if fit else 0 for number, fit in zip(numbers, fits, strict=True)], dtype=np.int64)
            return np.where(fits, self._by_value(values), -1)
        found = np.array([self._exact.get(label, -1) for label in labels], dtype=np.int64)
        if (found >= 0).all():
            return found
        if len(self._loose) < len(self._exact):  # such as 007 beside 7
            return found
        loose = np.array([self._loose.get(_folded(label), -1) for label in labels], dtype=np.int64)
        if (loose >= 0).all():
            report.append(f"{self}: ids are matched by value where they are spelled otherwise, such as 007 and 7.")
        return loose

    @functools.cached_property
    def _loose(self) -> dict[str, int]:
        return {_folded(label): row for label, row in self._exact.items()}

    def _known(self, where: Columns, side: str, values: np.ndarray, rows: np.ndarray) -> np.ndarray:
        wrong = np.flatnonzero(rows < 0)
        if wrong.size:
            raise where.error(
                side,
                wrong,
                values,
                f"no agent has this id in {self}; correct it, or pass ids=False if these "
                "are the numbers of rows, counted from 0",
            )
        return rows

    def _sound(self, raw: Raw) -> Raw:
        """Integers, or labels none of which is missing."""
        values = raw.values
        if raw.labels is not None:
            numbers = all(is_number(label) for label in raw.labels)
            lost = [k for k, label in enumerate(raw.labels) if not label.strip() or (numbers and is_missing(label))]
            missing = (values < 0) | np.isin(values, lost)
        else:
            if values.dtype.kind not in "iuf":
                raise DataError(f"{self} has type {values.dtype}; ids are integers or names. {_WAY_OUT}")
            missing = ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros(0, bool)
        if missing.any():
            row = int(np.flatnonzero(missing)[0])
            raise DataError(
                f"{self} has {int(missing.sum())} missing ids, the first in {raw.place(row)}; complete them. {_WAY_OUT}"
            )
        if raw.labels is not None:
            return raw
        if values.dtype.kind == "f" and ((values != np.trunc(values)) | (np.abs(values) > 2**53)).any():
            raise DataError(f"{self} holds real numbers; ids are integers or names. {_WAY_OUT}")
        if values.dtype.kind == "u" and values.size and int(values.max()) >= 2**63:
            return replace(raw, values=np.arange(len(values)), labels=tuple(map(str, values.tolist())))
        return replace(raw, values=values.astype(np.int64))

    def _twice(self, rows: list[int], count: int) -> None:
        held = self.raw.texts()[rows[0]]
        one, two = (self.raw.place(row) for row in sorted(rows))
        raise DataError(
            f"{self} holds {held!r} twice, in {one} and {two} ({count} such id{'s' * (count > 1)}); every agent needs "
            f"an id of its own. {_WAY_OUT}"
        )


_WAY_OUT = "If the column is no id, rename it, or pass ids=False"


def _folded(label: str) -> str:
    """One spelling for integers that have the same value: `007`, `7.0` and ` 7` are `7`."""
    whole = _WHOLE.fullmatch(label)
    return str(int(whole[1])) if whole else label.strip()
