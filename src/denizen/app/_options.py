"""What can be set of a model or a world: its parameters and options, and their values from texts."""

import dataclasses
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from denizen import _units
from denizen.app._settings import guess, read
from denizen.errors import ConfigError, InputError, nearest
from denizen.model import Env, Model, Param
from denizen.zoo import ModelEntry, WorldEntry

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
            out[key] = value_of(entry, key, text, where)
        elif entry.model is Model:  # a function's: which parameters its model has shows once it was called
            out[key] = text
        else:
            names = [*parameters(entry), *known]
            flag = f"--{key.replace('_', '-')} {text}"
            told = f"did you mean {flag}?" if key in FLAGS else nearest(key, names)
            raise ConfigError(f"--set {key}: {word} has no such parameter; {told}")
    return out


def value_of(entry: ModelEntry, key: str, text: Any, where: str) -> Any:
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
