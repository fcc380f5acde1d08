"""What words of the command line and of a `--config` file mean: pairs, numbers, tables, and which of both gave them."""

import contextlib
import dataclasses
import math
import re
import tomllib
import types
import typing
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from denizen.errors import ConfigError, InputError, nearest

if TYPE_CHECKING:
    from denizen.rl import Linear


PAIRS = ("set", "scale", "world", "policy", "validation", "option", "a", "b", "grid")  # flags that take NAME=VALUE
HIDDEN = ("about", "config", "file")  # fields of commands that are no keys of a file
_FLAG = re.compile(r"--([a-z][a-z-]*)")
_NAMES = re.compile(r"(?<=\s)[^\s=:]+(?==|:)")
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
            first = "" if equals else f"; the model, world or run folder comes before {flag}"
            raise ConfigError(f"{flag} {text}: expected NAME=VALUE{first}")
        if name in found:
            raise ConfigError(f"{flag}: {name} is given twice, as {found[name]} and as {value}; give it once")
        found[name] = value
    return found


def fill(cls: type[Any], values: Mapping[str, Any], flag: str) -> Any:
    """An object of a frozen dataclass with values from texts or from a TOML file.

    Numbers may end in k, M or G; a schedule is written START:END, or kl:TARGET:START; ``none`` is None.

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
    try:
        return cls(**known)
    except InputError as error:
        found = re.match(rf"{cls.__name__}: (\w+)=.*?, (expected .*)", str(error))
        if found is None or found[1] not in values:
            raise
        raise ConfigError(f"{flag} {found[1]}={values[found[1]]}: {found[2]}") from error


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


def number(text: str) -> float:
    """A finite number, such as 0.5, 1e-3 or 10; raises `ValueError`."""
    with contextlib.suppress(ValueError):
        found = float(text)
        if math.isfinite(found):
            return found
    raise ValueError(f"expected a number such as 10 or 0.5, got {text!r}")


def within(flag: str, value: int | None, low: int, high: int | None = None) -> None:
    """Raise `ConfigError` where the number of a flag is not within limits; None is no number."""
    if value is not None and not (low <= value and (high is None or value <= high)):
        limits = f", at least {low}" if high is None else f" from {low} to {high}"
        raise ConfigError(f"{flag} {value}: expected a whole number{limits}")


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
        return float(value) if float(value) == float(value) else _no()  # nan is no number
    if option is str:
        return value if isinstance(value, str) else _no()
    if dataclasses.is_dataclass(option) and isinstance(value, str):
        adaptive = option.__name__ == "AdaptiveKL"
        if adaptive and not value.startswith("kl:"):
            _no()
        parts = [float(part) for part in value.removeprefix("kl:" if adaptive else "").split(":")]
        return option(*parts)  # type: ignore[operator]
    return _no()


def _no() -> Any:
    raise ValueError


def _word(option: Any) -> str:
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
    return words.get(option, "kl:TARGET" if getattr(option, "__name__", "") == "AdaptiveKL" else "START:END")


# --- files ------------------------------------------------------------------------------------------------------------


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file holds; its key `compile` stands for two flags.

    Raises:
        ConfigError: the file cannot be read, or is not TOML.
    """
    try:
        raw = tomllib.loads(path.read_bytes().decode("utf-8"), parse_float=written)
    except OSError as error:
        raise ConfigError(f"--config {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--config {path} is not valid TOML: {error}") from None
    if isinstance(raw.get("compile"), bool):
        raw = {**raw, "no_compile": not raw["compile"]}
    return raw


