"""Sobol's sensitivity indices, by SALib."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from denizen._arguments import whole
from denizen.errors import InputError, need
from denizen.rng import MAX_SEED
from denizen.sweeps._designs import problem

if TYPE_CHECKING:
    from denizen.sweeps._results import Sweep


@dataclasses.dataclass(frozen=True)
class Indices:
    """How much of the variance of a measure comes from what was swept; made by `Sweep.indices`.

    Attributes:
        measure: what was looked at, such as ``"cases, total"``.
        names: what was swept.
        first: `[names]`, share of the variance that each explains alone.
        first_interval: half widths of their 95 % intervals.
        total: `[names]`, share that goes with each, alone or together with others.
        total_interval: half widths of their 95 % intervals.
        second: `[names, names]`, share that each pair explains beyond both alone, above the diagonal; None where the
            design was without.
    """

    measure: str
    names: tuple[str, ...]
    first: np.ndarray
    first_interval: np.ndarray
    total: np.ndarray
    total_interval: np.ndarray
    second: np.ndarray | None = None

    def rows(self) -> list[tuple[str, float, float, float, float]]:
        """Name, first-order index and its half width, total index and its half width; the largest total first."""
        order = np.argsort(-self.total, kind="stable")
        columns = (self.first, self.first_interval, self.total, self.total_interval)
        first, wide, total, wider = (column[order].tolist() for column in columns)
        return list(zip([self.names[k] for k in order], first, wide, total, wider, strict=True))

    def plot(self, file: Path | str | None = None) -> Any:
        """Bars: first-order and total index of each name with intervals; returns the matplotlib figure."""
        from denizen.sweeps._plot import bars

        return bars(self, file)

    def __rich__(self) -> Any:
        from denizen._printing import Table

        table = Table(f"of {self.measure}", "alone", "in all", box=None, header_style="bold")
        for name, first, wide, total, wider in self.rows():
            table.add_row(name, f"{first:.3f} ± {wide:.3f}", f"{total:.3f} ± {wider:.3f}")
        return table

    def __str__(self) -> str:
        from denizen._printing import plain

        return plain(self.__rich__(), 110)


def indices(sweep: "Sweep", name: str, of: str | Callable[[Tensor], Tensor], seed: int) -> Indices:
    """See `Sweep.indices`."""
    if sweep.design.get("kind") != "Saltelli":
        raise InputError(
            f"indices: the sweep has the design {sweep.design.get('kind')}, expected dz.sweeps.Saltelli(count, "
            f"ranges), whose sets belong together"
        )
    if len(sweep.sets) < sweep.wanted:
        raise InputError(f"indices: {len(sweep.sets)} of {sweep.wanted} sets are there; resume the sweep first")
    whole("indices", "seed", seed, 0, MAX_SEED)
    values = sweep.measure(name, of).mean(1).numpy()
    word = of if isinstance(of, str) else getattr(of, "__name__", "measure")
    if not np.isfinite(values).all():
        raise InputError(f"indices: {name}, {word} is NaN or infinite in set {int(np.argmin(np.isfinite(values)))}")
    if np.ptp(values) == 0:
        raise InputError(f"indices: {name}, {word} is {values[0]:g} in every set, so there is no variance to explain")
    analyze = need("SALib.analyze.sobol", "sensitivity", "compute Sobol's indices")
    second = bool(sweep.design.get("second_order"))
    found = analyze.analyze(problem(sweep.names), values, calc_second_order=second, seed=seed)
    first, wide, total, wider = (np.asarray(found[key], dtype=np.float64) for key in ("S1", "S1_conf", "ST", "ST_conf"))
    pairs = np.asarray(found["S2"], dtype=np.float64) if second else None
    return Indices(f"{name}, {word}", tuple(sweep.names), first, wide, total, wider, pairs)
