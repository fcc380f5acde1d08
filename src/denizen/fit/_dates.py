"""Dates of observed values: put in order of windows, and counted in steps."""

from typing import Any

import numpy as np

from denizen._dates import days as read_days
from denizen.errors import InputError


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
    days = read_days("Target", "dates", dates)
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
