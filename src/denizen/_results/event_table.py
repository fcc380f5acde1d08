"""The rows of a logged event, and what they tell: incidence, who infected whom, generation times, R by cohort."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from denizen._arguments import whole
from denizen._results.table import dates
from denizen.errors import InputError, nearest, need

if TYPE_CHECKING:
    from denizen._results.results import Results

Rows = dict[str, np.ndarray]  # columns by name


class EventTable:
    """The rows of a logged event, by step, then replicate, then identity; made by `run.events(name)`.

    ``table["id"]`` is a column, as a NumPy array:

    - ``replicate``, ``world``: which of the independent runs;
    - ``step`` (1 for the first), ``time`` (at the end of the step), ``date`` (when the step begins; in runs with a
      start date), as in the table of series;
    - ``id``: identity of the agent to whom it happened;
    - ``by``: identity of the agent who caused it, -1 for nobody; ``layer``: through which layer; both only where the
      model or the log found out; and whatever else was recorded.

    What follows from `by` looks for the latest row of the causing agent before its effect, so agents may catch
    something several times. Those who had it before the first step have no row.

    Attributes:
        name: of the event.
        columns: all columns by name.
        worlds: world number of each replicate.
        steps: steps that the run has done.
        dt: length of a step in the model's unit of time.
    """

    def __init__(self, name: str, results: "Results", rows: Rows) -> None:
        """A table of a run.

        Args:
            name: of the event.
            results: the run.
            rows: its columns ``replicate``, ``step``, ``id`` and others, in order.
        """
        self.name, self.worlds, self.steps, self.dt = name, list(results.worlds), results.steps, results.dt
        begun = dates(results)
        rest = {column: values for column, values in rows.items() if column not in ("replicate", "step")}
        self.columns: Rows = {
            "replicate": rows["replicate"],
            "world": np.asarray(self.worlds, dtype=np.int64)[rows["replicate"]],
            "step": rows["step"],
            "time": rows["step"] * self.dt,
            **({} if begun is None else {"date": begun[rows["step"] - 1]}),
            **rest,
        }

    def __len__(self) -> int:
        return len(self.columns["id"])

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __getitem__(self, column: str) -> np.ndarray:
        """A column by name.

        Raises:
            InputError: there is none of this name.
        """
        if column not in self.columns:
            more = "; rng.record(…, by=…) or EventLog({…: function}) makes it" if column in ("by", "layer") else ""
            raise InputError(f"events {self.name!r} have no column {column!r}; {nearest(column, self.columns)}{more}")
        return self.columns[column]

    def __repr__(self) -> str:
        return (
            f"EventTable({self.name}: {len(self):,} rows over {self.steps} steps and {len(self.worlds)} replicates; "
            f"{', '.join(self.columns)})"
        )

    def to_polars(self) -> Any:
        """The rows as a polars data frame.

        Raises:
            MissingExtra: polars is not installed.
        """
        return need("polars", "tables", "make tables of events").DataFrame(self.columns)

    def to_pandas(self) -> Any:
        """The rows as a data frame of pandas.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return need("pandas", "pandas", "make data frames of pandas").DataFrame(self.columns)

    def incidence(self) -> np.ndarray:
        """Number of rows of each step: int64 `[replicates, steps]`."""
        shape = len(self.worlds), self.steps
        return np.bincount(self._cohort(), minlength=shape[0] * shape[1]).reshape(shape)

    @functools.cached_property
    def parents(self) -> np.ndarray:
        """For each row the number of the row in which its cause happened to the agent who caused it: int64 `[rows]`.

        -1 for those caused by nobody, or by an agent without a row: one who had it before the first step.
        """
        who, by = self["id"], self["by"]
        known, code = np.unique(np.concatenate([who, by]), return_inverse=True)
        times = self.steps + 2
        series = (self["replicate"].astype(np.int64) * len(known))[:, None] + code.reshape(2, -1).T
        keys = series * times + self["step"][:, None]
        order = np.argsort(keys[:, 0], kind="stable")
        rows = keys[order, 0]
        place = np.searchsorted(rows, keys[:, 1], side="left") - 1  # the latest of earlier steps
        found = (place >= 0) & (by >= 0)
        found[found] = rows[place[found]] // times == series[found, 1]
        parents = np.full(len(who), -1, dtype=np.int64)
        parents[found] = order[place[found]]
        return parents

    def offspring(self) -> np.ndarray:
        """How many rows each row caused, so far: int64 `[rows]`."""
        return np.bincount(self.parents[self.parents >= 0], minlength=len(self))

    def reproduction(self) -> np.ndarray:
        """R by cohort: how many each of those caught in a step has caught on average: `[replicates, steps]`.

        This is the case reproduction number (Wallinga and Teunis 2004, Am J Epidemiol 160:509) with infectors known
        instead of guessed. The last cohorts are not done with infecting when the run ends, and count too little.

        Returns:
            float64; NaN for steps in which nobody was caught.
        """
        cases = self.incidence().astype(np.float64)
        caused = np.bincount(self._cohort(), weights=self.offspring(), minlength=cases.size).reshape(cases.shape)
        return np.divide(caused, cases, out=np.full_like(cases, np.nan), where=cases > 0)

    def generation_times(self, *, initial: bool = False) -> np.ndarray:
        """Time from an agent's own event to each of those that it caused, in the model's unit: float64 `[pairs]`.

        Args:
            initial: count those who had it before the first step as well, as if they had caught it at time 0.
        """
        child = np.flatnonzero((self["by"] >= 0) if initial else (self.parents >= 0))
        parent = self.parents[child]
        return self["time"][child] - np.where(parent >= 0, self["time"][parent], 0.0)

    def to_networkx(self, replicate: int = 0) -> Any:
        """Who infected whom in a replicate, as a directed graph of networkx: a forest, each tree from its first case.

        Args:
            replicate: which one, from 0.

        Returns:
            Nodes are (id, step), with step 0 for those who had it before the first step; they have the other columns
            as attributes. Edges run from who caused to whom it happened.

        Raises:
            MissingExtra: networkx is not installed.
        """
        replicate = whole("to_networkx", "replicate", replicate, 0, len(self.worlds) - 1)
        graph = need("networkx", "graphs", "make graphs of networkx").DiGraph()
        rows = np.flatnonzero(self["replicate"] == replicate)
        columns = {name: values[rows].tolist() for name, values in self.columns.items() if name != "replicate"}
        parents = self.parents[rows]
        steps = np.where(parents >= 0, self["step"][parents], 0).tolist()
        for place, (who, step, by) in enumerate(zip(columns["id"], columns["step"], columns["by"], strict=True)):
            graph.add_node((who, step), **{name: values[place] for name, values in columns.items()})
            if by >= 0:
                graph.add_edge((by, steps[place]), (who, step))
        return graph

    def _cohort(self) -> np.ndarray:
        """Place of each row's step in a flat `[replicates, steps]`."""
        return self["replicate"].astype(np.int64) * self.steps + self["step"] - 1
