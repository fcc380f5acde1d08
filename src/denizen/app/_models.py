"""`denizen models`, and what a model of the command line is built from: contacts, and what `--set` says."""

import contextlib
import dataclasses
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from rich.text import Text
from tyro.conf import Positional, arg

from denizen._printing import Console, Table, say
from denizen.app._exit import DONE
from denizen.app._failures import their_code
from denizen.app._settings import (
    BOUND,
    MISSING,
    about_option,
    arguments_of,
    as_model,
    contacts_of,
    options,
    parameters,
    plain,
    settings,
    shown,
    takes_any,
    words_of,
)
from denizen.errors import ConfigError, DataError, InputError, nearest
from denizen.model import Env, Model
from denizen.population import Population, load
from denizen.space import EdgeList, Graph
from denizen.space.generators import erdos_renyi
from denizen.zoo import ModelEntry, WorldEntry, entries

AGENTS, MEAN_DEGREE = 10_000, 10.0  # of a random graph, where nothing is said


@dataclasses.dataclass(frozen=True)
class Models:
    """`denizen models`."""

    about: ClassVar[str] = """List models and worlds, and what can be set of each.

examples:
  denizen models                  all models of the zoo, and a line of each of its worlds
  denizen models cartpole         what can be set of a world
  denizen models city.py          what a file of your own holds
  denizen models city.py:Epidemic"""

    target: Annotated[Positional[str], arg(metavar="[TARGET]", help_behavior_hint="(default: all of the zoo)")] = ""
    """A name of the zoo, FILE.py:NAME, or FILE.py for all that is in it."""

    def __call__(self, console: Console) -> int:
        """Print a table of each model or world that is named; of the zoo's worlds, a line each."""
        from denizen.app._target import listed

        named = listed(self.target) if self.target else entries(ModelEntry)
        for name, entry in named.items():
            console.print(_table(name, entry), "")
        if not self.target:
            worlds = Table("world", "about", "steps", title="Worlds, for denizen train", title_justify="left", box=None)
            for name, world in entries(WorldEntry).items():
                worlds.add_row(name, world.about, f"{world.steps:,}")
            console.print(worlds)
            say(console, "denizen models NAME tells what can be set of a world")
        return DONE


def _table(name: str, entry: ModelEntry | WorldEntry) -> Any:
    seen = as_model(entry)
    if isinstance(entry, WorldEntry):
        kind, flag, told = ", a world", "--world", f"{entry.steps:,} steps of training by default"
    else:
        where = f" on {entry.population or 'a random graph'}" if contacts_of(arguments_of(entry.build)) else ""
        kind, flag, told = "", "--set", f"{entry.steps} {seen.model.time_unit}s{where} by default"
    about = f"{entry.about}. " if entry.about else ""
    title = Text.assemble((name, "bold"), f"{kind}: {about}{told}")
    table = Table(title=title, title_justify="left", title_style="", header_style="bold", expand=False)
    for head in (flag, "default", "bounds", "unit", "about"):
        table.add_column(head, no_wrap=head == flag, overflow="fold")
    for key, spec in parameters(seen).items():
        table.add_row(key, shown(seen, key), spec.bounds(), spec.unit, spec.about)
    for key in options(seen):
        table.add_row(key, shown(seen, key), "", "", about_option(seen, key))
    return table


# --- contacts ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Contacts:
    """What flags say of contacts; the fields are those flags."""

    population: str | None = None
    network: str | None = None
    symmetrize: bool = False
    agents: int | None = None
    mean_degree: float | None = None
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Source:
    """Contacts, ready for a builder.

    Attributes:
        contacts: the population or the edge list; None for a model that takes neither.
        arguments: `network` and `symmetrize`, where they apply.
        name: for people.
        edges: number of directed edges.
        facts: name and digest, for the manifest.
        notes: what was chosen while reading.
        agents: as the flag says.
    """

    contacts: Population | EdgeList | None
    arguments: dict[str, Any]
    name: str
    edges: int
    facts: dict[str, Any]
    notes: tuple[str, ...]
    agents: int | None = None


def source(word: str, entry: ModelEntry, given: Contacts) -> Source:
    """The contacts that flags mean, of a kind that a model takes.

    Raises:
        DataError: the population cannot be read.
        ConfigError: the network does not exist, or the model takes no contacts.
    """
    wanted = contacts_of(arguments_of(entry.build))
    if not wanted:
        _refuse_contacts(word, entry, given)
        return Source(None, {}, "", 0, {}, (), given.agents)
    if given.population is None:
        if _only_population(wanted):
            raise ConfigError(f"{word} needs a population; for example --population synthetic:astoria:1000")
        return _random(given)
    people = load(given.population)
    people, network = _network(people, given)
    edges = len(people.edges(network, symmetrize=given.symmetrize)[0])
    facts = {"name": people.source, "network": network, "digest": content_digest(people, network)}
    if os.path.exists(given.population):  # not synthetic:…
        facts["path"] = os.path.abspath(given.population)
    name = people.name if people.source.startswith("synthetic:") else f"{people.name} ({people.source})"
    arguments = {"network": network, "symmetrize": given.symmetrize}
    return Source(people, arguments, name, edges, facts, _notes(people, network, given.symmetrize))


