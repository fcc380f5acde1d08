"""`load`: a population from a folder, a table, a column store, a package, or `"synthetic:NAME"`.

The number of agents is the length of `age`, or, where there is no such column, the length that all columns share.
A column of another length is an error that names both files. Nothing is ever written beside the data, and each file
is read once.
"""

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from denizen.errors import DataError, InputError, nearest
from denizen.population import _frames, _pickle
from denizen.population._columns import STAGES, Raw, finish, stages
from denizen.population._edges import SUFFIXES, read_network
from denizen.population._population import Population
from denizen.population._store import load_store, parse_json
from denizen.population._synthetic import synthetic
from denizen.population._tables import read_csv, read_parquet, table_names
from denizen.space._files import content, reading

_PICKLES = (".pickle", ".pkl")
_NETWORK_FOLDERS = ("mobility_networks", "networks")
_MAPPING = "mapping.json"


@dataclass
class _Found:
    """What has been read so far: columns and where each came from."""

    columns: dict[str, np.ndarray] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    targets: dict[str, np.ndarray] = field(default_factory=dict)
    report: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Wanted:
    """The arguments of `load`."""

    columns: Sequence[str] | None
    networks: Sequence[str] | None
    targets: Sequence[str]
    labels: dict[str, list[str]]

    def is_target(self, path: Path) -> bool:
        return any(fnmatch(path.stem, pattern) for pattern in self.targets)


def load(
    path: Any,
    *,
    columns: Sequence[str] | None = None,
    networks: Sequence[str] | None = None,
    targets: Sequence[str] = (),
    labels: Mapping[str, Sequence[str]] | None = None,
) -> Population:
    """Read a population.

    Args:
        path: a folder (pickled, Parquet or CSV columns, `mapping.json`, edge lists under `mobility_networks/`); one
            Parquet or CSV table, with such a folder of networks beside it or not; a file written by `Population.save`;
            a package or another object with a `__path__`; or `"synthetic:astoria"`, `"synthetic:astoria:1000000"`.
        columns: names of the attributes to read; default all. Other files are not opened.
        networks: names of the networks to read; default all.
        targets: names (without suffix; `*` and `?` allowed) of files that hold observed series instead of attributes.
        labels: attribute -> label of each code, position = code; wins over `mapping.json`.

    Returns:
        The population; `population.report` lists every choice made.

    Raises:
        DataError: a missing or unreadable file, columns of unequal length, missing values, ids out of range, a pickle
            that holds anything but a column.
        InputError: an argument of the wrong form.
        MissingExtra: a Parquet file without polars or pyarrow.

    Examples:
        >>> from denizen.population import load
        >>> load("synthetic:astoria:1000").size
        1000
    """
    for argument, names in (("columns", columns), ("networks", networks), ("targets", targets)):
        if isinstance(names, str):
            raise InputError(f"{argument} is {names!r}; expected a list of names, for example [{names!r}]")
    stated = {name: [str(label) for label in values] for name, values in (labels or {}).items()}
    wanted = _Wanted(columns, networks, targets, stated)
    place = _place(path)
    if place.startswith("synthetic:"):
        return _restate(_select(_synthetic(place, networks), columns), wanted)
    root = Path(place)
    with reading(place, "population"):
        exists, is_folder = root.exists(), root.is_dir()
    if not exists:
        raise DataError(
            f"population {place!r} does not exist; give a folder, a .parquet, .csv or .npz file, or 'synthetic:astoria'"
        )
    if is_folder:
        return _folder(root, wanted)
    if root.suffix == ".npz":
        return _restate(load_store(root, columns, networks), wanted)
    if root.suffix not in (".parquet", ".csv"):
        raise DataError(
            f"population {place!r} has the suffix {root.suffix!r}; expected a folder, .parquet, .csv or .npz"
        )
    return _table(root, wanted)


def _place(path: Any) -> str:
    """The path, or `synthetic:` name, that an argument means."""
    if isinstance(path, str | os.PathLike):
        place = os.fspath(path)
    else:
        parts = getattr(path, "__path__", None)
        if parts is None:
            raise InputError(
                f"population is a {type(path).__name__}; expected a path, a package or an object with a __path__"
            )
        place = parts if isinstance(parts, str) else next((os.fspath(part) for part in parts), "")
    if not isinstance(place, str) or not place or "\0" in place:
        raise InputError(f"population path is {place!r}; expected a path")
    return place


