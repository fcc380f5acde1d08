"""`load`: a population from a folder, a table, a column store, a package, or `"synthetic:NAME"`.

The number of agents is the length of `age`, or, where there is no such column, the length that all columns share.
A column of another length is an error that names both files. A column of ids says which agents the contacts are
between, and which row of one file belongs to which of another (`_ids`). Nothing is ever written beside the data, and
each file is read once.
"""

import contextlib
import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from denizen.errors import DataError, InputError, nearest
from denizen.population import _frames, _pickle
from denizen.population._columns import COUNTER, INDEX, STAGES, Raw
from denizen.population._edges import SUFFIXES, Network, read_network
from denizen.population._ids import Ids, named
from denizen.population._match import Found, Wanted, agents, distinct, how, keep
from denizen.population._population import Population
from denizen.population._store import load_store, parse_json
from denizen.population._synthetic import synthetic
from denizen.population._tables import TEXT, Named, Table, every, nothing, read_csv, read_parquet, table_names
from denizen.space.files import content, reading

_PICKLES = (".pickle", ".pkl")
_NETWORK_FOLDERS = ("mobility_networks", "networks")
_MAPPING = "mapping.json"
_TABLES = (*TEXT, ".parquet")


def stated(caller: str, labels: Any) -> dict[str, list[str]]:
    """Labels of codes as they were given; raises `InputError` where they are none."""
    wanted = "expected a list of labels for each column, such as {'age': ['under 19', '20-29']}"
    if not isinstance(labels, Mapping):
        raise InputError(f"{caller}: labels={labels!r}, {wanted}")
    for name, values in labels.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InputError(f"{caller}: labels[{name!r}]={values!r}, {wanted}")
    return {name: [str(label) for label in values] for name, values in labels.items()}


def load(
    path: Any,
    *,
    columns: Sequence[str] | None = None,
    networks: Sequence[str] | None = None,
    targets: Sequence[str] = (),
    labels: Mapping[str, Sequence[str]] | None = None,
    ids: str | bool = True,
) -> Population:
    """Read a population.

    Args:
        path: a folder (pickled, Parquet or CSV columns, `mapping.json`, edge lists under `mobility_networks/`); one
            Parquet or CSV table, with such a folder of networks beside it or not; a file written by `Population.save`;
            a package or another object with a `__path__`; or `"synthetic:astoria"`, `"synthetic:astoria:1000000"`.
        columns: names of the attributes to read; default all. Other files are opened only where they may hold ids.
        networks: names of the networks to read; default all.
        targets: names (without suffix; `*` and `?` allowed) of files that hold observed series instead of attributes.
        labels: attribute -> label of each code, position = code; wins over `mapping.json`.
        ids: True maps the ends of edges, and the rows of files that have it, by the column `id` (also `agent_id`,
            `person_id` and the like; integers or strings) where there is one; a name does so by that column; False
            says that edges hold the numbers of rows, counted from 0, as they do where there is no such column.

    Returns:
        The population; `population.report` lists every choice made. Agent k is row k of the table, whatever its id.

    Raises:
        DataError: a missing or unreadable file, columns of unequal length, missing values, ids that are missing,
            unknown, out of range or there twice, a pickle that holds anything but a column.
        InputError: an argument of the wrong form.
        MissingExtra: a Parquet file without polars or pyarrow.

    Examples:
        >>> from denizen.population import load
        >>> load("synthetic:astoria:1000").size
        1000
    """
    for argument, names in (("columns", columns), ("networks", networks), ("targets", targets)):
        if isinstance(names, str):
            raise InputError(f"load: {argument}={names!r}, expected a list of names, such as [{names!r}]")
        if names is not None and not isinstance(names, Iterable):
            raise InputError(f"load: {argument}={names!r}, expected a list of names")
    if not isinstance(ids, str | bool):
        raise InputError(f"load: ids={ids!r}, expected the name of a column, True or False")
    wanted = Wanted(columns, networks, targets, stated("load", {} if labels is None else labels), ids)
    place = _place(path)
    if isinstance(ids, str) and (place.startswith("synthetic:") or place.lower().endswith(".npz")):
        raise InputError(f"load: ids={ids!r}, but the contacts of {place!r} are between rows already; leave it out")
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
    if root.suffix.lower() == ".npz":
        return _restate(load_store(root, columns, networks), wanted)
    if root.suffix.lower() not in _TABLES:
        raise DataError(
            f"population {place!r} has the suffix {root.suffix!r}; expected a folder, .parquet, .csv, .tsv or .npz"
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
                f"load: the population is a {type(path).__name__}, expected a path, a package or an object with a "
                "__path__"
            )
        place = parts if isinstance(parts, str) else next((os.fspath(part) for part in parts), "")
    if not isinstance(place, str) or not place or "\0" in place:
        raise InputError(f"load: population={place!r}, expected a path")
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


