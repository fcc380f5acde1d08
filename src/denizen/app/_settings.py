"""NAME=VALUE pairs of the command line as fields of a frozen dataclass, checked by name and type."""

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from denizen.errors import ConfigError

if TYPE_CHECKING:
    from denizen.rl import Linear


_SCIENTIFIC = re.compile(r"\d+(\.\d+)?[eE]\+?\d{1,2}")  # such as 1e3 and 1.5e6


def pairs(groups: Sequence[Sequence[str]], flag: str) -> dict[str, str]:
    """What flags such as ``--set a=1 b=2 --set c=3`` give, by name.

    Raises:
        ConfigError: something that is not NAME=VALUE, or a name that is given twice.
    """
    found: dict[str, str] = {}
    for text in (text for group in groups for text in group):
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value:
            raise ConfigError(f"{flag} {text}: expected NAME=VALUE")
        if name in found:
            raise ConfigError(f"{flag}: {name} is given twice, as {found[name]} and as {value}; give it once")
        found[name] = value
    return found


def fill(cls: type[Any], values: Mapping[str, Any], flag: str) -> Any:
    """An object of a frozen dataclass with values from texts or from a TOML file.

    Numbers may end in k, M or G; a schedule is written START:END; ``none`` is None.

    Raises:
        ConfigError: an unknown name, or a value that is none of its type.
    """
    from denizen.rl._settings import instead

    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    known = {}
    for name, value in values.items():
        if name not in names:
            raise ConfigError(f"{flag} {name}={value}: {instead(cls, name, value)}")
        known[name] = read(hints[name], value, f"{flag} {name}={value}")
    return cls(**known)


def guess(value: Any) -> Any:
    """A text as a number, a truth value, none, several of these with commas between, or a text, in this order."""
    if not isinstance(value, str):
        return value
    if "," in value:
        return tuple(guess(part.strip()) for part in value.split(","))
    if value.lower() in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[value.lower()]
    for kind in (whole, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def schedule(value: Any) -> "Linear | None":
    """The schedule that a text START:END means; None where it means something else."""
    from denizen.rl import Linear

    try:
        ends = [float(part) for part in value.split(":")] if isinstance(value, str) else []
    except ValueError:
        return None
    return Linear(*ends) if 2 <= len(ends) <= 4 else None


def whole(text: str) -> int:
    """A whole number, such as 5000, 500k, 1.5M, 2G or 1e3; raises `ValueError`."""
    factor = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}.get(text[-1:], 1)
    try:
        if factor > 1:
            number = Decimal(text[:-1]) * factor  # 1.1M is a whole number, which 1.1 * 1e6 is not
        else:  # 1.0 is a number of another kind, which options of worlds tell apart
            number = Decimal(text) if _SCIENTIFIC.fullmatch(text) else Decimal(int(text.replace("_", "")))
        if number.is_finite() and number == int(number):
            return int(number)
    except (InvalidOperation, ValueError):
        pass
    raise ValueError(f"expected a whole number such as 5000, 500k, 1.5M or 1e3, got {text!r}")


def written(text: str) -> int | float:
    """A number of a TOML file: 1e3 is a whole one, as it is behind a flag."""
    try:
        return whole(text)
    except ValueError:
        return float(text)


def read(hint: Any, value: Any, told: str) -> Any:
    """A text, or a value of a TOML file, as what a type says; `told` begins the message of a `ConfigError`."""
    options = typing.get_args(hint) if typing.get_origin(hint) is not None else (hint,)
    if value is None or (isinstance(value, str) and value.lower() == "none"):
        if type(None) in options:
            return None
        if not (value and str in options):  # a word like others, such as GRPO's scale=none
            raise ConfigError(f"{told}: expected a value, not none")
    for option in (bool, int, float, str, *options):
        if option in options and option is not type(None):
            try:
                return _convert(option, value)
            except (ValueError, TypeError):
                continue
    words = [_word(option) for option in options if option is not type(None)]
    raise ConfigError(f"{told}: expected {' or '.join(words)}")


def _convert(option: Any, value: Any) -> Any:
    if option is bool:
        if isinstance(value, bool):
            return value
        return {"true": True, "false": False}[str(value).lower()] if str(value).lower() in ("true", "false") else _no()
    if isinstance(value, bool):
        _no()
    if option is int:
        return whole(value) if isinstance(value, str) else value if isinstance(value, int) else _no()
    if option is float:
        return float(value)
    if option is str:
        return value if isinstance(value, str) else _no()
    if dataclasses.is_dataclass(option) and isinstance(value, str):
        parts = [float(part) for part in value.split(":")]
        return option(*parts)  # type: ignore[operator]
    return _no()


def _no() -> Any:
    raise ValueError


def _word(option: Any) -> str:
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
    return words.get(option, "START:END")
