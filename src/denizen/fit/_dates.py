"""Dates of observed values: read, put in order of windows, and counted in steps."""

from typing import Any

import numpy as np

from denizen.errors import InputError

FORMS = "ISO texts such as '2020-03-01', or dates of Python, NumPy, pandas or polars"


def day(caller: str, name: str, given: Any) -> np.datetime64:
    """One date."""
    try:
        return _days(caller, name, [given])[0]
    except InputError:
        raise InputError(f"{caller}: {name}={given!r}, expected {FORMS}") from None


def filled(values: np.ndarray, dates: Any, every: int, missing: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Values and dates of all windows from the first to the last, those included that were left out.

    Args:
        values: `[given, …]`.
        dates: of each.
        every: days from a window to the next.
        missing: what one that is left out means: "gap", "zero", or None where none may be.

    Raises:
        InputError: not a date for each value, out of order, twice the same, off the grid, or one is missing.
    """
    days = _days("Target", "dates", dates)
    if len(days) != len(values):
        raise InputError(f"Target: dates has {len(days)} dates and values {len(values)} numbers, expected one for each")
    steps = np.diff(days).astype(int)
    neighbours = list(zip(days[:-1], days[1:], steps, strict=True))
    for before, after, step in neighbours:  # before gaps are looked for: rows out of order look like gaps
        if step == 0:
            raise InputError(f"Target: dates has {after} twice, expected each once; add the values up, or drop one")
        if step < 0:
            raise InputError(f"Target: dates has {after} after {before}, expected them in order; sort both by date")
    for before, after, step in neighbours:
        if step % every:
            raise InputError(
                f"Target: dates goes from {before} to {after}, {step} days, expected a multiple of every={every}; give "
                f"every=, the days in a window"
            )
        if step > every and missing is None:
            raise InputError(
                f"Target: dates goes from {before} to {after}, expected {before + every} between them; say "
                f"missing='gap' if nothing was observed, missing='zero' if there was none, or every={step} if a value "
                f"is of {step} days"
            )
    places = (days - days[0]).astype(int) // every
    whole = np.full((places[-1] + 1, *values.shape[1:]), np.nan if missing != "zero" else 0.0)
    whole[places] = values
    return whole, days[0] + every * np.arange(len(whole))


def placed(caller: str, name: str, begins: np.datetime64, start: np.datetime64) -> int:
    """The step, from 1, of a day, where `start` is the day of step 1."""
    first = int((begins - start).astype(int)) + 1
    if first < 1:
        raise InputError(
            f"{caller}: targets[{name!r}] begins on {begins}, before start={start}, the day of the first step; give an "
            f"earlier start, or leave out values"
        )
    return first


def _days(caller: str, name: str, given: Any) -> np.ndarray:
    wanted = f"{caller}: {name}={_brief(given)}, expected {FORMS}"
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise InputError(wanted)
    # A day is that of the time zone that is given with it, and not that of UTC, which NumPy would take.
    found = np.asarray([one.date() if getattr(one, "tzinfo", None) else one for one in given])
    if found.dtype.kind not in "UOMT" or found.ndim != 1:
        raise InputError(wanted)
    if any(isinstance(one, str) and one.count("-") < 2 for one in found):  # NumPy takes "1" as the year 1
        raise InputError(wanted)
    try:
        days = found.astype("datetime64[D]")
    except (TypeError, ValueError) as error:
        raise InputError(wanted) from error
    if np.isnat(days).any():
        raise InputError(f"{caller}: {name} has no date at position {int(np.isnat(days).argmax())}, expected {FORMS}")
    return days


def _brief(given: Any) -> str:
    text = " ".join(repr(given).split())
    return text if len(text) <= 80 else f"{text[:80]}…"