def fields_of(
    command: type[Any], raw: Mapping[str, Any], where: str, hint: Callable[[str], str] = lambda key: ""
) -> dict[str, Any]:
    """Fields of a command from plain values, as a file or a manifest holds them; pairs are tables.

    Args:
        command: a dataclass.
        raw: values by name.
        where: begins messages.
        hint: what to say more of an unknown key.

    Raises:
        ConfigError: names the key, the value and what was expected.
    """
    hints = {name: kind for name, kind in typing.get_type_hints(command).items() if name not in HIDDEN}
    values: dict[str, Any] = {}
    for key, value in raw.items():
        name = key.replace("-", "_")
        if name not in hints:
            known = [name for name in hints if name != "no_compile"]
            raise ConfigError(f"{where}: unknown key {key!r}; {nearest(key, known)}{hint(key)}")
        if name not in PAIRS:
            values[name] = value_of(value, hints[name], f"{where}: {key}")
        elif isinstance(value, Mapping):
            values[name] = tuple((f"{n}={text_of(v, f'{where}: {key}.{n}')}",) for n, v in value.items())
        else:
            raise ConfigError(f"{where}: {key} is {value!r}, expected a table [{key}] with lines such as name = 0.1")
    return values


def text_of(value: Any, where: str) -> str:
    if isinstance(value, list) and value and all(isinstance(v, int | float | str) for v in value):
        return ",".join(text_of(v, where) for v in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str):
        return str(value)
    raise ConfigError(f"{where} is {value!r}, expected a number, a text, true or false, or a list of numbers or texts")


def value_of(value: Any, hint: Any, where: str) -> Any:
    options = (
        typing.get_args(hint)
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        else (hint,)
    )
    for option in options:
        if typing.get_origin(option) is Literal:
            if value in typing.get_args(option) and isinstance(value, str):
                return value
        elif option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        elif option is type(None) and value is None:
            return None
        elif isinstance(option, type) and type(value) is option:
            return value
    raise ConfigError(
        f"{where} is {value!r}, expected {' or '.join(_called(o) for o in options if o is not type(None))}"
    )


def _called(option: Any) -> str:
    if typing.get_origin(option) is Literal:
        return " or ".join(map(repr, typing.get_args(option)))
    return {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}.get(option, str(option))


# --- blame ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Given:
    """A file that gave values.

    Attributes:
        where: how messages name it.
        flags: names of the flags that it gave, but for those of pairs; None: all.
        names: of each flag of pairs, the names that it gave; None: all.
    """

    where: str
    flags: Collection[str] | None = None
    names: Mapping[str, Collection[str]] | None = None


@contextlib.contextmanager
def blamed(given: Given | None) -> Generator[None]:
    """Errors that begin with a flag whose value came from elsewhere begin with that.

    Raises:
        ConfigError: what the block raised.
    """
    try:
        yield
    except ConfigError as error:
        text = None if given is None else _blaming(str(error), given)
        if text is None:
            raise
        raise ConfigError(text) from error


def _blaming(text: str, given: Given) -> str | None:
    """The message about the file; None where a flag was wrong."""
    found = _FLAG.match(text)
    if found is None:
        return None
    flag = found[1].replace("-", "_")
    if flag not in PAIRS:
        return f"{given.where}: {text}" if given.flags is None or flag in given.flags else None
    rest = text[found.end() :]
    names = _NAMES.findall(_head(rest))
    known = names if given.names is None else [name for name in names if name in given.names.get(flag, ())]
    if not known:
        return None
    if known != names:
        return f"{text} ({', '.join(known)} from {given.where})"
    return f"{given.where}: {flag}.{rest.lstrip()}"


def _head(rest: str) -> str:
    """The pairs at the beginning of a message."""
    words = []
    for word in rest.split(" "):
        words.append(word)
        if word.endswith(":"):
            break
    return " ".join(words)


def of_file(command: Any, file: Any) -> Given | None:
    """What a command has of its `--config` file; None where there is none.

    Args:
        command: as it was parsed.
        file: the command that the file alone means.
    """
    if file is None:
        return None
    flags: list[str] = []
    names: dict[str, set[str]] = {}
    for field in dataclasses.fields(command):
        said = getattr(file, field.name)
        if field.name in PAIRS:
            told = getattr(command, field.name)[len(said) :]  # the parser began with the file's
            by_flag = {text.partition("=")[0].strip() for group in told for text in group}
            names[field.name] = {text.partition("=")[0] for group in said for text in group} - by_flag
        elif said != field.default and said == getattr(command, field.name):
            flags.append(field.name)
    if "mode" in flags:  # short for --world mode=…
        names.setdefault("world", set()).add("mode")
    return Given(f"--config {command.config}", flags, names)