def _synthetic(place: str, networks: Sequence[str] | None) -> Population:
    _, name, *rest = place.split(":")
    if len(rest) > 1 or (rest and not rest[0].replace("_", "").isdecimal()):
        raise InputError(f"population {place!r} is not of the form 'synthetic:NAME' or 'synthetic:NAME:SIZE'")
    return synthetic(name, size=int(rest[0]) if rest else None, networks=networks)


def _select(population: Population, columns: Sequence[str] | None) -> Population:
    if columns is None:
        return population
    chosen = {name: population.column(name) for name in columns}
    labels = {name: values for name, values in population.labels.items() if name in chosen}
    return replace(population, columns=chosen, labels=labels)


def _restate(population: Population, wanted: _Wanted) -> Population:
    """A complete population with the user's labels; targets that are asked for must be in it."""
    for name in wanted.labels:
        population.column(name)
    for pattern in wanted.targets:
        _require_target(population.targets, pattern, population.source)
    return replace(population, labels=population.labels | wanted.labels)


def _require_target(targets: Mapping[str, np.ndarray], pattern: str, origin: str) -> None:
    if not any(fnmatch(name.split(".")[0], pattern) for name in targets):
        raise DataError(f"{origin} has no numeric target {pattern!r}; {nearest(pattern, targets)}")


def _listing(folder: Path) -> list[Path]:
    with reading(str(folder), "folder"):
        return sorted(folder.iterdir())


def _folder(root: Path, wanted: _Wanted) -> Population:
    found = _Found()
    mapping = root / _MAPPING
    stated = _mapping(mapping) if mapping.is_file() else {}
    known = stated | wanted.labels
    ignored, later = [], []
    for path in _listing(root):
        if path.name in (_MAPPING, *_NETWORK_FOLDERS) or path.name.startswith((".", "__")):
            continue
        if path.suffix not in (*_PICKLES, ".parquet", ".csv"):
            ignored.append(path.name)
        elif not path.is_file():
            if wanted.columns is None or path.stem in wanted.columns:
                raise DataError(f"{path} is {_not_a_file(path)}; expected a file of attributes: remove or replace it")
            ignored.append(path.name)
        elif wanted.is_target(path):
            _target(found, path)
        elif wanted.columns is None or path.stem in wanted.columns:
            _attributes(found, path, wanted.columns, known)
        else:
            later.append(path)
    for path in later if set(wanted.columns or ()) - set(found.columns) else ():  # columns of tables with another name
        _attributes(found, path, wanted.columns, known)
    if ignored:
        found.report.append(f"Files that hold no attribute were ignored: {', '.join(ignored)}.")
    found.report += _unused(stated, found)
    return _assemble(found, root, root, wanted)


def _not_a_file(path: Path) -> str:
    if path.is_symlink() and not path.exists():
        return f"a link to {os.readlink(path)}, which does not exist"
    return "a folder" if path.is_dir() else "no regular file"


def _table(path: Path, wanted: _Wanted) -> Population:
    found = _Found()
    mapping = path.parent / _MAPPING
    stated = _mapping(mapping) if mapping.is_file() else {}
    _attributes(found, path, wanted.columns, stated | wanted.labels)
    found.report += _unused(stated, found)
    for other in _listing(path.parent) if wanted.targets else ():
        if other != path and other.is_file() and wanted.is_target(other):
            _target(found, other)
    return _assemble(found, path, path.parent, wanted)


def _raw(path: Path, columns: Sequence[str] | None, report: list[str]) -> dict[str, Raw]:
    """The columns of one file."""
    if path.suffix == ".parquet":
        return read_parquet(path, path.name, columns)
    if path.suffix == ".csv":
        raw, said = read_csv(path, path.name, columns)
        report += said
        return raw
    data = content(path, path.name, "pickle")
    with reading(path.name, "pickle"):
        return _frames.columns_of(_pickle.read(data, path.name), path.name, path.stem)


def _attributes(found: _Found, path: Path, columns: Sequence[str] | None, known: dict[str, list[str]]) -> None:
    for name, raw in _raw(path, columns, found.report).items():
        if columns is not None and name not in columns:
            continue
        if name in ("", "__index_level_0__"):
            found.report.append(f"{path.name}: a column without a name (a saved row index) was skipped.")
            continue
        if name in found.origins:
            raise DataError(f"column {name!r} is in two files, {found.origins[name]} and {path.name}; remove one")
        values, labels, said = finish(name, raw, known.get(name), path.name)
        if name == STAGES:  # written as real numbers by convention, so that is not worth a sentence
            values, said = stages(values, raw, path.name), []
        found.columns[name], found.origins[name] = values, path.name
        if labels is not None:
            found.labels[name] = labels
        found.report += said


