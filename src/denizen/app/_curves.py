"""Learning curves of trainings as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from denizen._figures import FAINT, colour, figure, name_ends, plain_axis, save_figure, thousands, titled
from denizen._printing import say
from denizen.errors import MissingExtra, StorageError

if TYPE_CHECKING:
    from denizen._printing import Console

PANELS = {
    "return_mean": ("Return", "mean return of lives that ended"),
    "entropy": ("Entropy of the policy", "nats"),
    "value_loss": ("Loss of the critic", "mean squared error"),
    "explained_variance": ("Variance of returns explained", "share"),
}


def draw(folders: Sequence[Path], to: Path, console: "Console | None" = None) -> Path | None:
    """Draw metrics of trainings over their steps; None, said on the console, where matplotlib is missing.

    Args:
        folders: of trainings.
        to: picture to write.
        console: to say that nothing was drawn.

    Raises:
        StorageError: it cannot be written.
    """
    from denizen.report._training import Training, X, curves_of
    from denizen.rl import read_metrics

    seeds: dict[str, list[Path]] = {}  # those of one command are one curve
    for folder in folders:
        within = folder.name.startswith("seed-") and folder.name[5:].isdecimal()
        seeds.setdefault(str(folder.parent if within else folder), []).append(folder)
    found = [Training(Path(name).name, [], [read_metrics(one) for one in own], []) for name, own in seeds.items()]
    try:
        made = figure(10, 6.5, "draw learning curves")
    except MissingExtra as error:
        if console is not None:
            say(console, f"no curves: {error}")
        return None
    for axis, (name, (title, y_label)) in zip(made.subplots(2, 2).flat, PANELS.items(), strict=True):
        curves = curves_of(found, name)
        for curve in curves:
            shade = colour(curve.colour or 0)
            axis.plot(curve.x, curve.middle, color=shade, linewidth=1.5, marker="o" if len(curve.x) == 1 else None)
            if curve.low is not None:
                axis.fill_between(curve.x, curve.low, curve.high, color=shade, alpha=0.2, linewidth=0)
        plain_axis(axis)
        titled(axis, title, X, y_label)
        thousands(axis)
        if not curves:
            axis.text(0.5, 0.5, "not told", transform=axis.transAxes, ha="center", fontsize=8, color=FAINT)
        if len(curves) > 1:
            name_ends(axis, [(curve.name, curve.middle[-1], colour(curve.colour or 0)) for curve in curves])
    several = any(len(one.rows) > 1 for one in found)
    what = "median over seeds, band from the lowest to the highest" if several else "mean of neighbouring updates"
    made.suptitle(what, x=0.01, ha="left", fontsize=8.5, color=FAINT)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"plot {to} could not be written: the folder {to.parent} cannot be made") from error
    save_figure(made, to)
    return to
