"""Figures of a foraging report. The module imports matplotlib, so it is imported late."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from denizen._figures import colour

if TYPE_CHECKING:
    from denizen.studies.foraging.report import Arm
    from denizen.studies.foraging.verify import Directions


def survival_figure(arms: Sequence["Arm"], path: Path) -> None:
    """Kaplan-Meier curves of first lives with bands over trainings and worlds."""
    from denizen.studies.foraging.report import survival_band

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for number, arm in enumerate(arms):
        curve, shade = arm.all.first_lives.survival, colour(number)
        ages = np.arange(1, curve.size)
        low, high = survival_band(arm)
        axes.step(ages, curve[1:], where="post", color=shade, label=arm.name)
        axes.fill_between(ages, low[1:], high[1:], step="post", color=shade, alpha=0.2, linewidth=0)
    if arms[0].all.budget > 101:
        axes.axvline(101, color="0.6", linestyle=":", linewidth=1)
        axes.text(101, 1.02, "starved without food", color="0.4", fontsize=8, ha="center")
    axes.set(xscale="log", xlim=(1, arms[0].all.budget), ylim=(0, 1.06), xlabel="age (steps)", ylabel="share alive")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def rates_figure(arms: Sequence["Arm"], path: Path) -> None:
    """Rates per 1,000 steps, one point for each training."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, name in zip(figure.subplots(1, 4), ("energy", "food", "poison", "deaths"), strict=True):
        for number, arm in enumerate(arms):
            values = arm.values(name)
            axes.bar(number, float(np.mean(values)), color=colour(number), alpha=0.4)
            axes.plot(
                number + 0.1 * (np.arange(len(values)) - (len(values) - 1) / 2), values, "o", color=colour(number), ms=4
            )
        axes.axhline(0, color="0.6", linewidth=0.8)
        axes.set(title=f"{name} / 1,000 steps")
        axes.set_xticks(range(len(arms)), [arm.name for arm in arms], rotation=90, fontsize=8)
    figure.savefig(path, dpi=120)


def directions_figure(scenes: Mapping[str, "Directions"], path: Path) -> None:
    """Shares of moves towards an item, at each place where it may lie: a row for each mode, a column for each kind."""
    kinds = {"food": "towards food", "poison": "towards poison", "choice": "towards food,\npoison opposite"}
    figure = Figure(figsize=(7.2, 0.6 + 2.1 * len(scenes)), layout="constrained")
    rows = figure.subplots(len(scenes), len(kinds), squeeze=False)
    image = None
    for number, (row, (name, found)) in enumerate(zip(rows, scenes.items(), strict=True)):
        for axes, (kind, title) in zip(row, kinds.items(), strict=True):
            image = axes.imshow(getattr(found, kind), vmin=0, vmax=1, cmap="PuOr")
            middle = found.food.shape[0] // 2
            axes.plot(middle, middle, "o", color="0.2", ms=4)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(False)
            if number == 0:
                axes.set_title(title, fontsize=10)
        row[0].set_ylabel(name, fontsize=9)
    assert image is not None
    figure.colorbar(image, ax=rows, shrink=min(1.0, 1.6 / len(scenes) + 0.2), label="share of moves")
    figure.savefig(path, dpi=120)
