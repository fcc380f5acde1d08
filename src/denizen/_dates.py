"""Dates as people give them, read as days."""

from typing import Any

import numpy as np

from denizen.errors import InputError

FORMS = "ISO texts such as '2020-03-01', or dates of Python, NumPy, pandas or polars"


def day(caller: str, name: str, given: Any) -> np.datetime64:
    """One date."""
    try:
        return days(caller, name, [given])[0]
    except InputError:
        raise InputError(f"{caller}: {name}={given!r}, expected {FORMS}") from None


def days(caller: str, name: str, given: Any) -> np.ndarray:
    """Several dates, `[dates]` in whole days."""
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
        read = found.astype("datetime64[D]")
    except (TypeError, ValueError) as error:
        raise InputError(wanted) from error
    if np.isnat(read).any():
        raise InputError(f"{caller}: {name} has no date at position {int(np.isnat(read).argmax())}, expected {FORMS}")
    return read


def _brief(given: Any) -> str:
    text = " ".join(repr(given).split())
    return text if len(text) <= 80 else f"{text[:80]}…"
