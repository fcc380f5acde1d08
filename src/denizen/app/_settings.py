"""What words of the command line and of a `--config` file mean, and which of both gave them.

Pairs, numbers and tables; parameters and options of models and worlds; interventions.
"""

import contextlib
import dataclasses
import inspect
import math
import re
import tomllib
import types
import typing
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from denizen import _units
from denizen.errors import ConfigError, InputError, nearest
from denizen.model import During, Env, Model, Param, Scale
from denizen.zoo import ModelEntry, WorldEntry

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
        if name in values:
            raise ConfigError(f"{where}: {key} is given twice, with - and with _ in its name; give it once")
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
        return str(_one_line(value, where))
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
            return _one_line(value, where)
    raise ConfigError(
        f"{where} is {value!r}, expected {' or '.join(_called(o) for o in options if o is not type(None))}"
    )


def _one_line(value: Any, where: str) -> Any:
    if isinstance(value, str) and len(value.splitlines()) > 1:
        raise ConfigError(f"{where} is {value!r}, expected a text in one line")
    return value


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


# --- models and worlds ------------------------------------------------------------------------------------------------


BOUND = ("network", "symmetrize")  # arguments of builders that have flags of their own
FLAGS = ("steps", "seed", "replicates", "device", "agents", "mean_degree", "population", "network", "out")
PLAIN = (bool, int, float, str, type(None))  # what a text can be read as
MISSING = inspect.Parameter.empty


def as_model(entry: ModelEntry | WorldEntry) -> ModelEntry:
    """A world as what a model is: its parameters and options are found in the same way."""
    if isinstance(entry, ModelEntry):
        return entry
    made = entry.build if isinstance(entry.build, type) else returned(entry.build)
    cls = made if isinstance(made, type) and issubclass(made, Env) else Env
    return ModelEntry(about=entry.about, model=cls, build=entry.build, steps=entry.steps)


def returned(function: Callable[..., Any]) -> Any:
    """What a function says that it returns, also where annotations are texts."""
    try:
        return inspect.signature(function, eval_str=True).return_annotation
    except (NameError, TypeError, SyntaxError):  # names that only a type checker knows
        return None


def parameters(entry: ModelEntry) -> dict[str, Param]:
    """Numbers with bounds and units."""
    return {} if entry.model in (Model, Env) else entry.model.params


def options(entry: ModelEntry) -> dict[str, inspect.Parameter]:
    """What else `--set` takes, by name: arguments of the builder, and fields of the model where it names no others."""
    arguments = arguments_of(entry.build)
    known = [*BOUND, *parameters(entry), *contacts_of(arguments)]
    found = {
        name: argument
        for name, argument in arguments.items()
        if name not in known and (argument.default is not MISSING or plain(argument.annotation))
    }
    # What else a function takes for a world are fields of its class; a model's function says by itself what it takes.
    of_class = issubclass(entry.model, Env) if takes_any(entry.build) else entry.model is not entry.build
    if entry.model in (Model, Env) or not of_class:
        return found
    fields = {n: a for n, a in arguments_of(entry.model).items() if n not in known and plain(a.annotation)}
    return {n: a for n, a in fields.items() if a.default is not MISSING} | found


def about_option(entry: ModelEntry, name: str) -> str:
    """What the docstring of the builder, or of the class, says of an argument."""
    for owner in (entry.build, entry.model):
        text = inspect.getdoc(owner) or ""
        found = re.search(rf"^    (?:\w+, )*{name}(?:, \w+)*: (.*(?:\n        .*)*)", text, re.MULTILINE)
        if found:
            return " ".join(found.group(1).split())
    return ""