def _target(found: _Found, path: Path) -> None:
    raw = _raw(path, None, found.report)
    for name, column in raw.items():
        key = path.stem if len(raw) == 1 else f"{path.stem}.{name}"
        if column.labels is None:
            found.targets[key] = column.values.copy()  # parsers may return read-only memory
            found.report.append(
                f"{path.name}: {len(column.values)} values read as target {key!r}, not as an attribute."
            )
        else:
            found.report.append(f"{path.name}: {name!r} is not numeric and was left out of the targets.")


def _mapping(path: Path) -> dict[str, list[str]]:
    """`mapping.json`: attribute -> label of each code."""
    mapping = parse_json(content(path, path.name, "JSON"), path.name)
    for name, values in mapping.items():
        if not isinstance(values, list) or not all(isinstance(value, str | int | float) for value in values):
            raise DataError(f"{path.name}: {name!r} is not a list of labels")
    return {name: [str(value) for value in values] for name, values in mapping.items()}


def _unused(stated: dict[str, list[str]], found: _Found) -> list[str]:
    """Sentences on labels whose column is not there but another, similar one without labels is."""
    bare = {name.lower(): name for name in found.columns if name not in found.labels}
    said = []
    for name in stated:
        close = difflib.get_close_matches(name.lower(), bare, n=1) if name not in found.columns else []
        if close:
            said.append(
                f"{_MAPPING}: {name!r} names no column, so its labels are not used; did you mean {bare[close[0]]!r}?"
            )
    return said


def _length(found: _Found, root: Path) -> int:
    """N: the length of `age`, or the length that all columns share; any other length is an error."""
    lengths = {name: len(values) for name, values in found.columns.items()}
    if not lengths:
        raise DataError(f"{root} holds no attribute (.pickle, .pkl, .parquet or .csv)")
    leader = "age" if "age" in lengths else next(iter(lengths))
    for name, length in lengths.items():
        if length != lengths[leader]:
            raise DataError(
                f"{found.origins[name]}: column {name!r} has {length} rows, but {leader!r} "
                f"({found.origins[leader]}) has {lengths[leader]}; every attribute needs one row per agent. "
                f"If {found.origins[name]} is an observed series, move it out of the folder, or pass "
                f"targets=[{Path(found.origins[name]).stem!r}] to load"
            )
    size = lengths[leader]
    if not 0 < size < 2**31:
        raise DataError(f"{found.origins[leader]}: {size} rows; a population has 1 to {2**31 - 1} agents")
    if leader != "age":
        found.report.append(
            f"There is no column 'age'; the number of agents, {size}, is the common length of the columns."
        )
    return size


def _available(root: Path) -> set[str]:
    """Names of the columns that there are, for the message when one is not."""
    names: set[str] = set()
    for path in _listing(root) if root.is_dir() else [root]:
        if path.suffix in _PICKLES:
            names.add(path.stem)
        elif path.suffix in (".parquet", ".csv"):
            names.update(table_names(path))
    return names


def _network_files(folder: Path, networks: Sequence[str] | None) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for place in (folder / name for name in _NETWORK_FOLDERS):
        for path in _listing(place) if place.is_dir() else ():
            if path.suffix in SUFFIXES and path.is_file():
                if path.stem in files:
                    raise DataError(f"network {path.stem!r} is in two files, {files[path.stem]} and {path}; remove one")
                files[path.stem] = path
    if networks is None:
        return files
    for name in networks:
        if name not in files:
            raise DataError(f"there is no network {name!r} beside {folder}; {nearest(str(name), files)}")
    return {name: files[name] for name in networks}


def _assemble(found: _Found, root: Path, folder: Path, wanted: _Wanted) -> Population:
    for name in (*(wanted.columns or ()), *wanted.labels):
        if name not in found.columns:
            raise DataError(f"{root} has no column {name!r}; {nearest(str(name), _available(root))}")
    for pattern in wanted.targets:
        _require_target(found.targets, pattern, str(root))
    size = _length(found, root)
    edges: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    weights: dict[str, np.ndarray] = {}
    for name, path in _network_files(folder, wanted.networks).items():
        network = read_network(path, f"{path.parent.name}/{path.name}", size)
        edges[name] = network.source, network.target
        if network.weight is not None:
            weights[name] = network.weight
        found.report += network.report
    return Population(
        name=root.stem,
        size=size,
        columns=found.columns,
        labels=found.labels,
        networks=edges,
        weights=weights,
        targets=found.targets,
        report=tuple(found.report),
        source=str(root),
    )
