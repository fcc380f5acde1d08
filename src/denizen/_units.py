"""Units of time of the calendar, by their usual names, in days."""

from fractions import Fraction

_DAYS = {
    "second": (Fraction(1, 86_400), "s", "sec"),
    "minute": (Fraction(1, 1_440), "min"),
    "hour": (Fraction(1, 24), "h", "hr"),
    "day": (Fraction(1), "d"),
    "week": (Fraction(7), "wk"),
    "month": (Fraction(487, 16), "mo"),  # a twelfth of a year, 30.4375 days
    "year": (Fraction(1_461, 4), "yr", "a"),  # the Julian year of 365.25 days, which `pint` takes too
}
_NAMES = {name: days for unit, (days, *short) in _DAYS.items() for name in (unit, f"{unit}s", *short)}


def in_days(unit: str) -> Fraction | None:
    """A unit of time in days; None for what is none, such as ``"step"``."""
    return _NAMES.get(unit)


FINEST = 1_000_000  # parts of a unit: a length of a step is a fraction whose denominator is at most this


def fraction(length: float) -> Fraction:
    """A length of time as the fraction that is meant: 1/3 for 0.3333333333333333."""
    return Fraction(length).limit_denominator(FINEST)