def settings(word: str, entry: ModelEntry, pairs: Mapping[str, str]) -> dict[str, Any]:
    """Values of what a model is built from, from the texts behind `--set`.

    Raises:
        ConfigError: an unknown name, or a text that is no value of the kind that the setting takes.
    """
    known = options(entry)
    out: dict[str, Any] = {}
    for key, text in pairs.items():
        where = f"--set {key}={text}"
        if key in parameters(entry) or key in known:
            out[key] = setting_of(entry, key, text, where)
        elif entry.model is Model:  # a function's: which parameters its model has shows once it was called
            out[key] = text
        else:
            names = [*parameters(entry), *known]
            flag = f"--{key.replace('_', '-')} {text}"
            told = f"did you mean {flag}?" if key in FLAGS else nearest(key, names)
            raise ConfigError(f"--set {key}: {word} has no such parameter; {told}")
    return out


def setting_of(entry: ModelEntry, key: str, text: Any, where: str) -> Any:
    """The value that a text is of a parameter or option, by the kind that is declared.

    Args:
        entry: of a model, or of a world as `as_model` gives it.
        key: a name; of one that is declared nowhere the text is guessed.
        text: what was typed; what is no text stays what it is.
        where: begins messages, such as `--world size=abc`.

    Raises:
        ConfigError: it is no value of that kind.
    """
    if not isinstance(text, str):
        return text
    if key in parameters(entry):
        spec = parameters(entry)[key]
        if spec.unit and _units.unit_of(text):  # 0.3/week
            try:
                return float(spec.number(text, where.partition("=")[0]))
            except InputError as error:
                raise ConfigError(str(error)) from None
        return _numbers(text, where, _default(entry, key))
    argument = options(entry).get(key) or arguments_of(entry.model).get(key)
    return guess(text) if argument is None else option(text, where, argument)


def shown(entry: ModelEntry, key: str) -> str:
    """The default of a parameter or option, as it would be written behind `--set`."""
    default = options(entry)[key].default if key not in parameters(entry) else _default(entry, key)
    if default is None or default is MISSING:
        return ""
    if key not in parameters(entry):
        if isinstance(default, bool):
            return str(default).lower()
        return ",".join(map(str, default)) if isinstance(default, tuple | list) else str(default)
    return ",".join(f"{value:g}" for value in default.reshape(-1).tolist())


def _default(entry: ModelEntry, key: str) -> Any:
    field = next(f for f in dataclasses.fields(entry.model) if f.name == key)  # type: ignore[arg-type]
    return field.default_factory()  # type: ignore[misc]  # dz.param always has one


def _numbers(text: str, where: str, default: Any) -> float | list[float]:
    several = default.dim() > 0
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = [math.nan]
    if not all(map(math.isfinite, values)):
        expected = "numbers with commas between them, for example 3.5,4.2" if several else "a number"
        raise ConfigError(f"{where}: expected {expected}")
    if len(values) > 1 and not several:
        raise ConfigError(f"{where}: expected one number, got {len(values)}")
    return values if len(values) > 1 else values[0]


def option(text: Any, where: str, argument: inspect.Parameter) -> Any:
    """A text as what an argument takes, by its annotation or by its default; a guess where neither tells.

    Raises:
        ConfigError: it is no value of that kind.
    """
    default, hint = argument.default, argument.annotation
    if not isinstance(text, str):
        return text
    if hint is MISSING and isinstance(default, bool | int | float | str):
        hint = type(default)
    if typing.get_origin(hint) is typing.Literal:
        if text not in typing.get_args(hint):
            raise ConfigError(f"{where}: {nearest(text, map(str, typing.get_args(hint)))}")
        return text
    kind = _several(hint)
    if kind is not None:
        of, several = kind
        try:
            return of(read(several, part.strip(), where) for part in text.split(","))
        except ConfigError:
            words = {int: "whole numbers", float: "numbers", bool: "true or false"}
            raise ConfigError(f"{where}: expected {words.get(several, 'texts')} with commas between them") from None
    if not plain(hint):
        return guess(text)
    value, guessed = read(hint, text, where), guess(text)
    return guessed if type(value) is float and value == guessed else value  # 2, where a number may be whole


