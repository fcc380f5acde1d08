"""What `load` is asked for and has read, and who is who: rows of files matched by ids, what edges mean by a number."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from denizen.errors import DataError, nearest
from denizen.population._columns import INDEX, STAGES, Raw, finish, stages
from denizen.population._edges import Network
from denizen.population._ids import Ids, is_id
from denizen.space.files import Columns

_LIKELY = re.compile(r"(?<![A-Za-z])id$|I[dD]$")


@dataclass
class Found:
    """What has been read so far: columns and where each came from."""

    columns: dict[str, np.ndarray] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    targets: dict[str, np.ndarray] = field(default_factory=dict)
    report: list[str] = field(default_factory=list)
    keyed: dict[str, Ids] = field(default_factory=dict)
    """Files whose rows have ids."""
    faults: list[DataError] = field(default_factory=list)
    """What is wrong with ids of other files, which matters where edges or other files refer to them."""
    lead: str = ""
    """The one of them whose rows are the agents in their order: it has a column `age`, or nothing but ids."""
    all_rows: bool = False
    """Whether that has nothing but ids, which are those of the rows of all files that have none of their own."""
    indexes: dict[str, tuple[str, Raw]] = field(default_factory=dict)
    """Files with a row index that was saved without a name: its column and its values."""


@dataclass(frozen=True)
class Wanted:
    """The arguments of `load`."""

    columns: Sequence[str] | None
    networks: Sequence[str] | None
    targets: Sequence[str]
    labels: dict[str, list[str]]
    ids: str | bool

    def is_id(self, name: str) -> bool:
        return name == self.ids if isinstance(self.ids, str) else self.ids and is_id(name)

    def reads(self, name: str) -> bool:
        return self.keeps(name) or self.is_id(name) or name.lower() in INDEX

    def keeps(self, name: str) -> bool:
        return self.columns is None or name in self.columns

    def is_target(self, path: Path) -> bool:
        return any(fnmatch(path.stem, pattern) for pattern in self.targets)


def keep(found: Found, name: str, raw: Raw, known: dict[str, list[str]], origin: str) -> None:
    values, labels, said = finish(name, raw, known.get(name), origin)
    if name == STAGES:  # written as real numbers by convention, so that is not worth a sentence
        values, said = stages(values, raw, origin), []
    found.columns[name] = values
    if labels is not None:
        found.labels[name] = labels
    found.report += said


def distinct(values: np.ndarray) -> bool:
    return np.unique(values).size == values.size


def agents(found: Found, wanted: Wanted, known: dict[str, list[str]], edges: bool) -> Ids | None:
    """The agents' ids, or None; the rows of every file that has ids are brought into one order."""
    if found.faults:
        if edges or len({*found.origins.values(), *found.keyed}) > 1:
            raise found.faults[0]
        found.report += [f"No ids were taken, for nothing refers to any: {error}." for error in found.faults]
    if not found.keyed:
        if isinstance(wanted.ids, str):
            names = [*found.columns, *(name for name, _ in found.indexes.values())]
            raise DataError(f"there is no column {wanted.ids!r} of ids; {nearest(wanted.ids, names)}")
        if wanted.ids:
            _refuse_index(found, edges)
        return None
    lead = found.keyed.get(found.lead, found.keyed[min(found.keyed)])
    moved = [origin for origin, ids in found.keyed.items() if ids is not lead and _align(found, lead, ids)]
    loose = [origin for origin in found.origins.values() if origin not in found.keyed]
    if wanted.ids:
        _refuse_index(found, bool(loose))
    if moved and loose and not found.all_rows:
        raise DataError(
            f"{moved[0]} and {lead.origin} list the agents in different orders, and {loose[0]} has no ids, so its rows "
            f"are nobody's; add the column {lead.column!r} to it"
        )
    if wanted.keeps(lead.column) and lead.column not in found.columns:
        found.origins[lead.column] = lead.origin
        keep(found, lead.column, lead.raw, known, lead.origin)
    return lead


def _align(found: Found, lead: Ids, ids: Ids) -> bool:
    """Bring the columns of a file into the order of another; whether that changed anything."""
    first = ids.raw.first_line
    where = Columns(None, None, origin=ids.origin, line=None if first is None else lambda row: row + first)
    rows = lead.rows(where, ids.column, ids.raw, found.report)
    absent = np.flatnonzero(np.bincount(rows, minlength=len(lead)) == 0)
    if absent.size or len(ids) != len(lead):
        row = int(absent[0]) if absent.size else 0
        raise DataError(
            f"{ids.origin} has no row for id {lead.raw.texts()[row]!r}, which is in {lead}, {lead.raw.place(row)} "
            f"({absent.size} such ids); every attribute needs one row per agent"
        )
    found.report.append(f"{ids.origin}: rows matched with {lead.origin} by column {ids.column!r}.")
    if (rows == np.arange(len(rows))).all():
        return False
    for name, values in found.columns.items():
        if found.origins[name] == ids.origin:
            found.columns[name] = np.empty_like(values)
            found.columns[name][rows] = values
    return True


def _refuse_index(found: Found, edges: bool) -> None:
    """Refuse a saved row index that is not 0, 1, 2, …, where it matters whether it names the agents."""
    alike = {(raw.labels, tuple(raw.values.tolist())) for _, raw in found.indexes.values()}
    if not edges and len(alike) == 1 and found.indexes.keys() >= set(found.origins.values()):
        return  # all files list the same rows
    for origin, (name, raw) in found.indexes.items():
        if origin in found.keyed:
            continue
        counted = raw.labels is None and (raw.values == np.arange(len(raw.values))).all()
        if not counted and (edges or len(set(found.origins.values())) > 1):
            raise DataError(
                f"{origin}: its saved row index is not 0, 1, 2, …, so the agents may be known by it or by the numbers "
                f"of their rows; name that column 'id' or pass ids={name!r} for the first, remove it or pass "
                f"ids=False for the second"
            )


def how(ids: Ids | None, wanted: Wanted, networks: list[Network], columns: dict[str, np.ndarray]) -> str:
    """A sentence that says how the ends of edges were understood."""
    if ids is None:
        likely = [name for name, values in columns.items() if _LIKELY.search(name) and distinct(values)]
        hint = f"; ids={likely[0]!r} takes that column, whose values all differ" if likely and wanted.ids else ""
        return f"Edges map by row number, counted from 0{': there is no column of ids' if wanted.ids else ''}{hint}."
    if ids.counted:
        return f"Edges map by {ids}, which counts the rows from 0."
    held = [] if ids.texts else [ids.raw.values[end] for each in networks for end in (each.source, each.target)]
    both = held and all(end.min(initial=0) >= 0 and end.max(initial=0) < len(ids) for end in held)
    return f"Edges map by {ids}{'; ids=False takes them as row numbers, which they might be too' if both else ''}."
