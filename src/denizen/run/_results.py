"""What can be done with series, whether of a `Run` in memory or of a `SavedRun` read from a folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from denizen.run._summary import Shown


class Results:
    """Series of several replicates, and the tables and pictures made of them.

    Attributes:
        worlds: world number of each replicate.
        seed: the seed.
    """

    worlds: list[int]
    seed: int

    @property
    def name(self) -> str:
        """Name of the model's class."""
        raise NotImplementedError

    @property
    def series_names(self) -> list[str]:
        """Names of the series."""
        raise NotImplementedError

    @property
    def kinds(self) -> dict[str, str]:
        """``"flow"`` or ``"level"`` for each series."""
        raise NotImplementedError

    @property
    def steps(self) -> int:
        """Steps done."""
        raise NotImplementedError

    @property
    def dt(self) -> float:
        """Length of a step in `time_unit`."""
        raise NotImplementedError

    @property
    def time_unit(self) -> str:
        """Unit of time, for example ``"day"``."""
        raise NotImplementedError

    def about(self, name: str) -> str:
        """The sentence with which the model documents a series."""
        raise NotImplementedError

    def __getitem__(self, name: str) -> Tensor:
        """A series by name: `[replicates, steps, …]`."""
        raise NotImplementedError

    def to_frame(self) -> Any:
        """The series as a polars data frame, one row for each step and replicate.

        Returns:
            Columns ``replicate``, ``world``, ``step`` (1 for the first), ``time`` (at the end of the step), and one for
            each series.

        Raises:
            MissingExtra: polars is not installed.
        """
        from denizen.run._metrics import frame

        return frame({name: self[name] for name in self.series_names}, self.worlds, 1, self.dt)

    def summary(self) -> "Shown":
        """Total (of flows), peak, step of the peak and final value of each series: median and 5–95 % over replicates.

        Returns:
            A table to print; `rows` holds its numbers.
        """
        from denizen.run._summary import summary

        return summary(self)

    def plot(self, path: Path | str | None = None) -> Any:
        """Curves: median over replicates and the bands that hold 50 % and 90 % of them, one panel for each series.

        Args:
            path: file to write, for example ``"plot.png"`` or ``"plot.pdf"``; None writes none.

        Returns:
            The matplotlib figure.

        Raises:
            MissingExtra: matplotlib is not installed.
            StorageError: the file cannot be written.
        """
        from denizen.run._plot import plot

        return plot(self, path)