def contacts_of(arguments: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Arguments that are contacts or a population, and how they are annotated."""
    kinds = {"Graph", "Layers", "EdgeList", "Population"}
    return {
        name: argument.annotation
        for name, argument in arguments.items()
        if argument.default is MISSING and (kinds & words_of(argument.annotation) or name in ("contacts", "population"))
    }


def words_of(annotation: Any) -> set[str]:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return set(re.findall(r"\w+", text))


def plain(annotation: Any) -> bool:
    """Whether a text can be read as a value of this."""
    if annotation is MISSING or typing.get_origin(annotation) is typing.Literal:
        return annotation is not MISSING
    return all(part in PLAIN for part in _options_of(annotation)) or _several(annotation) is not None


def _several(annotation: Any) -> tuple[Callable[[Any], Any], Any] | None:
    """(tuple or list, the kind of each) where an annotation is of several plain values; None elsewhere."""
    for part in _options_of(annotation):
        kinds = [kind for kind in typing.get_args(part) if kind is not Ellipsis]
        if typing.get_origin(part) in (tuple, list, Sequence) and len(set(kinds)) == 1 and kinds[0] in PLAIN:
            return (tuple if typing.get_origin(part) is tuple else list), kinds[0]
    return None


def _options_of(annotation: Any) -> tuple[Any, ...]:
    """The kinds that an annotation allows."""
    union = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    return typing.get_args(annotation) if union else (annotation,)


def _signature(build: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(build, eval_str=True).parameters.values())
    except (NameError, TypeError, ValueError):  # names that only a type checker knows; not Python's
        return list(inspect.signature(build).parameters.values())


def takes_any(build: Callable[..., Any]) -> bool:
    return any(argument.kind is inspect.Parameter.VAR_KEYWORD for argument in _signature(build))


def arguments_of(build: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """What a builder takes by name; of a class, its fields with their defaults."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = {a.name: a for a in _signature(build) if a.kind not in several}
    if isinstance(build, type):  # a default that is made for each object shows as a mark
        made = [f.name for f in dataclasses.fields(build) if f.default_factory is not dataclasses.MISSING]
        found = {n: a.replace(default=None) if n in made else a for n, a in found.items()}
    return found


# --- interventions ----------------------------------------------------------------------------------------------------


FORM = "FACTOR, or FACTOR@FROM, or FACTOR@FROM:UNTIL, several with commas between"


def scales(given: Mapping[str, str], time_unit: str = "day") -> list[Scale]:
    """What ``--scale infect_rate=0.5@20:40 contacts.school=0@2020-03-15`` says.

    FROM and UNTIL are days or dates; of a model whose unit of time is none of the calendar's, steps.

    Args:
        given: by name of a parameter, or of a layer as ``contacts.school``.
        time_unit: of the model.

    Raises:
        ConfigError: something of another form; names the flag.
    """
    made = []
    for target, text in given.items():
        for k, part in enumerate(text.split(","), start=1):
            told = f"--scale {target}={part.strip()}"
            factor, at, span = (word.strip() for word in part.partition("@"))
            try:
                when = _time_of(span.split(":"), _units.in_days(time_unit) is None) if at else During(0)
                name = f"scale {target}" if k == 1 else f"scale {target} {k}"
                made.append(Scale(target=target, factor=number(factor), when=when, name=name))
            except InputError as error:
                raise ConfigError(f"{told}: {error}; the form is {FORM}") from error
            except ValueError as error:
                raise ConfigError(f"{told}: expected {FORM}; {error}") from error
    return made


def _time_of(ends: list[str], steps: bool) -> During:
    if steps:
        return During(*map(whole, ends)) if len(ends) <= 2 else During(days=ends)
    times: list[Any] = []
    for end in map(str.strip, ends):
        try:
            times.append(number(end))  # 1e-1 is one, though there is a dash in it
        except ValueError:
            if "-" not in end:
                raise
            times.append(end)
    dated = any(isinstance(time, str) for time in times)
    return During(dates=tuple(times)) if dated else During(days=tuple(times))
