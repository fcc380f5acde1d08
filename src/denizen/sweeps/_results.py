"""`Sweep`: the series of every set, what they sum up to, tables and pictures; and `load`."""

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from denizen._arguments import folder as folder_path
from denizen._arguments import one_of, path
from denizen._atomic import TEMPORARY, sync, write_atomic
from denizen._notebook import InNotebook
from denizen._results import Fitting, Shown, as_numbers, dates, numbered
from denizen._results import number as figure
from denizen._run_folder import while_it_goes_on
from denizen.errors import DataError, InputError, MissingExtra, StorageError, nearest, need
from denizen.sweeps._subject import Points, told

if TYPE_CHECKING:
    from denizen.sweeps._folder import SweepFolder
    from denizen.sweeps._indices import Indices

TABLE, SUMMARY = "sweep.parquet", "summary.csv"
MEASURES = ("total", "peak", "last")
LOW, HIGH = 0.05, 0.95
GROUP = 1 << 20  # rows of a part of the Parquet file
LINES, SERIES = 40, (6, 4, 3, 2, 1)  # sets that a printed table shows, and series: as many as fit the screen


class Held:
    """Rows as they come back.

    Attributes:
        done: bool `[rows]`.
        series: `[rows, steps, …]` by name; empty before the first row.
    """

    def __init__(self, rows: int) -> None:
        self.done = np.zeros(rows, dtype=bool)
        self.series: dict[str, Tensor] = {}

    def put(self, rows: np.ndarray, series: Mapping[str, Tensor]) -> None:
        """Take rows `[n]` and their series `[n, steps, …]`.

        Raises:
            DataError: they have other series, or of another form, than the rows before.
        """
        if not len(rows):
            return
        if not self.series:
            self.series = {n: torch.zeros(len(self.done), *s.shape[1:], dtype=s.dtype) for n, s in series.items()}
        forms = [{n: (s.shape[1:], s.dtype) for n, s in one.items()} for one in (self.series, series)]
        if forms[0] != forms[1]:
            odd = next(n for n in (*forms[0], *forms[1]) if forms[0].get(n) != forms[1].get(n))
            form = [f"{one[odd][1]} {list(one[odd][0])}" if odd in one else "absent" for one in forms]
            raise DataError(f"sweep: series {odd!r} is {form[1]} in row {rows[0]} and {form[0]} in rows before it")
        index = torch.as_tensor(rows)
        for name, values in series.items():
            self.series[name][index] = values
        self.done[rows] = True


