"""Rows of metrics to TensorBoard and to Weights & Biases; both are imported when the sink is made."""

import math
from pathlib import Path
from typing import Any

from denizen.errors import need
from denizen.tools._sinks import Row


class TensorBoard:
    """Scalars for TensorBoard, each under its name and step; what is not finite is left out.

    ``tensorboard --logdir FOLDER`` shows them; it listens on this machine only unless told otherwise.
    """

    def __init__(self, folder: str | Path) -> None:
        """Args:
        folder: of the event files.

        Raises:
            MissingExtra: tensorboard is not installed.
        """
        need("tensorboard", "tensorboard", "show metrics in TensorBoard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def write(self, row: Row) -> None:
        """See `Sink`."""
        for name, value in row.items():
            if name != "step" and value is not None and math.isfinite(value):
                self._writer.add_scalar(name, value, row["step"])

    def sync(self) -> None:
        """See `Sink`."""
        self._writer.flush()

    def close(self) -> None:
        """See `Sink`."""
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases; with ``mode="offline"`` nothing leaves the machine until ``wandb sync``."""

    def __init__(self, **init: Any) -> None:
        """Args:
        **init: arguments of `wandb.init`: project, name, config, mode, dir, …

        Raises:
            MissingExtra: wandb is not installed.
        """
        self._run = need("wandb", "wandb", "send metrics to Weights & Biases").init(**init)

    def write(self, row: Row) -> None:
        """See `Sink`."""
        self._run.log({name: value for name, value in row.items() if name != "step"}, step=row["step"])

    def sync(self) -> None:
        """See `Sink`; wandb's own process does it."""

    def close(self) -> None:
        """See `Sink`."""
        self._run.finish()