def _restate(population: Population, wanted: Wanted) -> Population:
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


def _folder(root: Path, wanted: Wanted) -> Population:
    found = Found()
    mapping = root / _MAPPING
    told = _mapping(mapping) if mapping.is_file() else {}
    known = told | wanted.labels
    ignored: list[str] = []
    later: list[Path] = []
    for path in _listing(root):
        if path.name in (_MAPPING, *_NETWORK_FOLDERS) or path.name.startswith((".", "__")):
            continue
        if path.suffix.lower() not in (*_PICKLES, *_TABLES):
            ignored.append(path.name)
        elif not path.is_file():
            if wanted.keeps(path.stem):
                raise DataError(f"{path} is {_not_a_file(path)}; expected a file of attributes: remove or replace it")
            ignored.append(path.name)
        elif wanted.is_target(path):
            _target(found, path)
        elif wanted.keeps(path.stem):
            _attributes(found, path, wanted, known)
        else:
            later.append(path)
    _others(found, later, wanted, known)
    if ignored:
        found.report.append(f"Files that hold no attribute were ignored: {', '.join(ignored)}.")
    found.report += _unused(told, found)
    return _assembled(found, root, root, wanted, known)


def _others(found: Found, paths: list[Path], wanted: Wanted, known: dict[str, list[str]]) -> None:
    """Files not named after a wanted column: tables that hold one, or the ids."""
    unread = []
    for path in paths:
        missing, names, pickled = set(wanted.columns or ()) - set(found.columns), [], _is_pickle(path)
        with contextlib.suppress(DataError):  # what cannot be read names nobody, and nobody asked for it
            names = [] if pickled else table_names(path)
        try:
            if missing & set(names) or (missing and (pickled or not names)) or _may_hold_ids(path, names, wanted):
                _attributes(found, path, wanted, known)
                continue
        except DataError as error:
            if missing & set(names):
                raise
            if any(map(wanted.is_id, names)):
                found.faults.append(error)
        unread.append(path.name)
    if unread:
        found.report.append(f"Files left out, as columns= names none of their columns: {', '.join(unread)}.")


def _is_pickle(path: Path) -> bool:
    return path.suffix.lower() in _PICKLES


def _may_hold_ids(path: Path, names: list[str], wanted: Wanted) -> bool:
    if not wanted.ids or wanted.is_id(path.stem):
        return bool(wanted.ids)
    if _is_pickle(path):
        with reading(path.name, "pickle"), path.open("rb") as file:
            return path.stem == "age" or b"DataFrame" in file.read(4096)
    return any(wanted.is_id(name) or name.lower() in INDEX for name in names)


def _not_a_file(path: Path) -> str:
    if path.is_symlink() and not path.exists():
        return f"a link to {os.readlink(path)}, which does not exist"
    return "a folder" if path.is_dir() else "no regular file"


def _table(path: Path, wanted: Wanted) -> Population:
    found = Found()
    mapping = path.parent / _MAPPING
    told = _mapping(mapping) if mapping.is_file() else {}
    _attributes(found, path, wanted, told | wanted.labels)
    found.report += _unused(told, found)
    for other in _listing(path.parent) if wanted.targets else ():
        if other != path and other.is_file() and wanted.is_target(other):
            _target(found, other)
    return _assembled(found, path, path.parent, wanted, told | wanted.labels)