class Sweep(InNotebook):
    """The sets of a sweep and their series; made by `denizen.sweeps.sweep` and `denizen.sweeps.load`.

    ``sweep["cases"]`` is a series, `[sets, replicates, steps]`; ``sweep.sets[3]`` the values of a set by name.

    Attributes:
        sets: values by name, of each set that is whole.
        numbers: of these sets within the design.
        wanted: how many sets the design has.
        names: what was swept.
        kinds: ``"flow"`` or ``"level"`` of each series.
        replicates: worlds of each set.
        steps: of each run.
        seed: of the worlds.
        dt: length of a step in `time_unit`.
        time_unit: unit of time.
        start: the day of the first step, an ISO date; None where the sweep has none.
        design: kind and numbers of the design.
        path: the folder; None where there is none.
        notes: what should be known, in words.
    """

    def __init__(
        self, points: Points, facts: Mapping[str, Any], numbers: list[int], series: dict[str, Tensor], path: Path | None
    ) -> None:
        self._points, self._series, self.path, self.numbers = points, series, path, numbers
        self.names, self.wanted = points.names, len(points.rows)
        self.sets = [dict(zip(self.names, points.rows[number], strict=True)) for number in numbers]
        self._recorded: Mapping[str, Any] = facts["recorded"] or {}
        self.kinds = {name: str(self._recorded[name]["kind"]) for name in series}
        self.replicates, self.steps, self.seed = facts["replicates"], facts["steps"], facts["seed"]
        self.dt, self.time_unit, self.design = facts["dt"], facts["time_unit"], dict(facts["design"])
        self.start: str | None = facts.get("start")
        self.notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, points: Points, facts: Mapping[str, Any], held: Held, recorded: Mapping[str, Any], path: Path | None
    ) -> "Sweep":
        """Of the sets whose rows are all there."""
        whole = held.done.reshape(len(points.rows), -1).all(axis=1)
        numbers, replicates = np.flatnonzero(whole).tolist(), facts["replicates"]
        series = {n: held.series[n] for n in recorded if n in held.series}
        series = {n: s.reshape(len(points.rows), replicates, *s.shape[1:]) for n, s in series.items()}
        if not whole.all():
            series = {name: values[torch.as_tensor(whole)] for name, values in series.items()}
        return cls(points, {**facts, "recorded": dict(recorded)}, numbers, series, path)

    # --- series -------------------------------------------------------------------------------------------------------

    @property
    def series_names(self) -> list[str]:
        """Names of the series."""
        return list(self._series)

    def about(self, name: str) -> str:
        """The sentence with which the model documents a series."""
        return str(self._recorded.get(name, {}).get("about", ""))

    def __getitem__(self, name: str) -> Tensor:
        """A series by name: `[sets, replicates, steps, …]`, on the CPU."""
        if name not in self._series:
            raise InputError(f"sweep[{name!r}]: no such series; {nearest(name, self._series)}")
        return self._series[name]

    def __len__(self) -> int:
        return len(self.sets)

    def measure(self, name: str, of: str | Callable[[Tensor], Tensor] = "total") -> Tensor:
        """A number of each run: float64 `[sets, replicates]`.

        Args:
            name: of a series; one that has several values at a step is summed.
            of: ``"total"`` over the steps, ``"peak"``, ``"last"``, or a function of the series, float64 `[sets,
                replicates, steps]`.
        """
        values = self[name].double()
        values = values.reshape(*values.shape[:3], -1).sum(3)
        if callable(of):
            found = of(values)
            if not isinstance(found, Tensor) or found.shape != values.shape[:2]:
                shape = tuple(getattr(found, "shape", ()))
                raise InputError(
                    f"measure: of gave shape {shape}, expected {tuple(values.shape[:2])}, one for each run"
                )
            return found.double()
        one_of("measure", "of", of, MEASURES)
        return {"total": lambda: values.sum(2), "peak": lambda: values.amax(2), "last": lambda: values[..., -1]}[of]()

    def measures(self, name: str) -> tuple[str, ...]:
        """Those of `measure` that say something of a series: a level has no total."""
        return MEASURES if self.kinds[name] == "flow" else MEASURES[1:]

    def indices(self, name: str, of: str | Callable[[Tensor], Tensor] = "total", *, seed: int = 0) -> "Indices":
        """Sobol's sensitivity indices of a measure's mean over replicates, for a sweep with the design `Saltelli`.

        Args:
            name: of a series.
            of: as for `measure`.
            seed: of the resampling that intervals are from.

        Raises:
            InputError: the design is another one, or not all sets are there.
            MissingExtra: SALib is not installed.
        """
        from denizen.sweeps._indices import indices

        return indices(self, name, of, seed)

    # --- tables -------------------------------------------------------------------------------------------------------

    def to_polars(self) -> Any:
        """All series as a polars data frame, one row for each set, replicate and step.

        Returns:
            Columns ``set``, one for each name that was swept, ``replicate``, ``step`` (1 for the first), ``time`` (at
            the end of the step), and one for each series; one for each entry, such as ``"deaths[2]"``, of a series that
            has several at each step. A name that is also that of a series or of another column is ``"swept.NAME"``.

        Raises:
            MissingExtra: polars is not installed.
        """
        polars = need("polars", "tables", "make a table of a sweep")
        return polars.DataFrame(self.columns())

    def to_pandas(self) -> Any:
        """The same table as a data frame of pandas.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return need("pandas", "pandas", "make data frames of pandas").DataFrame(self.columns())

    def to_xarray(self) -> Any:
        """The series as a dataset of xarray: variables over ``set``, ``replicate``, ``step`` and their further axes.

        Returns:
            Coordinates ``time`` and, with a start date, ``date`` of steps, and what was swept, of sets; attributes
            ``seed`` and ``dt``.

        Raises:
            MissingExtra: xarray is not installed.
        """
        xarray = need("xarray", "xarray", "make datasets of xarray")
        variables = {}
        for name, values in self._series.items():
            axes = ("set", "replicate", "step", *(f"{name}_dim_{k}" for k in range(values.dim() - 3)))
            variables[name] = (axes, as_numbers(values), {"long_name": self.about(name), "kind": self.kinds[name]})
        steps = np.arange(1, self.steps + 1)
        swept = {t: ("set", np.asarray([one[n] for one in self.sets])) for n, t in self._titles().items()}
        at: dict[str, Any] = {"set": self.numbers, "replicate": np.arange(self.replicates), "step": steps, **swept}
        at["time"] = ("step", steps * self.dt, {"units": self.time_unit})
        begun = dates(self)
        if begun is not None:
            at["date"] = ("step", begun.astype("datetime64[ns]"))
        return xarray.Dataset(variables, coords=at, attrs={"seed": self.seed, "dt": self.dt})

    def columns(self) -> dict[str, np.ndarray]:
        """Columns of the table, see `to_polars`."""
        return self._columns(0, len(self.sets))

    def summary(self) -> Shown:
        """Mean and 5–95 % over replicates of each series' total (of flows), peak and last value, a line for each set.

        Returns:
            A table to print; `rows` holds its numbers.
        """
        measures = [(name, of) for name in self._series for of in self.measures(name)]
        rows = {f"{name}.{of}": self._statistics(name, of) for name, of in measures}
        several = f" over {self.replicates} replicates" if self.replicates > 1 else ""
        some = f"; {LINES} of {len(self.sets):,} sets" if len(self.sets) > LINES else ""

        def table(most: int, wide: bool, fold: bool = False) -> Any:
            names = list(self._series)[:most]
            left = f"; {len(names)} of {len(self._series)} series" if len(names) < len(self._series) else ""
            what = "one replicate" if not several else "mean (5–95 %)" if wide else "mean"
            return _printed(f"{what}{several}{some}{left}", self._cells(names, rows, wide), fold)

        fewer = (table(most, False) for most in SERIES if most <= max(len(self._series), SERIES[-1]))
        found = Fitting(table(SERIES[0], True), *fewer, table(SERIES[-1], False, fold=True))
        return Shown(found, {name: statistics.tolist() for name, statistics in rows.items()})

    def _cells(self, names: Sequence[str], rows: Mapping[str, Tensor], wide: bool) -> list[list[str]]:
        """Cells of the printed table, with intervals where `wide`."""
        cells = [["set", *self.names, *(f"{name},\n{self.measures(name)[0]}" for name in names)]]
        for k, values in enumerate(self.sets[:LINES]):
            line = [f"{v:.6g}" if isinstance(v, float) else str(v) for v in values.values()]
            for name in names:
                mean, low, high = (figure(v) for v in rows[f"{name}.{self.measures(name)[0]}"][:, k].tolist())
                line.append(f"{mean} ({low}–{high})" if wide and low != high else mean)
            cells.append([str(self.numbers[k]), *line])
        return cells

    def _statistics(self, name: str, of: str) -> Tensor:
        """Mean and the two ends of the interval over replicates: `[3, sets]`."""
        values = self.measure(name, of)
        ends = torch.quantile(values, torch.tensor([LOW, HIGH], dtype=torch.float64), dim=1)
        return torch.cat([values.mean(1)[None], ends])

    def summary_csv(self) -> str:
        """The numbers of `summary` as CSV, in full."""
        columns: dict[str, list[Any]] = {"set": self.numbers}
        for name, title in self._titles().items():
            columns[title] = [values[name] for values in self.sets]
        columns["replicates"] = [self.replicates] * len(self.sets)
        for name in self._series:
            for of in self.measures(name):
                for word, values in zip(("mean", "p5", "p95"), self._statistics(name, of).tolist(), strict=True):
                    columns[f"{name}.{of}.{word}"] = values
        text = io.StringIO(newline="")
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(columns)
        lines.writerows(zip(*columns.values(), strict=True))
        return text.getvalue()

    def write_tables(self, folder: "SweepFolder") -> None:
        """Write both tables to the folder, and say in its manifest that the sweep is done."""
        wanted = [folder.path / TABLE, folder.path / SUMMARY]
        if folder.manifest["status"] == "finished" and all(file.exists() for file in wanted):
            return
        with folder._saving():
            write_atomic(wanted[1], self.summary_csv().encode())
            try:
                self.write_parquet(wanted[0])
            except MissingExtra as error:
                self.notes += (f"{TABLE} was not written: {error}",)
        folder.note(status="finished", error=None)
        folder.log(f"finished, {folder.manifest['rows']} rows safe")

    def write_parquet(self, file: Path | str) -> None:
        """Write the table of `to_polars` to a Parquet file, part by part, so that it need not fit into memory twice.

        Raises:
            MissingExtra: pyarrow is not installed.
            StorageError: the file cannot be written.
        """
        file = path("write_parquet", "file", file)
        arrow, parquet = (need(one, "tables", "write a sweep's table") for one in ("pyarrow", "pyarrow.parquet"))
        temporary = file.with_name(f".{file.name}.{os.getpid()}{TEMPORARY}")
        each = max(1, GROUP // (self.replicates * self.steps))
        try:
            writer = None
            for first in range(0, max(1, len(self.sets)), each):
                part = arrow.table(self._columns(first, first + each))
                writer = writer or parquet.ParquetWriter(temporary, part.schema)
                writer.write_table(part)
            assert writer is not None
            writer.close()
            sync(temporary)
            os.replace(temporary, file)
        except OSError as error:
            raise StorageError(f"{file} could not be written: {error.strerror or error}") from error
        finally:
            temporary.unlink(missing_ok=True)

    def _titles(self) -> dict[str, str]:
        """Columns of what was swept: a name that something else has is told apart."""
        taken = {"set", "replicate", "replicates", "step", "time", "date", *self._series}
        return {name: f"swept.{name}" if name in taken else name for name in self.names}

    def _columns(self, first: int, last: int) -> dict[str, np.ndarray]:
        sets = self.sets[first:last]
        each, runs = self.replicates * self.steps, len(sets) * self.replicates
        step = np.tile(np.arange(1, self.steps + 1, dtype=np.int64), runs)
        columns = {"set": np.repeat(np.asarray(self.numbers[first:last], dtype=np.int32), each)}
        for name, title in self._titles().items():
            columns[title] = np.repeat(np.asarray([values[name] for values in sets]), each)
        replicate = np.repeat(np.arange(self.replicates, dtype=np.int32), self.steps)
        columns |= {"replicate": np.tile(replicate, len(sets)), "step": step, "time": step * self.dt}
        begun = dates(self)
        columns |= {} if begun is None else {"date": np.tile(begun, runs)}
        for name, values in self._series.items():
            part = values[first:last]
            flat = as_numbers(part).reshape(runs * self.steps, *part.shape[3:])
            columns |= {title: np.ascontiguousarray(entry) for title, entry in numbered(name, flat).items()}
        return columns

    # --- pictures -----------------------------------------------------------------------------------------------------

    def plot(self, file: Path | str | None = None, name: str | None = None) -> Any:
        """Small multiples: a panel for each set, with the median over replicates and the band that holds 90 % of them.

        Args:
            file: to write, for example ``"sweep.png"``; None writes none.
            name: of the series; None: the first.

        Returns:
            The matplotlib figure.

        Raises:
            MissingExtra: matplotlib is not installed.
            StorageError: the file cannot be written.
        """
        from denizen.sweeps._plot import multiples

        return multiples(self, name, file)

    def __rich__(self) -> Any:
        return self.summary().__rich__()

    def __repr__(self) -> str:
        missing = "" if len(self.sets) == self.wanted else f" of {self.wanted}"
        return (
            f"Sweep({', '.join(self.names)}: {len(self.sets)}{missing} sets × {self.replicates} replicates × "
            f"{self.steps} steps, seed {self.seed})"
        )

    def told(self, k: int) -> str:
        """The values of a set, in words."""
        return told(self.sets[k])


def _printed(title: str, cells: Sequence[Sequence[str]], fold: bool) -> Any:
    """A table whose cells are never broken, so that it fits a screen or gives way to a smaller one; but with `fold`."""
    from rich.box import SIMPLE_HEAD

    from denizen._printing import Table

    style: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "header_style": "bold"}
    table = Table(title=title, box=SIMPLE_HEAD, padding=0, **style)
    for column in zip(*cells, strict=True):
        wide = None if fold else max(len(line) for cell in column for line in cell.splitlines())
        table.add_column(column[0], justify="right", min_width=wide, overflow="fold")
    for line in cells[1:]:
        table.add_row(*line)
    return table


def load(path: Path | str) -> Sweep:
    """Read the folder of a sweep; works while it is still going, and gives the sets that are whole by then.

    Raises:
        DataError: no folder of a sweep, or a damaged one; names the file.
    """
    from denizen.sweeps._folder import SweepFolder

    path = folder_path("load", "path", path)
    folder = SweepFolder.open(path)

    def use(manifest: dict[str, Any]) -> Sweep:
        folder.manifest = manifest
        points = folder.points()
        held = Held(len(points.rows) * manifest["replicates"])
        for rows, series in folder.parts():
            held.put(rows, series)
        return Sweep.of(points, manifest, held, manifest["recorded"] or {}, path)

    return while_it_goes_on(folder.manifest, lambda: SweepFolder.read(path), use)
