"""Units: of time of the calendar, by their usual names, in days; and quantities as people give them, as numbers.

A quantity is a text such as ``"0.3/week"``, or one of `pint`. It becomes a number where a user gives it, and nothing
else sees more than numbers. Units of time are converted here; others that differ need `pint`.
"""

import re
from fractions import Fraction
from typing import Any

from denizen.errors import need

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


_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_NAME = r"(?P<name>[^\W\d]\w*|%)(?:\s*(?:\*\*|\^)\s*(?P<power>-?\d+))?"
_SYMBOL = 3  # letters, at most, of a symbol, whose s is no plural: "ms" are no metres
_PART = re.compile(rf"\s*(?P<how>[*/·]|\bper\b)?\s*(?:(?P<number>{_NUMBER})|{_NAME})")


def read(unit: str) -> tuple[Fraction, dict[str, int]] | None:
    """A unit as (factor, powers by name), times of the calendar as powers of ``"day"``; None for what is none.

    ``"1/contact/week"`` is 1/7 of ``{"contact": -1, "day": -1}``. A word after a word, without ``*`` or ``/``, makes it
    words for people, such as ``"years of age"``.
    """
    factor, powers, at = Fraction(1), dict[str, int](), 0
    while at < len(unit.rstrip()):
        found = _PART.match(unit, at)
        if found is None or (at and not found["how"]) or (not at and found["how"] not in (None, "/", "per")):
            return None
        at, power = found.end(), int(found["power"] or 1) * (-1 if found["how"] in ("/", "per") else 1)
        if found["number"]:
            number = Fraction(found["number"])
            if not number:
                return None
            factor *= number**power
            continue
        days, name = in_days(found["name"]), found["name"]
        factor *= (days or Fraction(1)) ** power
        name = "day" if days else name.removesuffix("s") if len(name) > _SYMBOL else name
        powers[name] = powers.get(name, 0) + power
    return factor, {name: power for name, power in powers.items() if power}


def times(unit: str) -> list[str]:
    """Names of the units of time of the calendar in a unit."""
    parts = _PART.finditer(unit) if read(unit) is not None else ()
    return [part["name"] for part in parts if part["name"] and in_days(part["name"])]


def is_quantity(value: Any) -> bool:
    """Whether a value brings a unit: a text, or a quantity of `pint`."""
    return isinstance(value, str) or (hasattr(value, "magnitude") and hasattr(value, "units"))


def unit_of(text: str) -> str:
    """The unit that follows a number; empty where a text is no quantity."""
    try:
        given = _split(text)[1]
    except ValueError:
        return ""
    return given if read(given) is not None else ""


def number(value: Any, unit: str) -> Any:
    """A quantity in a unit: a number, or what numbers `pint` holds.

    Raises:
        ValueError: it is none, or of another kind; says so in words.
        MissingExtra: it needs `pint`, which is not installed.
    """
    amount, given = _split(value)
    one, other = read(given), read(unit)
    if not unit or other is None:
        raise ValueError("the parameter has no unit that could be converted to")
    if not given or one is None:
        raise ValueError(f"{given!r} is no unit" if given else "no unit follows the number")
    if one[1] == other[1]:
        return amount if one[0] == other[0] else amount * float(one[0] / other[0])
    pint = need("pint", "units", f"to convert {given!r} to {unit!r}")
    try:
        there = value if not isinstance(value, str) else pint.UnitRegistry().Quantity(amount, given)
        return there.to(unit).magnitude
    except (pint.errors.PintError, AttributeError) as error:
        raise ValueError(f"{given!r} cannot be converted to {unit!r}") from error


def _split(value: Any) -> tuple[Any, str]:
    """(number, unit) of a quantity."""
    if not isinstance(value, str):
        return value.magnitude, str(value.units)
    found = re.match(rf"\s*({_NUMBER})\s*", value)
    if found is None:
        raise ValueError("no number begins it")
    return float(found[1]), value[found.end() :].strip()
