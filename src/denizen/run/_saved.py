"""`load`: the series and snapshots of a run folder, without its model."""

from pathlib import Path

import torch
from torch import Tensor

from denizen._arguments import folder
from denizen._atomic import status_now
from denizen._results import EventTable, Results
from denizen._run_folder import content, while_it_goes_on
from denizen.errors import InputError, nearest
from denizen.run import _event_files, _series
from denizen.run._event_log import joined
from denizen.run._manifest import Manifest, read_manifest
from denizen.run._snapshots import SnapshotView
from denizen.run._zarr import StoredSnapshots


class SavedRun(Results):
    """What a run folder holds; made by `denizen.run.load`.

    Attributes:
        path: the folder.
        manifest: what the run is, see `manifest.json`.
    """

    def __init__(self, path: Path, manifest: Manifest, series: dict[str, Tensor]) -> None:
        self.path, self.manifest, self._series = path, manifest, series
        self.worlds, self.seed = list(manifest.setup.worlds), manifest.setup.seed

    @property
    def status(self) -> str:
        """``"running"``, ``"finished"``, ``"interrupted"``, ``"failed"``, or ``"killed"``: no process works on it."""
        return status_now(self.path, self.manifest.status)

    @property
    def name(self) -> str:
        """Name of the model's class."""
        return self.manifest.model["class"].rsplit(".", 1)[-1]

    @property
    def series_names(self) -> list[str]:
        """Names of the series; none before the first step."""
        return [series.name for series in self.manifest.series]

    @property
    def kinds(self) -> dict[str, str]:
        """``"flow"`` or ``"level"`` for each series."""
        return {series.name: series.kind for series in self.manifest.series}

    @property
    def steps(self) -> int:
        """Steps done."""
        return self.manifest.steps

    @property
    def dt(self) -> float:
        """Length of a step in `time_unit`."""
        return self.manifest.setup.dt

    @property
    def time_unit(self) -> str:
        """Unit of time."""
        return self.manifest.setup.time_unit

    @property
    def start(self) -> str | None:
        """The day of the first step, an ISO date; None where the run has none."""
        return self.manifest.setup.start

    def about(self, name: str) -> str:
        """The sentence with which the model documents a series."""
        return next((series.about for series in self.manifest.series if series.name == name), "")

    def __getitem__(self, name: str) -> Tensor:
        """A series by name: `[replicates, steps, …]`."""
        if name not in self._series:
            raise InputError(f"run[{name!r}]: no such series; {nearest(name, self._series)}")
        return self._series[name]

    def events(self, name: str) -> EventTable:
        """The rows of a logged event; read when asked for.

        Raises:
            InputError: the run does not log it.
            DataError: a file was damaged.
            MissingExtra: polars is not installed.
        """
        logged = {event.name: event for event in self.manifest.events or ()}
        self._is_logged(name, self.manifest.setup.log or ())
        return self._event_table(name, _event_files.read(self.path, logged[name]) if name in logged else joined([]))

    @property
    def snapshots(self) -> SnapshotView:
        """Kept fields `[replicates, snapshots, …]` by name, and ``"step"`` `[snapshots]`; read when asked for."""
        taken = self.manifest.snapshots
        if taken is None:
            raise InputError("run.snapshots: this run kept none")
        stored = StoredSnapshots(self.path, taken, len(self.worlds))
        return SnapshotView(stored.forms, taken.steps, stored)

    def __repr__(self) -> str:
        facts = self.manifest
        return f"SavedRun({self.path}, {self.name}, {facts.steps} steps, {len(self.worlds)} replicates, {self.status})"


def load(path: Path | str) -> SavedRun:
    """Read a run folder; works while the run is still going, and gives what is safe by then.

    Args:
        path: the folder.

    Returns:
        Series as ``load(path)["cases"]``, `[replicates, steps, …]`, equal to those of the run bit for bit.

    Raises:
        DataError: not a run folder, or a damaged one; names the file.
        MissingExtra: an older folder, whose series are Parquet, and polars is not installed.
    """
    path = folder("load", "path", path)

    def read() -> Manifest:
        return read_manifest(path)

    return while_it_goes_on(read(), read, lambda manifest: SavedRun(path, manifest, series(path, manifest)))


def series(path: Path, manifest: Manifest) -> dict[str, Tensor]:
    """All series of a folder, `[replicates, steps, …]`."""
    worlds = len(manifest.setup.worlds)
    parts = []
    for part in manifest.metrics:
        data = content(path, part)
        parts.append(_series.decode(data, manifest.series, worlds, part.last - part.first + 1, str(path / part.file)))
    if not parts:
        return {}
    return {entry.name: torch.cat([part[entry.name] for part in parts], dim=1) for entry in manifest.series}
