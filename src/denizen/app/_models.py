"""The models that the command line offers, and what can be set of each."""

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from denizen.errors import ConfigError, nearest
from denizen.model import Model, Param
from denizen.zoo.covid import Covid, covid
from denizen.zoo.seir import SEIR, seir
from denizen.zoo.sir import SIR, sir

BOUND = ("network", "symmetrize")  # arguments of the builders that have flags of their own


@dataclasses.dataclass(frozen=True)
class Entry:
    """A model of the command line.

    Attributes:
        model: its class.
        build: function of (population or edge list, network=, symmetrize=, **settings).
        about: one line.
        steps: how many it runs by default: enough to see the whole curve.
        population: the population it runs on by default; None for a random graph.
    """

    model: type[Model]
    build: Callable[..., Model]
    about: str
    steps: int
    population: str | None

    @property
    def parameters(self) -> dict[str, Param]:
        """Numbers with bounds and units."""
        return self.model.params

    @property
    def options(self) -> dict[str, Any]:
        """Further settings of the builder, and their defaults."""
        arguments = inspect.signature(self.build).parameters.values()
        keyword = [a for a in arguments if a.kind is inspect.Parameter.KEYWORD_ONLY]
        return {a.name: a.default for a in keyword if a.name not in BOUND and a.name not in self.parameters}

    def about_option(self, name: str) -> str:
        """What the builder's docstring says of an argument."""
        text = inspect.getdoc(self.build) or ""
        found = re.search(rf"^    (?:\w+, )*{name}(?:, \w+)*: (.*(?:\n        .*)*)", text, re.MULTILINE)
        return " ".join(found.group(1).split()) if found else ""


# To offer a model, add its line.
MODELS: dict[str, Entry] = {
    "covid": Entry(Covid, covid, "COVID: exposure history, weekly R, isolation, deaths", 120, "synthetic:astoria"),
    "sir": Entry(SIR, sir, "susceptible, infected, recovered", 120, None),
    "seir": Entry(SEIR, seir, "susceptible, exposed, infected, recovered", 160, None),
}


def entry(name: str) -> Entry:
    """A model by name.

    Raises:
        ConfigError: there is none; names the nearest.
    """
    if not name:
        raise ConfigError(f"which model? {', '.join(MODELS)}; for example: denizen run covid")
    if name not in MODELS:
        raise ConfigError(f"model {name!r} does not exist; {nearest(name, MODELS)}")
    return MODELS[name]


def settings(name: str, pairs: Mapping[str, str]) -> dict[str, Any]:
    """Values for the builder of a model, from the texts behind `--set`.

    Raises:
        ConfigError: an unknown name, or a text that is no value of the kind that the setting takes.
    """
    chosen = entry(name)
    options = chosen.options
    out: dict[str, Any] = {}
    for key, text in pairs.items():
        where = f"--set {key}={text}"
        if key in chosen.parameters:
            out[key] = _numbers(text, where, _default(chosen, key).dim() > 0)
        elif key in options:
            out[key] = _option(text, where, options[key])
        else:
            raise ConfigError(
                f"--set {key}: {name} has no such parameter; {nearest(key, [*chosen.parameters, *options])}"
            )
    return out


def _default(chosen: Entry, key: str) -> Any:
    field = next(f for f in dataclasses.fields(chosen.model) if f.name == key)  # type: ignore[arg-type]
    return field.default_factory()  # type: ignore[misc]  # dz.param always has one


def _numbers(text: str, where: str, several: bool) -> float | list[float]:
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


def _option(text: str, where: str, default: Any) -> bool | int | list[str]:
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise ConfigError(f"{where}: expected true or false")
        return text == "true"
    if isinstance(default, int):
        if not re.fullmatch(r"[+-]?\d{1,9}", text):
            raise ConfigError(f"{where}: expected a whole number")
        return int(text)
    return text.split(",")


def shown(chosen: Entry, key: str) -> str:
    """The default of a parameter or option, as it would be written behind `--set`."""
    if key in chosen.options:
        default = chosen.options[key]
        return "" if default is None else str(default).lower()
    values = [f"{value:g}" for value in _default(chosen, key).reshape(-1).tolist()]
    return ",".join(values)


def notes(name: str, model: Model, steps: int) -> list[str]:
    """What a reader of the results should know of the numbers that go in."""
    if name != "covid":
        return []
    found = []
    weekly: Tensor = model.R  # type: ignore[attr-defined]  # of covid
    weeks = weekly.numel()
    if steps > 7 * weeks:
        given = "1 week" if weeks == 1 else f"{weeks} weeks"
        found.append(f"R is given for {given}; from week {weeks + 1} on the last value holds, {weekly[-1].item():g}")
    if not model.sample_deaths:  # type: ignore[attr-defined]
        found.append(
            "daily_deaths are expected ones, so nobody enters the stage dead; --set sample_deaths=true draws them"
        )
    return found
