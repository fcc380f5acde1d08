"""Learning curves of trainings as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denizen._figures import save_figure
from denizen._printing import say
from denizen.errors import StorageError

if TYPE_CHECKING:
    from denizen._printing import Console

PANELS = (
    ("return_mean", "mean return of lives that ended"),
    ("entropy", "entropy of the policy (nats)"),
    ("value_loss", "value loss"),
    ("explained_variance", "variance of returns explained"),
)


def draw(folders: Sequence[Path], to: Path, console: "Console | None" = None) -> Path | None:
    """Draw metrics of trainings over their steps; None, said on the console, where matplotlib is missing.

    Args:
        folders: of trainings.
        to: picture to write.
        console: to say that nothing was drawn.

    Raises:
        StorageError: it cannot be written.
    """
    from denizen.errors import MissingExtra, need
    from denizen.rl import read_metrics

    try:
        need("matplotlib", "plot", "learning curves")
    except MissingExtra as error:
        if console is not None:
            say(console, f"no curves: {error}")
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.5), layout="constrained")
    axes: Any = figure.subplots(2, 2)
    for number, folder in enumerate(folders):
        rows = read_metrics(folder)
        name_of = f"{folder.parent.name}/{folder.name}" if folder.name.startswith("seed-") else folder.name
        for axis, (name, title) in zip(axes.flat, PANELS, strict=True):
            points = [(row["steps"], row[name]) for row in rows if row.get(name) is not None and row[name] == row[name]]
            # Also without points, so that each has its line in the legend.
            x, y = zip(*points, strict=True) if points else ((), ())
            axis.plot(x, y, linewidth=1, color=f"C{number % 10}", label=name_of)
            axis.set_title(title, fontsize=10)
            axis.set_xlabel("steps of worlds", fontsize=8)
            axis.grid(alpha=0.3)
    if len(folders) > 1:
        axes[0][0].legend(fontsize=7)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"plot {to} could not be written: the folder {to.parent} cannot be made") from error
    save_figure(figure, to, dpi=120)
    return to