def takes_agents(entry: ModelEntry) -> bool:
    """Whether a model takes contacts, or a number of agents."""
    return bool(contacts_of(arguments_of(entry.build))) or "num_agents" in options(entry)


def _refuse_contacts(word: str, entry: ModelEntry, given: Contacts) -> None:
    sized = "num_agents" in options(entry)
    for name in ("population", "network", "symmetrize", "mean_degree", *(() if sized else ("agents",))):
        value = getattr(given, name)
        if value not in (None, False):
            said = f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
            raise ConfigError(f"{said}: {word} takes no contacts; leave it out")


def _random(given: Contacts) -> Source:
    agents = given.agents or AGENTS
    degree = min(MEAN_DEGREE, agents - 1) if given.mean_degree is None else given.mean_degree
    if not 0 <= degree < agents:
        raise ConfigError(
            f"--mean-degree {degree:g}: expected a number from 0 to {agents - 1}, one less than there are agents"
        )
    edges = erdos_renyi(agents, degree, seed=given.seed)
    name = f"a random graph with mean degree {degree:g}"
    hashed = _hash([edges.source, edges.target])
    count = len(edges.source) * (1 if edges.directed else 2)
    return Source(edges, {}, name, count, {"name": name, "digest": hashed}, ())


def _network(people: Population, given: Contacts) -> tuple[Population, str]:
    """The population and the name of the network to use, which may be several of its own together."""
    wanted, names = given.network, list(people.networks)
    if wanted is None and (len(names) == 1 or "0" in names):
        return people, "0" if "0" in names else names[0]
    if not names:
        raise ConfigError(
            f"population {people.name!r} has no network, so no contacts; {_misplaced(people)}write them, source,target "
            f"a line, to networks/contacts.csv beside its columns"
        )
    if wanted is None:
        raise ConfigError(
            f"--network: population {people.name!r} has {', '.join(names)}; name one, as in --network {names[0]}, or "
            f"several that act together, as in --network {','.join(names[:3])}"
        )
    if wanted in names:
        return people, wanted
    parts = [part.strip() for part in wanted.split(",")]
    for part in parts:
        if part not in names or parts.count(part) > 1:
            problem = "named twice; name it once" if part in names else f"no such network; {nearest(part, names)}"
            raise ConfigError(f"--network {wanted}: population {people.name!r} has {problem}")
    return _together(people, parts, wanted, given.symmetrize), wanted


def _together(people: Population, parts: list[str], name: str, symmetrize: bool) -> Population:
    """The population with one more network, which has the contacts of several; who meets in two of them meets twice."""
    weighted = [part for part in parts if part in people.weights]
    if weighted and len(weighted) < len(parts):
        plain = next(part for part in parts if part not in weighted)
        raise ConfigError(
            f"--network {name}: {weighted[0]} has weights and {plain} has none; give both a column weight, or neither"
        )
    edges = [people.edges(part, symmetrize=symmetrize) for part in parts]
    source, target = np.concatenate([found[0] for found in edges]), np.concatenate([found[1] for found in edges])
    weights = np.concatenate([found[2] for found in edges if found[2] is not None]) if weighted else None
    return dataclasses.replace(
        people,
        networks={**people.networks, name: (source, target)},
        weights=people.weights if weights is None else {**people.weights, name: weights},
    )


def _misplaced(people: Population) -> str:
    """What to say of a folder of tables beside the columns that has another name than a folder of networks."""
    with contextlib.suppress(OSError):
        for place in sorted(Path(people.source).iterdir()):
            if place.is_dir() and any(file.suffix.lower() in (".csv", ".tsv", ".parquet") for file in place.iterdir()):
                return f"if folder {place.name} holds them, rename it to networks; else "
    return ""


def found_again(given: Contacts, saved: dict[str, Any]) -> Contacts:
    """With the population where it lay when the run began, if its relative path leads nowhere from here."""
    place, path = given.population, saved.get("path")
    if place is None or not isinstance(path, str) or os.path.exists(place) or not os.path.exists(path):
        return given
    return dataclasses.replace(given, population=path)


def fits(made: Source, saved: dict[str, Any], folder: str) -> None:
    """Raise `DataError` where a population is not what it was when the run began."""
    if made.facts.get("digest") != saved.get("digest"):
        raise DataError(
            f"{made.facts.get('name', 'the model')} has changed since {folder} was begun with it (content "
            f"{made.facts.get('digest')}, then {saved.get('digest')}); bring it back, or begin a new run"
        )


ONE_WAY = "symmetrize=True adds the other direction."  # what a report says of networks that are written one way


