"""What a training came to."""

import dataclasses
import math
from pathlib import Path
from typing import Any

from torch import Tensor

from denizen._notebook import InNotebook
from denizen.errors import InputError


@dataclasses.dataclass(frozen=True)
class Trained(InNotebook):
    """What a training came to.

    Attributes:
        policy: as it was at the end, on its device; of worlds with roles by role, ``result.policy["prey"]``.
        best_weights: state dict of the policy at its highest score, on the device; of worlds with roles the last one,
            since no score ranks several policies together.
        metrics: one row for each update of this call.
        updates: done in all.
        steps: of worlds, in all.
        seconds: of this call's updates.
        seconds_to_ready: that compiling, capture and warm-up took before.
        path: ``"eager"``, ``"compiled"`` or ``"captured"``.
        folder: the run folder; None where none was kept.
        evaluations: (update, evaluation) of each validation; of worlds with roles evaluations by role.
        stopped: patience ended the training before its time.
        host: of environments on the host: what stepping them cost; None: the worlds were on the device.
    """

    policy: Any = dataclasses.field(repr=False)
    best_weights: dict[str, Tensor] = dataclasses.field(repr=False)
    metrics: list[dict[str, Any]] = dataclasses.field(repr=False)
    updates: int
    steps: int
    seconds: float
    seconds_to_ready: float
    path: str
    folder: Path | None
    evaluations: list[tuple[int, Any]]
    stopped: bool = False
    host: str | None = None

    @property
    def steps_per_second(self) -> float:
        """Steps of worlds a second, warm-up left out."""
        return len(self.metrics) * (self.steps / max(self.updates, 1)) / max(self.seconds, 1e-9)

    def plot(self, path: Path | str | None = None) -> Any:
        """Mean return of the lives that ended in each update of this call, over steps of worlds; a line for each role.

        Args:
            path: file to write, for example ``"training.png"``; None writes none.

        Returns:
            The matplotlib figure.

        Raises:
            MissingExtra: matplotlib is not installed.
            StorageError: the file cannot be written.
        """
        from denizen import _figures

        made = _figures.figure(6.4, 3.6)
        axis = made.subplots()
        name = "return_mean"
        told = [metric for metric in (self.metrics[0] if self.metrics else {}) if metric.endswith(f"/{name}")] or [name]
        lines = []
        for number, metric in enumerate(told):
            shade = _figures.colour(number)
            rows = [(row["steps"], row[metric]) for row in self.metrics if row.get(metric) is not None]
            steps, returns = zip(*rows, strict=True) if rows else ((), ())
            axis.plot(steps, returns, color=shade, linewidth=1.5, marker="o" if len(rows) == 1 else None)
            known = [value for value in returns if not math.isnan(value)]
            lines += [(metric.removesuffix(f"/{name}"), known[-1], shade)] if known else []
        _figures.plain_axis(axis)
        _figures.titled(axis, "Return", "steps of worlds", "mean return of lives that ended")
        _figures.thousands(axis)
        if len(told) > 1:
            _figures.name_ends(axis, lines)
        if path is not None:
            _figures.save_figure(made, path)
        return made

    def _printed(self) -> str:
        speed = f"{self.steps_per_second:,.0f} a second, {self.path}"
        early = ", ended early by its patience" if self.stopped else ""
        saved = "" if self.folder is None else f"\nsaved in {self.folder}"
        host = "" if self.host is None else f"\n{self.host}"
        return f"{self.updates:,} updates, {self.steps:,} steps of worlds, {speed}{early}{host}{saved}"

    def __getitem__(self, name: str) -> list[Any]:
        """A metric over the updates of this call."""
        known = self.metrics[0] if self.metrics else {}
        if name not in known:
            raise InputError(f"no metric {name!r}; there are {', '.join(known)}")
        return [row[name] for row in self.metrics]
