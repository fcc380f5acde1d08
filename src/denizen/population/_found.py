"""What `load` is asked for, and what it has read so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from denizen.errors import DataError
from denizen.population._columns import INDEX, STAGES, Raw, finish, stages
from denizen.population._ids import Ids, is_id


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