def _notes(people: Population, network: str, symmetrize: bool) -> tuple[str, ...]:
    """The report without what concerns other networks or is done already, in the words of the command line."""
    used = [network, *(part.strip() for part in network.split(","))]
    others = tuple(f"network {name!r}" for name in people.networks if name not in used)
    return tuple(
        note.replace("symmetrize=True", "--symmetrize").replace(" unless keep_self_loops=True", "")
        for note in people.report
        if not note.startswith(others) and not (symmetrize and note.endswith(ONE_WAY))
    )


def content_digest(people: Population, network: str) -> str:
    """A digest of every column, every label and one network."""
    arrays = [array for name in sorted(people.columns) for array in (name, people.columns[name])]
    arrays += [part for name in sorted(people.labels) for part in (name, *people.labels[name])]
    arrays += [network, *people.networks[network], people.weights.get(network, "")]
    return _hash(arrays)


def _hash(parts: list[Any]) -> str:
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = np.ascontiguousarray(part).view(np.uint8).data if isinstance(part, np.ndarray) else str(part).encode()
        state.update(f"{len(data)} ".encode())
        state.update(data)
    return state.hexdigest()


# --- building ---------------------------------------------------------------------------------------------------------


def build(word: str, entry: ModelEntry, made: Source, values: Mapping[str, Any]) -> Model:
    """The model, bound to its contacts.

    Args:
        word: what names it.
        entry: how it is built.
        made: contacts.
        values: of `settings`.

    Raises:
        ConfigError: it needs what the command line cannot give, or the builder gives no model.
        TheirsError: the builder raised something.
    """
    arguments = arguments_of(entry.build)
    named = {name: value for name, value in values.items() if name in arguments or takes_any(entry.build)}
    if made.agents is not None and "num_agents" in values:
        raise ConfigError(f"--agents {made.agents} and --set num_agents={values['num_agents']}: give one of the two")
    if made.agents is not None:
        named["num_agents"] = made.agents
    elif "num_agents" in arguments and arguments["num_agents"].default is MISSING:
        named.setdefault("num_agents", AGENTS)
    wanted = contacts_of(arguments)
    if made.contacts is not None:
        whole = set(BOUND) <= set(arguments)  # the builder binds it by itself
        named |= made.arguments if whole else {}
        named |= {name: made.contacts if whole else _as_wanted(made, wanted[name]) for name in wanted}
    lacking = [n for n, a in arguments.items() if a.default is MISSING and n not in named and n not in wanted]
    if lacking:
        way = "the command line cannot; name a function that builds it"
        if plain(arguments[lacking[0]].annotation):
            way = f"give --set {lacking[0]}=VALUE"
        raise ConfigError(f"{word} needs {lacking[0]}: {way}")
    positional = [named.pop(n) for n, a in arguments.items() if n in named and a.kind is a.POSITIONAL_ONLY]
    try:
        with their_code():
            model: Any = entry.build(*positional, **named)
    except InputError as error:
        found = re.match(r"\w+\.(\w+) = [^:]*: (.*)", str(error))
        if found is None or found[1] not in values:
            raise
        value = values[found[1]]
        text = ",".join(f"{one:g}" for one in (value if isinstance(value, list) else [value]))
        raise ConfigError(f"--set {found[1]}={text}: {found[2]}") from error
    if not isinstance(model, Model) or isinstance(model, Env):
        name = type(model).__name__
        way = f"; a function that builds a world says so: def …(…) -> {name}" if isinstance(model, Env) else ""
        raise ConfigError(f"{word} returned {name}, expected a dz.Model{way}")
    return _replaced(word, entry, model, {n: v for n, v in values.items() if n not in named})


def _replaced(word: str, entry: ModelEntry, model: Model, late: dict[str, Any]) -> Model:
    """With values of what the builder takes no arguments for."""
    if not late:
        return model
    own = ModelEntry(about="", model=type(model), build=type(model))
    names = [*parameters(own), *(name for name, option in options(own).items() if option.default is not MISSING)]
    for name in late:
        if name not in names:
            told = nearest(name, [*arguments_of(entry.build).keys() - contacts_of(arguments_of(entry.build)), *names])
            raise ConfigError(f"--set {name}: {word} has no such parameter; {told}")
    read = late | settings(word, own, {name: value for name, value in late.items() if isinstance(value, str)})
    try:
        return model.replace(**read)
    except InputError as error:
        raise ConfigError(f"--set {' '.join(f'{n}={v}' for n, v in late.items())}: {error}") from error


def _as_wanted(made: Source, annotation: Any) -> Any:
    """Contacts as a class or function of somebody's takes them: a population where it says so, else a graph."""
    if isinstance(made.contacts, Population):
        if "Population" in words_of(annotation):
            return made.contacts
        start, end, weight = made.contacts.edges(**made.arguments)
        return Graph.from_edges(start, end, made.contacts.size, weight=weight)
    return made.contacts if "EdgeList" in words_of(annotation) else Graph.from_edges(made.contacts)


def _only_population(wanted: Mapping[str, Any]) -> bool:
    return any(
        words_of(a) & {"Graph", "Layers", "EdgeList", "Population"} == {"Population"}
        or (a is MISSING and name == "population")
        for name, a in wanted.items()
    )