def _read(path: Path, wanted: Named, exact: Named) -> Table:
    """The columns of one file; a row index that a pickle holds is one of them."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return read_parquet(path, path.name, wanted)
    if suffix in TEXT:
        return read_csv(path, path.name, wanted, exact)
    data = content(path, path.name, "pickle")
    with reading(path.name, "pickle"):
        record = _pickle.read(data, path.name)
        held = _frames.columns_of(record, path.name, path.stem)
        index = _frames.index_of(record)
    if index is None or index[0] in held:
        return Table(held)
    name, raw = index
    if name and not exact(name):
        return Table(held, [], [f"{path.name}: its row index {name!r} was left out."])
    return Table(held | {name: raw})


def _attributes(found: Found, path: Path, wanted: Wanted, known: dict[str, list[str]]) -> None:
    table = _read(path, every if wanted.keeps(path.stem) else wanted.reads, wanted.is_id)
    take(found, table, path.name, path.stem, wanted, known)


def take(found: Found, table: Table, origin: str, stem: str, wanted: Wanted, known: dict[str, list[str]]) -> None:
    """Take the columns of a table as attributes and ids.

    Args:
        found: to add them to.
        table: what was read.
        origin: its name for messages.
        stem: the name of a column that has none of its own.
        wanted: what is asked for.
        known: labels of codes.

    Raises:
        DataError: contacts instead of attributes, columns that are there twice, ids that cannot be used.
    """
    found.report += table.report
    columns = dict(table.columns)
    if {"source", "target"} <= {name.lower() for name in columns}:
        raise DataError(
            f"{origin} holds contacts (columns source and target), not attributes; move it into the folder "
            f"{_NETWORK_FOLDERS[1]} beside it"
        )
    try:
        key = named(columns, wanted.ids, origin)
        ids = None if key is None else Ids(columns[key], key, origin)
    except DataError as error:
        if isinstance(wanted.ids, str):
            raise
        found.faults.append(error)
    else:
        if ids is not None:
            del columns[ids.column]
            found.keyed[origin] = ids
            names = (*columns, *table.rest)
            if not names or ("age" in names and not found.all_rows):
                found.lead, found.all_rows = origin, not names
    _saved_index(found, columns, wanted, origin)
    if stem == STAGES and STAGES not in columns and len(columns) == 1:
        found.report.append(f"{origin}: column {next(iter(columns))!r} taken as {STAGES!r}.")
        columns = {STAGES: next(iter(columns.values()))}
    rest = [*table.rest, *(name for name in columns if not wanted.keeps(name))]
    if rest:
        found.report.append(f"{origin}: columns left out, as columns= does not name them: {', '.join(rest)}.")
    for name, raw in columns.items():
        if not wanted.keeps(name):
            continue
        if name in found.origins:
            raise DataError(f"column {name!r} is in two files, {found.origins[name]} and {origin}; remove one")
        found.origins[name] = origin
        keep(found, name, raw, known, origin)


def _saved_index(found: Found, columns: dict[str, Raw], wanted: Wanted, origin: str) -> None:
    """Take out what is no attribute: columns without a name, and row indices that pandas saved."""
    for name in [name for name in columns if name.lower() in INDEX and name not in (wanted.columns or ())]:
        raw = columns.pop(name)
        empty = raw.labels is not None and not any(raw.labels)
        what = "of no content" if empty else "(a saved row index)"
        found.report.append(f"{origin}: a column without a name {what} was skipped.")
        if not empty:
            found.indexes[origin] = name, raw
    raw = columns.get(COUNTER)
    if raw is not None and raw.values.dtype.kind in "iu" and distinct(raw.values):
        found.indexes.setdefault(origin, (COUNTER, raw))


def _target(found: Found, path: Path) -> None:
    table = _read(path, every, nothing)
    raw = {name: column for name, column in table.columns.items() if name.lower() not in INDEX} or table.columns
    found.report += [line for line in table.report if "only column is named" not in line]
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


def _unused(stated: dict[str, list[str]], found: Found) -> list[str]:
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


def _length(found: Found, root: str, ids: Ids | None) -> int:
    """N: the length of `age`, or the length that all columns share; any other length is an error."""
    lengths = {name: len(values) for name, values in found.columns.items()}
    if not lengths:
        ignored = "".join(f". {line}" for line in found.report if "ignored" in line or "left out" in line)
        raise DataError(f"{root} holds no attribute (.pickle, .pkl, .parquet, .csv or .tsv){ignored}")
    leader = "age" if "age" in lengths else next(iter(lengths))
    for name, length in lengths.items():
        if length != lengths[leader]:
            origin = found.origins[name]
            marks = [f"{line} " for line in found.report if line.startswith(f"{origin}: its columns are separated by")]
            hint = (
                f". If {origin} lists contacts, move it to {Path(root).name}/networks/{Path(origin).name}, with "
                f"columns source and target. If it is an observed series, move it out of the folder, or pass "
                f"targets=[{Path(origin).stem!r}] to load"
            )
            raise DataError(
                f"{''.join(marks)}{origin}: column {name!r} has {length} rows, but {leader!r} "
                f"({found.origins[leader]}) has {lengths[leader]}; every attribute needs one row per agent"
                f"{hint if Path(origin).suffix else ''}"
            )
    size = lengths[leader]
    if ids is not None and len(ids) != size:
        raise DataError(f"{ids} has {len(ids)} rows, but {leader!r} ({found.origins[leader]}) has {size}")
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
        if _is_pickle(path):
            names.add(path.stem)
        elif path.suffix.lower() in _TABLES and path.is_file():
            names.update(table_names(path))
    return names


def _network_files(folder: Path, networks: Sequence[str] | None, report: list[str]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for place in (folder / name for name in _NETWORK_FOLDERS):
        ignored = []
        for path in _listing(place) if place.is_dir() else ():
            if path.suffix.lower() not in SUFFIXES or not path.is_file():
                ignored += [path.name] if not path.name.startswith((".", "__")) else []
                continue
            if path.stem in files:
                raise DataError(f"network {path.stem!r} is in two files, {files[path.stem]} and {path}; remove one")
            files[path.stem] = path
        if ignored:
            report.append(f"Files in {place.name} that hold no network were ignored: {', '.join(ignored)}.")
    if networks is None:
        return files
    for name in networks:
        if name not in files:
            raise DataError(f"there is no network {name!r} beside {folder}; {nearest(str(name), files)}")
    return {name: files[name] for name in networks}


def _assembled(found: Found, root: Path, folder: Path, wanted: Wanted, known: dict[str, list[str]]) -> Population:
    def reader(path: Path) -> Callable[[int, Ids | None], Network]:
        return lambda size, ids: read_network(path, f"{path.parent.name}/{path.name}", size, ids)

    files = _network_files(folder, wanted.networks, found.report)
    readers = {name: reader(path) for name, path in files.items()}
    return assemble(found, root.stem, str(root), readers, wanted, known, lambda: _available(root))


def assemble(
    found: Found,
    name: str,
    source: str,
    readers: Mapping[str, Callable[[int, Ids | None], Network]],
    wanted: Wanted,
    known: dict[str, list[str]],
    available: Callable[[], Iterable[str]],
) -> Population:
    """A population of what was found.

    Args:
        found: attributes, ids, targets.
        name: of the population.
        source: where it comes from, for messages.
        readers: of each network, which take the number of agents and the ids that edges refer to.
        wanted: what is asked for.
        known: labels of codes.
        available: names of all columns that there are, for the message when one is not.

    Raises:
        DataError: columns of unequal length, ids that are missing, unknown or out of range, a column that is not there.
    """
    ids = agents(found, wanted, known, bool(readers))
    for column in (*(wanted.columns or ()), *wanted.labels):
        if column not in found.columns:
            raise DataError(f"{source} has no column {column!r}; {nearest(str(column), available())}")
    for pattern in wanted.targets:
        _require_target(found.targets, pattern, source)
    size = _length(found, source, ids)
    of_rows = None if ids is None or ids.counted else ids
    networks = {name: read(size, of_rows) for name, read in readers.items()}
    if networks:
        found.report.append(how(ids, wanted, list(networks.values()), found.columns))
    for network in networks.values():
        found.report += network.report
    return Population(
        name=name,
        size=size,
        columns=found.columns,
        labels=found.labels,
        networks={name: (network.source, network.target) for name, network in networks.items()},
        weights={name: network.weight for name, network in networks.items() if network.weight is not None},
        targets=found.targets,
        report=tuple(found.report),
        source=source,
    )
