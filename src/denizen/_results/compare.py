"""Two results beside each other: measures of their series, replicate by replicate."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from denizen._arguments import number
from denizen._notebook import InNotebook
from denizen._results.results import Fitting
from denizen._results.results import number as figure
from denizen.errors import InputError, nearest

if TYPE_CHECKING:
    from denizen._printing import Table
    from denizen._results.results import Results

Series = Mapping[str, tuple[str, np.ndarray]]  # kind and numbers [rows, steps], by name
MOST = 4_000_000  # differences that are looked at of results without common worlds


@dataclasses.dataclass(frozen=True)
class Difference:
    """A measure of two results.

    Attributes:
        name: of the series.
        measure: ``"total"`` of a flow, ``"peak"`` or ``"end"`` of a level.
        a: mean of the first.
        b: mean of the second.
        difference: mean of b - a.
        mean_low, mean_high: interval of level `level` for the mean of b - a, by Student's t.
        low, high: between these b - a lies in a share `level` of the worlds.
        less: share of the worlds in which b is less than a, ties counted by half.
        independent: replicates on each side that would tell the mean as narrowly without common random numbers; None
            where b - a is the same in every world, or where the two have none in common.
    """

    name: str
    measure: str
    a: float
    b: float
    difference: float
    mean_low: float
    mean_high: float
    low: float
    high: float
    less: float
    independent: float | None


@dataclasses.dataclass(frozen=True)
class Comparison(InNotebook):
    """What two results give; made by `Results.compare` and `Fit.compare`.

    Attributes:
        rows: an entry for each measure.
        worlds: how many pairs; of results without common random numbers, the smaller number of replicates.
        level: of the intervals.
        names: of the two.
        paired: whether rows of both sides share their random numbers.
        steps: over which both were compared.
    """

    rows: tuple[Difference, ...]
    worlds: int
    level: float
    names: tuple[str, str]
    paired: bool
    steps: int

    def __getitem__(self, name: str) -> Difference:
        """The first measure of a series."""
        for row in self.rows:
            if row.name == name:
                return row
        raise InputError(f"comparison[{name!r}]: no such series; {nearest(name, [row.name for row in self.rows])}")

    def __rich__(self) -> object:
        return Fitting(self._table(9 if self.paired else 8), self._table(6), self._table(5))

    def __str__(self) -> str:
        from denizen._printing import plain

        return plain(self, 130)

    @property
    def about(self) -> str:
        """How the two were compared, a sentence."""
        if self.paired:
            return f"{self.worlds} worlds of {self.steps} steps, with the same draws on both sides"
        return (
            f"{self.worlds} worlds of {self.steps} steps, which share no random numbers: differences of all pairs; the "
            f"same seed and worlds on both sides tell more with less"
        )

    def _table(self, columns: int) -> "Table":
        from denizen._printing import Table

        heads = ["series", "", "a", "b", "b - a", f"{self.level:.0%} for the mean"]
        heads = [*heads, f"{self.level:.0%} of worlds", "b < a in", "independent"][:columns]
        lines = []
        for row in self.rows:
            cells = [row.name, row.measure, *map(figure, (row.a, row.b, row.difference))]
            cells += [_range(row.mean_low, row.mean_high), _range(row.low, row.high), f"{row.less:.0%}"]
            cells.append("–" if row.independent is None else figure(math.ceil(row.independent)))
            lines.append(cells[:columns])
        a, b = self.names
        table = Table(title=f"a: {a}\nb: {b}\n{self.about}", title_justify="left", title_style="", box=None)
        for k, column in enumerate(zip(heads, *lines, strict=True)):  # as wide as it is: a cut number reads as another
            table.add_column(column[0], justify="left" if k < 2 else "right", min_width=max(map(len, column)))
        for line in lines:
            table.add_row(*line)
        if columns == 9:
            table.caption = "independent: replicates that each side would need without common random numbers"
            table.caption_justify, table.caption_style = "left", ""
        return table


def _range(low: float, high: float) -> str:
    return f"{figure(low)} to {figure(high)}"


def compare(a: "Results", b: "Results", level: float, names: Sequence[str] | None) -> Comparison:
    """See `Results.compare`."""
    if a.time_unit != b.time_unit or a.dt != b.dt:
        raise InputError(
            f"compare: steps of {a.dt:g} {a.time_unit} and of {b.dt:g} {b.time_unit}, expected the same on both sides"
        )
    if names is not None and (isinstance(names, str) or not isinstance(names, Sequence) or len(names) != 2):
        raise InputError(f"compare: names={names!r}, expected two names, or None")
    steps, rows = min(a.steps, b.steps), common(a, b)
    if not steps:
        raise InputError("compare: no steps yet on one side, so there is nothing to compare")
    told = (str(names[0]), str(names[1])) if names else (f"{a.name}, seed {a.seed}", f"{b.name}, seed {b.seed}")
    sides = [series_of(one, steps, None if rows is None else rows[k]) for k, one in enumerate((a, b))]
    return compare_series(*sides, names=told, level=level, paired=rows is not None)


def common(a: "Results", b: "Results") -> tuple[list[int], list[int]] | None:
    """Rows of both that share their random numbers, in the same order; None where there are none."""
    if a.seed != b.seed:
        return None
    if a.worlds == b.worlds:  # also where a world stands in several rows, with other parameters each
        return list(range(len(a.worlds))), list(range(len(b.worlds)))
    if any(len(set(one.worlds)) < len(one.worlds) for one in (a, b)):
        raise InputError(
            "compare: a world has several replicates on one side, and the worlds of both are not the same, so that "
            "nothing says which belong together"
        )
    both = [world for world in a.worlds if world in set(b.worlds)]
    return ([a.worlds.index(w) for w in both], [b.worlds.index(w) for w in both]) if both else None


def series_of(results: "Results", steps: int, rows: list[int] | None = None) -> dict[str, tuple[str, np.ndarray]]:
    """Kind and first numbers `[rows, steps]` of each series; what has several entries at a step is summed."""
    found = {}
    for name in results.series_names:
        values = results[name].detach().double().cpu().numpy()[:, :steps]
        chosen = values if rows is None else values[rows]
        found[name] = (results.kinds[name], chosen.reshape(*chosen.shape[:2], -1).sum(2))
    return found


def compare_series(a: Series, b: Series, names: tuple[str, str], level: float = 0.9, paired: bool = True) -> Comparison:
    """Series of the same worlds in the same order, row by row; with `paired` False, of worlds of their own.

    Raises:
        InputError: they have none in common, or fewer than two rows.
    """
    number("compare", "level", level, above=0, high=0.999)  # further out `student` is not exact
    rows, sizes, steps = [], [0, 0], 0
    for name in in_common(*({name: kind for name, (kind, _) in one.items()} for one in (a, b))):
        for measure, of_a in measures(*a[name]).items():
            of_b = measures(*b[name])[measure]
            rows.append(_difference(name, measure, of_a, of_b, level, paired))
            sizes, steps = [len(of_a), len(of_b)], a[name][1].shape[1]
    return Comparison(tuple(rows), min(sizes), level, names, paired, steps)


def _difference(name: str, measure: str, a: np.ndarray, b: np.ndarray, level: float, paired: bool) -> Difference:
    if min(len(a), len(b)) < 2:
        raise InputError(f"compare: {min(len(a), len(b))} replicate in common, expected 2 or more to state intervals")
    alone = [one.var(ddof=1) / len(one) for one in (a, b)]
    if paired:
        away = b - a
        error, freedom = math.sqrt(away.var(ddof=1) / len(away)), len(away) - 1.0
    else:
        most = math.isqrt(MOST)
        away = (b[None, :most] - a[:most, None]).reshape(-1)
        error = math.sqrt(sum(alone))
        parts = sum(part**2 / (len(one) - 1) for part, one in zip(alone, (a, b), strict=True))
        freedom = error**4 / parts if parts else 1.0  # Welch (1947)
    mean = float(b.mean() - a.mean())
    reach = error * student(0.5 + level / 2, freedom)
    low, high = np.quantile(away, [0.5 - level / 2, 0.5 + level / 2])
    less = (away < 0).mean() + (away == 0).mean() / 2
    needed = sum(alone) / error**2 * len(away) if paired and error > 0 else None
    told = (a.mean(), b.mean(), mean, mean - reach, mean + reach, low, high, less)
    return Difference(name, measure, *map(float, told), independent=needed)


def in_common(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """Names of series that two have of one kind; raises `InputError` where there is none."""
    both = [name for name in a if a[name] == b.get(name)]
    if not both:
        raise InputError(f"compare: no series in common: {', '.join(a)} and {', '.join(b)}")
    return both


def measures(kind: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """What is compared of a series `[rows, steps]`: for each row the total of a flow, peak and end of a level."""
    values = values.astype(np.float64)
    return {"total": values.sum(1)} if kind == "flow" else {"peak": values.max(1), "end": values[:, -1]}


def student(share: float, freedom: float) -> float:
    """Quantile of Student's t above the median; written out because the core has no scipy.

    With `theta = atan(t / sqrt(freedom))`, the density of theta is proportional to `cos(theta) ** (freedom - 1)`
    (Abramowitz and Stegun 1964, 26.7), and is summed here. Right to four digits for shares up to 0.9995.
    """
    width = min(math.pi / 2, 10 / math.sqrt(freedom)) / 20_000
    density = np.cos((np.arange(20_000) + 0.5) * width) ** (freedom - 1)
    mass = 0.5 + 0.5 * np.cumsum(density) / density.sum()
    return math.tan(float(np.interp(share, mass, np.arange(1, 20_001) * width))) * math.sqrt(freedom)
