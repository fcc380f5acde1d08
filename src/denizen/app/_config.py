"""The configuration of a run: defaults, a TOML file over them, flags over both."""

import contextlib
import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from tyro.conf import Fixed, FlagCreatePairsOff, Positional, Suppress, UseAppendAction, arg

from denizen.app._models import Contacts, options, parameters
from denizen.app._settings import whole, written
from denizen.errors import ConfigError, nearest
from denizen.run import Snapshots
from denizen.zoo import ModelEntry, entries

MAX_WHOLE = 2**32 - 1
DTYPES = ("int8", "uint8", "int16", "int32", "float16", "bfloat16", "float32")
NOT_KEPT = ("config", "out", "quiet", "file")  # by a manifest
Set = tuple[tuple[str, ...], ...]


def _hint(text: str) -> Any:
    return arg(metavar="N", help_behavior_hint=f"(default: {text})")


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """What `denizen run` does; the fields are its flags, the keys of a `--config` file, and part of a manifest."""

    model: Annotated[Positional[str], arg(metavar="MODEL", help_behavior_hint="")] = ""
    """A name of `denizen models`, or FILE.py:NAME: a class, an object, or a function that returns one."""
    population: Annotated[str | None, arg(metavar="PATH", help_behavior_hint="(default: the model's, or none)")] = None
    """Population folder, table or .npz file, or synthetic:astoria[:SIZE]."""
    network: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: 0, or the only one)")] = None
    """Contact network of the population."""
    symmetrize: FlagCreatePairsOff[bool] = False
    """Add the opposite direction of every contact, for lists that write each contact once."""
    agents: Annotated[int | None, _hint("10000 without a population")] = None
    """Agents of a random graph, where there is no population."""
    mean_degree: Annotated[float | None, arg(metavar="C", help_behavior_hint="(default: 10)")] = None
    """Mean number of contacts in the random graph."""
    steps: Annotated[int | None, _hint("the model's, or 100")] = None
    """Steps to simulate; one of covid, sir and seir is a day."""
    replicates: Annotated[int, arg(metavar="N")] = 16
    """Independent runs with their own random numbers."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """0 to 4294967295; the same seed gives the same numbers."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run; auto takes what DENIZEN_DEVICE says, else CUDA where there is one that works."""
    set: Annotated[UseAppendAction[Set], arg(metavar="NAME=VALUE", help_behavior_hint="(repeatable)")] = ()
    """Parameters and options of the model, for example R=3.5,4.2,5.6 reference=true."""
    config: Annotated[Path | None, arg(metavar="FILE.toml", help_behavior_hint="")] = None
    """Settings from a file; flags win over it."""
    out: Annotated[str | None, arg(metavar="FOLDER", help_behavior_hint="(default: runs/MODEL-DATE-TIME)")] = None
    """Run folder to write; new or empty."""
    snapshots_every: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: none)")] = None
    """Keep the state of all agents every so many steps."""
    snapshot_fields: Annotated[
        str | None, arg(metavar="NAME[:DTYPE],…", help_behavior_hint="(default: all fields as they are)")
    ] = None
    """Fields to keep in snapshots, where wished in a narrower dtype, for example stage,wealth:float16."""
    compile: FlagCreatePairsOff[bool] = False
    """Compile the step at once (by default only where a run is long enough to pay)."""
    no_compile: FlagCreatePairsOff[bool] = False
    """Never compile."""
    quiet: FlagCreatePairsOff[bool] = False
    """Print nothing but the run folder."""
    file: Annotated[Any, Fixed, Suppress] = None
    """What the `--config` file alone means; no flag."""

    def place(self) -> str | None:
        """The population, its size written out: `synthetic:astoria:1e3` is `synthetic:astoria:1000`."""
        stem, _, size = (self.population or "").rpartition(":")
        if not stem.startswith("synthetic:"):
            return self.population
        with contextlib.suppress(ValueError):
            return f"{stem}:{whole(size)}"
        return self.population

    def pairs(self) -> dict[str, str]:
        """What is set, by name; flags come after the `--config` file and win over it.

        Raises:
            ConfigError: something that is not NAME=VALUE.
        """
        found = {}
        for text in (text for group in self.set for text in group):
            name, equals, value = text.partition("=")
            if not equals or not name or not value:
                raise ConfigError(f"--set {text}: expected NAME=VALUE, for example --set mortality=0.1")
            found[name.strip()] = value.strip()
        return found

    def snapshots(self) -> Snapshots | None:
        """What snapshots are asked for.

        Raises:
            ConfigError: a field that is named twice, or something that is no dtype.
        """
        if self.snapshots_every is None:
            return None
        fields: dict[str, Any] = {}
        for text in (self.snapshot_fields or "").split(",") if self.snapshot_fields is not None else ():
            name, colon, dtype = (part.strip() for part in text.partition(":"))
            if not name or name in fields or (colon and dtype not in DTYPES):
                raise ConfigError(
                    f"--snapshot-fields {self.snapshot_fields}: expected different NAMEs or NAME:DTYPEs with commas "
                    f"between, DTYPE one of {', '.join(DTYPES)}; got {text.strip()!r}"
                )
            fields[name] = getattr(torch, dtype) if colon else None
        return Snapshots(self.snapshots_every, fields or None)

    def contacts(self) -> Contacts:
        """What it says of contacts."""
        place, network, agents = self.place(), self.network, self.agents
        return Contacts(place, network, self.symmetrize, agents, self.mean_degree, self.seed)

    def check(self, chosen: ModelEntry) -> None:
        """Raise `ConfigError` where a value cannot be meant for a model; the message names the flag."""
        for name, low in (("steps", 0), ("replicates", 1), ("seed", 0), ("agents", 1), ("snapshots_every", 1)):
            value = getattr(self, name)
            if value is not None and not low <= value <= MAX_WHOLE:
                raise ConfigError(f"{flag(name)} {value}: expected a whole number from {low} to {MAX_WHOLE}")
        for name in ("population", "network", "out"):  # such as "$CITY" of a shell that knows no CITY
            if getattr(self, name) == "":
                raise ConfigError(f"{flag(name)} is empty; leave it out, or give a value")
        if self.snapshot_fields is not None and self.snapshots_every is None:
            raise ConfigError("--snapshot-fields chooses what snapshots keep; give --snapshots-every N too")
        self.snapshots()
        if self.compile and self.no_compile:
            raise ConfigError("--compile and --no-compile: give one of the two")
        graph = [flag(name) for name in ("agents", "mean_degree") if getattr(self, name) is not None]
        if graph and chosen.population is not None:
            raise ConfigError(
                f"{graph[0]}: {self.model} needs a population, not a random graph; for example "
                f"--population synthetic:astoria:{self.agents or 1000}"
            )
        if graph and self.population is not None:
            raise ConfigError(f"{graph[0]} makes a random graph, --population reads one: give one of the two")
        if self.population is None and chosen.population is None and (self.network is not None or self.symmetrize):
            raise ConfigError(
                "--network and --symmetrize choose among the networks of a population; give --population too"
            )

    def to_json(self) -> dict[str, Any]:
        """What a manifest keeps; `from_mapping` reads it."""
        kept = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in NOT_KEPT}
        return {**kept, "set": self.pairs()}


