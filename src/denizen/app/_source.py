"""Where the contacts of a run come from: a population, or a random graph."""

import dataclasses
import hashlib
import os
from typing import Any

import numpy as np

from denizen.app._config import RunConfig
from denizen.errors import ConfigError, DataError, nearest
from denizen.population import Population, load
from denizen.space import EdgeList
from denizen.space.generators import erdos_renyi

AGENTS, MEAN_DEGREE = 10_000, 10.0  # of a random graph, where nothing is said


@dataclasses.dataclass(frozen=True)
class Source:
    """Contacts, ready for a builder.

    Attributes:
        contacts: the population or the edge list.
        arguments: `network` and `symmetrize`, where they apply.
        name: for people.
        edges: number of directed edges.
        facts: name and digest, for the manifest.
        notes: what was chosen while reading.
    """

    contacts: Population | EdgeList
    arguments: dict[str, Any]
    name: str
    edges: int
    facts: dict[str, Any]
    notes: tuple[str, ...]


def source(config: RunConfig) -> Source:
    """The contacts that a configuration means.

    Raises:
        DataError: the population cannot be read.
        ConfigError: the network does not exist.
    """
    if config.population is None:
        return _random(config)
    people = load(config.population)
    network = _network(people, config.network)
    edges = len(people.edges(network, symmetrize=config.symmetrize)[0])
    facts = {"name": people.source, "network": network, "digest": content_digest(people, network)}
    if os.path.exists(config.population):  # not synthetic:…
        facts["path"] = os.path.abspath(config.population)
    name = people.name if people.source.startswith("synthetic:") else f"{people.name} ({people.source})"
    arguments = {"network": network, "symmetrize": config.symmetrize}
    return Source(people, arguments, name, edges, facts, _notes(people, network))


def _random(config: RunConfig) -> Source:
    agents = config.agents or AGENTS
    degree = min(MEAN_DEGREE, agents - 1) if config.mean_degree is None else config.mean_degree
    edges = erdos_renyi(agents, degree, seed=config.seed)
    name = f"a random graph with mean degree {degree:g}"
    hashed = _hash([edges.source, edges.target])
    count = len(edges.source) * (1 if edges.directed else 2)
    return Source(edges, {}, name, count, {"name": name, "digest": hashed}, ())


def _network(people: Population, wanted: str | None) -> str:
    names = list(people.networks)
    if wanted is None and (len(names) == 1 or "0" in names):
        return "0" if "0" in names else names[0]
    if not names:
        raise ConfigError(
            f"population {people.name!r} has no network, so no contacts; write them, source,target a line, to "
            f"mobility_networks/0.csv beside its columns"
        )
    if wanted is None:
        raise ConfigError(f"--network: population {people.name!r} has {', '.join(names)}; name one")
    if wanted not in names:
        raise ConfigError(
            f"--network {wanted}: population {people.name!r} has no such network; {nearest(wanted, names)}"
        )
    return wanted


def found_again(config: RunConfig, saved: dict[str, Any]) -> RunConfig:
    """With the population where it lay when the run began, if its relative path leads nowhere from here."""
    place, path = config.population, saved.get("path")
    if place is None or not isinstance(path, str) or os.path.exists(place) or not os.path.exists(path):
        return config
    return dataclasses.replace(config, population=path)


def fits(made: Source, saved: dict[str, Any], folder: str) -> None:
    """Raise `DataError` where a population is not what it was when the run began."""
    if made.facts.get("digest") != saved.get("digest"):
        raise DataError(
            f"{made.facts['name']} has changed since {folder} was begun with it (content {made.facts['digest']}, then "
            f"{saved.get('digest')}); bring it back, or begin a new run"
        )


def _notes(people: Population, network: str) -> tuple[str, ...]:
    """The report without what concerns other networks, in the words of the command line."""
    others = tuple(f"network {name!r}" for name in people.networks if name != network)
    return tuple(
        note.replace("symmetrize=True", "--symmetrize").replace(" unless keep_self_loops=True", "")
        for note in people.report
        if not note.startswith(others)
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
