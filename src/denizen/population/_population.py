"""A population: one column per attribute, edge lists over the same ids, and a report of every choice on the way in."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike

import numpy as np

from denizen._notebook import InNotebook
from denizen.errors import DataError, InputError, nearest
from denizen.population._checks import without_reverse
from denizen.population._columns import STAGES, Labels


@dataclass(frozen=True, eq=False)
class Population(InNotebook):
    """Agents as columns, contacts as edge lists. Row k of every column is agent k.

    Attributes:
        name: a short name, that of the folder or file.
        size: number of agents.
        columns: attribute name -> uint8, int16, int32 or (real values) float32 `[size]`; `disease_stages` is int8.
        labels: attribute name -> label of each code; only for attributes that have labels.
        networks: network name -> (source, target), int32 `[edges]`, rows as in the file; source infects target.
        weights: network name -> float32 `[edges]`, where the file has a third column.
        targets: observed series that came beside the population, by file name without suffix.
        report: a sentence for each choice made while reading.
        source: the path, or `"synthetic:astoria"`.
    """

    name: str
    size: int
    columns: dict[str, np.ndarray]
    labels: dict[str, list[str]] = field(default_factory=dict)
    networks: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    targets: dict[str, np.ndarray] = field(default_factory=dict)
    report: tuple[str, ...] = ()
    source: str = ""

    def __repr__(self) -> str:  # the arrays themselves would fill the screen
        parts = f"columns: {', '.join(self.columns)}; networks: {', '.join(self.networks) or 'none'}"
        return f"<Population {self.name!r} of {self.size:,} agents; {parts}>"

    def _printed(self) -> str:
        return self.summary()

    def column(self, name: str) -> np.ndarray:
        """One attribute, `[size]`.

        Raises:
            DataError: there is no such attribute; names the nearest.
        """
        if name not in self.columns:
            raise DataError(f"population {self.name!r} has no column {name!r}; {nearest(str(name), self.columns)}")
        return self.columns[name]

    def edges(
        self, network: str = "0", symmetrize: bool = False, keep_self_loops: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """The contacts of one network, ready for a graph.

        Args:
            network: its name.
            symmetrize: add the other direction (with the same weight) of each contact that is written one way only.
            keep_self_loops: keep rows whose source is their target.

        Returns:
            source int32 `[edges]`, target int32 `[edges]`, weight float32 `[edges]` or None. Source infects target.

        Raises:
            DataError: there is no such network; names the nearest.
        """
        network = str(network)
        if network not in self.networks:
            raise DataError(f"population {self.name!r} has no network {network!r}; {nearest(network, self.networks)}")
        source, target = self.networks[network]
        weight = self.weights.get(network)
        loops = source == target
        if not keep_self_loops and loops.any():
            source, target = source[~loops], target[~loops]
            weight = None if weight is None else weight[~loops]
        if symmetrize:
            back = without_reverse(source, target, self.size)
            source, target = np.concatenate([source, target[back]]), np.concatenate([target, source[back]])
            weight = None if weight is None else np.concatenate([weight, weight[back]])
        return source, target, weight

    def codes_of(self, column: str, labels: Sequence[str], order: Sequence[str] | None = None) -> np.ndarray:
        """Each agent's place in a list of labels, matched by label and never by position of the code.

        Both spellings of age bands are understood: `20-29` and `20t29`, `65+` and `65A`, `under 19` and `U19`.

        Args:
            column: the attribute.
            labels: the labels in the wanted order; the result indexes this list.
            order: the labels of the data's own codes 0, 1, ..., where the population does not state them.

        Returns:
            uint8 `[size]` (int32 for more than 256 labels).

        Raises:
            DataError: the column has no labels and no order is given; or a code that occurs has no label, or one that
                is not in `labels`.
            InputError: two entries of `labels` mean the same.

        Examples:
            >>> from denizen.population import synthetic
            >>> groups = ["under 19", "20-29", "30-39", "40-49", "50-64", "65+"]
            >>> group = synthetic(size=1000).codes_of("age", groups)
        """
        for argument, given in (("labels", labels), ("order", order)):
            if isinstance(given, str):
                raise InputError(f"codes_of: {argument}={given!r}, expected a list of labels, such as [{given!r}]")
        codes = self.column(column)
        places = Labels(labels)
        if not places.distinct:
            raise InputError(
                f"codes_of: labels {list(labels)} hold the same label twice (spellings of one age band count as one)"
            )
        stated = order if order is not None else self.labels.get(column)
        if stated is None:
            unused = [note for note in self.report if note.endswith(f"did you mean {column!r}?")]
            raise DataError(
                f"column {column!r} of population {self.name!r} has codes without labels, so their meaning is unknown; "
                f"write labels into the column ({', '.join(map(str, labels))}), or "
                f'write {{"{column}": ["label of code 0", "label of code 1", ...]}} to mapping.json beside the data, '
                f"or pass labels={{{column!r}: [...]}} to load{''.join(f'. {note}' for note in unused)}"
            )
        if codes.dtype.kind == "f":
            raise DataError(f"column {column!r} of population {self.name!r} holds real numbers, not codes")
        table = np.zeros(max(len(stated), 1), dtype=np.uint8 if len(labels) <= 256 else np.int32)
        for code in np.unique(codes).tolist():
            if not 0 <= code < len(stated):
                raise DataError(
                    f"column {column!r} of population {self.name!r} has the code {code}, "
                    f"but labels for 0 to {len(stated) - 1} only"
                )
            place = places.place(stated[code])
            if place is None:
                raise DataError(
                    f"column {column!r} of population {self.name!r}: label {stated[code]!r} of code {code} is not "
                    f"among the wanted ones; {nearest(stated[code], labels)}"
                )
            table[code] = place
        return table[codes]

    def save(self, path: str | PathLike[str]) -> None:
        """Write a binary column store that `load` reads back, atomically. The suffix should be `.npz`.

        Raises:
            StorageError: the file cannot be written; what was at `path` before is still there.
        """
        from denizen.population._store import save

        save(self, path)

    def summary(self) -> str:
        """A few lines for people: size, columns, networks, and the report."""
        lines = [f"{self.name}: {self.size:,} agents from {self.source}"]
        for name, values in self.columns.items():
            what = f"{values.dtype}"
            if name in self.labels:
                what += f", {len(self.labels[name])} labels"
            elif values.size:
                what += f", {values.min():.6g} to {values.max():.6g}"
            if name == STAGES:
                counts = np.bincount(values)
                what += f", agents per stage {', '.join(f'{count:,}' for count in counts)}"
            lines.append(f"  column {name}: {what}")
        for name, (source, _) in self.networks.items():
            per_agent = len(source) / self.size if self.size else 0.0
            weighted = ", weighted" if name in self.weights else ""
            lines.append(f"  network {name}: {len(source):,} edges, {per_agent:.3g} per agent{weighted}")
        lines += [f"  target {name}: {len(values)} values" for name, values in self.targets.items()]
        return "\n".join(lines + [f"  note: {sentence}" for sentence in self.report])