def refuse_repeats(groups: Set) -> None:
    """Raise `ConfigError` where the flags set a name twice."""
    seen: dict[str, str] = {}
    for text in (text for group in groups for text in group):
        name = text.partition("=")[0].strip()
        if name in seen:
            raise ConfigError(f"--set {seen[name]} and --set {text}: {name} is set twice; give it once")
        seen[name] = text


def flag(name: str) -> str:
    """A field as a flag."""
    return f"--{name.replace('_', '-')}"


def read_toml(path: Path) -> RunConfig:
    """The configuration of a TOML file over the defaults.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or holds an unknown key or a value of the wrong type.
    """
    try:
        raw = tomllib.loads(path.read_bytes().decode("utf-8"), parse_float=written)
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--config {path} is not valid TOML: {error}") from None
    if isinstance(raw.get("compile"), bool):  # one key for the two flags
        raw = {**raw, "compile": raw["compile"], "no_compile": not raw["compile"]}
    return from_mapping(raw, f"--config {path}")


def from_mapping(raw: Mapping[str, Any], where: str) -> RunConfig:
    """The configuration of a mapping of plain values; `set` is a mapping of its own.

    Raises:
        ConfigError: names the key, the value and what was expected.
    """
    hints = typing.get_type_hints(RunConfig)
    keys = [name for name in hints if name not in ("config", "no_compile", "file")]
    values: dict[str, Any] = {}
    for key, value in raw.items():
        name = key.replace("-", "_")
        if name not in hints or name in ("config", "file"):
            raise ConfigError(f"{where}: unknown key {key!r}; {nearest(key, keys)}{_perhaps_parameter(key)}")
        values[name] = _set(value, where) if name == "set" else value_of(value, hints[name], f"{where}: {key}")
    return RunConfig(**values)


def _perhaps_parameter(key: str) -> str:
    owners = [name for name, one in entries(ModelEntry).items() if key in parameters(one) or key in options(one)]
    return f". {key} is a parameter of {' and '.join(owners)}: write it under [set]" if owners else ""


def _set(value: Any, where: str) -> Set:
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{where}: set is {value!r}, expected a table, for example [set] with the line mortality = 0.1"
        )
    return tuple((f"{name}={text_of(entry, f'{where}: set.{name}')}",) for name, entry in value.items())


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
