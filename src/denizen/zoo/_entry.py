"""What the command line offers of a folder of the zoo, or of a copy of one: the `ENTRY` in its `__init__.py`."""

import dataclasses
import pkgutil
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from denizen.model import Env, Model


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """A model that can be run by name or from a file.

    Attributes:
        about: one line for people.
        model: its class, whose parameters `--set` takes.
        build: class or function that makes the model; what it takes first may be contacts or a population, its further
            arguments are options that `--set` takes too.
        steps: how many it runs by default: enough to see the whole curve.
        population: what it runs on by default; None for a random graph.
        notes: function of (model, steps) that gives what a reader of the results should know.
        events: what a log finds out of events that the model records: functions by name, as `EventLog` takes them.
    """

    about: str
    model: type[Model]
    build: Callable[..., Model]
    steps: int = 100
    population: str | None = None
    notes: Callable[[Any, int], list[str]] | None = None
    events: Mapping[str, Callable[..., Mapping[str, Any]]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorldEntry:
    """A world that can be trained in by name or from a file, and how it is trained unless flags say otherwise.

    Attributes:
        about: one line for people.
        build: class or function that makes the world; its arguments are options that `--world` takes.
        steps: of worlds, in a training.
        steps_of: likewise, of algorithms that need fewer or more.
        policy: ``"mlp"`` or ``"conv"``.
        policy_options: for that, as `--policy` takes them.
        policy_options_of: likewise, of policies of algorithms that take another kind.
        settings: of each algorithm, as `--set` takes them.
        settings_on_cuda: likewise, over those, on a CUDA device with bfloat16.
    """

    about: str
    build: Callable[..., Env]
    steps: int = 500_000
    steps_of: Mapping[str, int] = dataclasses.field(default_factory=dict)
    policy: str = "mlp"
    policy_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    policy_options_of: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    settings_on_cuda: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)


Kind = TypeVar("Kind", ModelEntry, WorldEntry)


def entries(kind: type[Kind]) -> dict[str, Kind]:
    """What the zoo has of a kind, by name."""
    found = {name: _of(name) for name in _folders()}
    return {name: made for name, made in found.items() if isinstance(made, kind)}


def entry(name: str) -> ModelEntry | WorldEntry | None:
    """What the zoo has of a name; None where there is nothing."""
    return _of(name) if name in _folders() else None


def _of(name: str) -> ModelEntry | WorldEntry | None:
    return getattr(import_module(f"denizen.zoo.{name}"), "ENTRY", None)


def _folders() -> list[str]:
    import denizen.zoo

    return sorted(found.name for found in pkgutil.iter_modules(denizen.zoo.__path__) if found.ispkg)
