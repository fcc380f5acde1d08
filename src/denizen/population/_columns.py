"""From raw values to the columns of a population: narrow integers, or float32 where values are real, and labels.

Strings become codes with a table of labels. Missing values and infinities are errors, never zeros.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from denizen.errors import DataError, nearest

STAGES = "disease_stages"
INDEX = ("", "__index_level_0__", "unnamed: 0", "unnamed: 0.1")
"""Names, in lower case, that a saved row index has: no attributes."""
COUNTER = "index"
"""The name that pandas and polars give to a row index which they make a column: an attribute, as others may mean it."""


@dataclass(frozen=True, eq=False)
class Raw:
    """Values as a file holds them: numbers, or integer codes (missing: -1) with their labels.

    `first_line` is the line of the first row in a text file. `exact` says that the labels are spelled as in the file
    even where all are numbers.
    """

    values: np.ndarray
    labels: tuple[str, ...] | None = None
    first_line: int | None = None
    exact: bool = False

    def place(self, row: int) -> str:
        """Where a row stands."""
        return f"row {row} (counted from 0)" if self.first_line is None else f"line {self.first_line + row}"

    def texts(self) -> list[str]:
        """Each value as text."""
        if self.labels is None:
            return [str(value) for value in self.values.tolist()]
        return [self.labels[code] if code >= 0 else "" for code in self.values.tolist()]


def strings(items: Sequence[str | None]) -> Raw:
    """Codes and sorted labels of a column of strings; None becomes -1."""
    labels = sorted({item for item in items if item is not None})
    places: dict[str | None, int] = {label: code for code, label in enumerate(labels)}
    places[None] = -1
    codes = np.fromiter((places[item] for item in items), dtype=np.int64, count=len(items))
    return Raw(codes, tuple(labels))


def categorical(codes: np.ndarray, labels: Sequence[str]) -> Raw:
    """Codes with the labels that a file declares for them."""
    return Raw(codes.astype(np.int64), tuple(labels))


def narrow(values: np.ndarray) -> np.ndarray | None:
    """The smallest of uint8, int16 and int32 that holds the integers, or None where none does."""
    if values.size == 0:
        return values.astype(np.uint8)
    low, high = int(values.min()), int(values.max())
    for kind in (np.uint8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return None


def finish(
    name: str, raw: Raw, known: Sequence[str] | None, origin: str
) -> tuple[np.ndarray, list[str] | None, list[str]]:
    """The stored form of one column.

    Args:
        name: the column's name.
        raw: values as read.
        known: labels that the user or `mapping.json` states, position = code.
        origin: the file's name, for messages.

    Returns:
        values (uint8, int16, int32 or float32), labels or None, sentences for the report.

    Raises:
        DataError: missing, infinite or unknown values.
    """
    if raw.labels is not None:
        return _finish_labels(name, raw, known, origin)
    values, notes = raw.values, []
    if values.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise DataError(
                f"{origin}: column {name!r} has {bad.size} missing or infinite values, the first in {raw.place(bad[0])}"
                "; fill them, or leave the column out: remove it, or pass columns=[...] to load"
            )
        if values.size and (np.abs(values) < 2**62).all() and (values == np.trunc(values)).all():
            values = values.astype(np.int64)
            notes.append(
                f"{origin}: column {name!r} is written as real numbers but holds only whole ones; stored as integers."
            )
    if values.dtype.kind == "f":
        return _real(name, values, origin), None, notes
    if values.dtype.kind not in "biu":
        raise DataError(
            f"{origin}: column {name!r} has type {values.dtype}; expected integers, real numbers, booleans or strings"
        )
    stored = narrow(values)
    if stored is None:
        distinct, codes = np.unique(values, return_inverse=True)
        notes.append(f"{origin}: column {name!r} does not fit in 32 bits; stored as {distinct.size} codes with labels.")
        return _fit(codes), [str(value) for value in distinct.tolist()], notes
    labels = None if known is None else list(known)
    if labels is not None and stored.size:
        if int(stored.min()) < 0:
            raise DataError(
                f"{origin}: column {name!r} has the negative code {stored.min()}, but its labels count from 0"
            )
        if int(stored.max()) >= len(labels):
            notes.append(
                f"{origin}: column {name!r} has codes up to {stored.max()} and labels for 0 to {len(labels) - 1} only."
            )
    return stored, labels, notes


def _fit(codes: np.ndarray) -> np.ndarray:
    stored = narrow(codes)
    assert stored is not None  # fewer codes than agents, and agents fit in int32
    return stored


def _real(name: str, values: np.ndarray, origin: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        stored = values.astype(np.float32)
    if not np.isfinite(stored).all():
        raise DataError(
            f"{origin}: column {name!r} has values beyond the range of float32 ({np.abs(values).max():.3g})"
        )
    return stored


def _finish_labels(
    name: str, raw: Raw, known: Sequence[str] | None, origin: str
) -> tuple[np.ndarray, list[str] | None, list[str]]:
    assert raw.labels is not None
    missing = np.flatnonzero(raw.values < 0)
    if missing.size:
        raise DataError(
            f"{origin}: column {name!r} has {missing.size} missing values, the first in {raw.place(missing[0])}; "
            "fill them, or leave the column out: remove it, or pass columns=[...] to load"
        )
    if known is None:
        labels = list(raw.labels)
        note = f"{origin}: column {name!r} holds strings; stored as {len(labels)} codes with labels in sorted order."
        return _fit(raw.values), labels, [note]
    used = np.unique(raw.values)
    table = np.full(len(raw.labels), -1, dtype=np.int64)
    places = Labels(known)
    for code in used.tolist():
        place = places.place(raw.labels[code])
        if place is None:
            raise DataError(
                f"{origin}: column {name!r} holds {raw.labels[code]!r}, which is not among its labels; "
                f"{nearest(raw.labels[code], known)}"
            )
        table[code] = place
    return _fit(table[raw.values]), list(known), []


def canonical(label: str) -> str:
    """One spelling for labels that mean the same age band: `20t29` is `20-29`, `65A` is `65+`, `U19` is `under 19`."""
    label = " ".join(label.split())
    text = label.lower().replace("–", "-")
    if match := re.fullmatch(r"(\d{1,3}) ?(?:t|to|-) ?(\d{1,3})", text):
        return f"{int(match[1])}-{int(match[2])}"
    if match := re.fullmatch(r"(\d{1,3}) ?(?:a|\+|plus|and over|and above|or more)", text):
        return f"{int(match[1])}+"
    if match := re.fullmatch(r"(?:u|under|<) ?(\d{1,3})", text):
        return f"under {int(match[1])}"
    return label


class Labels:
    """Places of labels in a list: by exact spelling, or else by another spelling of the same age band."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = list(labels)
        self._exact = {label: place for place, label in reversed(list(enumerate(labels)))}
        self._canonical = {canonical(label): place for place, label in reversed(list(enumerate(labels)))}

    @property
    def distinct(self) -> bool:
        """Whether no two labels mean the same."""
        return len(self._canonical) == len(self.labels)

    def place(self, label: str) -> int | None:
        """Position of `label`, the first of equals, or None."""
        return self._exact.get(label, self._canonical.get(canonical(label)))


def stages(values: np.ndarray, raw: Raw, origin: str) -> np.ndarray:
    """Disease stages as int8.

    Raises:
        DataError: a stage is not a whole number from 0 to 127.
    """
    whole: Any = values.astype(np.int64)
    wrong = np.flatnonzero((whole != values) | (whole < 0) | (whole > 127))
    if wrong.size:
        raise DataError(
            f"{origin}, {raw.place(wrong[0])}: disease stage {values[wrong[0]]:g}; expected whole numbers from 0 "
            f"(susceptible) to 127"
        )
    return whole.astype(np.int8)
