"""Pictures of a fit: data with bands and the forecast's fan, the course of the search, marginals of the parameters."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from denizen._figures import BANDS, COLOURS, FAINT, INK, name_ends, plain_axis, save_figure
from denizen._figures import figure as blank
from denizen._results import LINES

if TYPE_CHECKING:
    from denizen.fit._fit import Fit
    from denizen.fit._sbc import Ranks
    from denizen.fit._target import Target

DRAWS = 64  # worlds behind the bands
CLOUD = 1000  # draws behind marginals
MOST = 6  # numbers in a corner
REACH = 12.0  # standard deviations that the course of a search shows
FAN = COLOURS[1]


def figure(columns: int, rows: int, width: float, height: float) -> tuple[Any, Any]:
    """A figure of matplotlib without a window, and its axes `[rows, columns]`."""
    made = blank(width * columns, height * rows + 0.5)
    return made, made.subplots(rows, columns, squeeze=False)


def curves(fit: "Fit", path: Any) -> Any:
    """See `Fit.plot`."""
    targets = fit._experiment.targets
    panels = len(targets) + 2
    columns = 2 if panels == 4 else min(3, panels)
    made, grid = figure(columns, math.ceil(panels / columns), 4.6, 3.1)
    axes = grid.flatten()
    seen = seen_targets(fit)
    for axis, (name, target) in zip(axes, targets.items(), strict=False):
        _series(axis, name, target, seen[name], fit.held_out.get(name), fit._setup.model)
    _loss(axes[len(targets)], fit)
    _course(axes[len(targets) + 1], fit)
    for axis in axes[panels:]:
        axis.set_visible(False)
    drawn = f"{DRAWS} draws of the fit, each in a world of its own: median, bands for 50 % and 90 %"
    text = f"{fit.runs:,} runs    ·    {drawn}"
    made.suptitle(text, x=0.01, ha="left", fontsize=8.5, color=FAINT)
    if path is not None:
        save_figure(made, path)
    return made


def seen_targets(fit: "Fit") -> dict[str, np.ndarray]:
    """Draws of the targets, those held out behind the others: by name `[draws, values, …]`."""
    experiment = fit._experiment
    ahead = max((len(values) for values in fit.held_out.values()), default=0)
    free = fit._drawn(DRAWS, 0)
    longer = experiment.ahead(ahead) if ahead else experiment
    found = longer.windows(free, fit._fresh(DRAWS))
    if ahead and fit._solution.particles is not None:
        later = fit.forecast(draws=DRAWS)
        found = {n: np.concatenate([x[:, :-ahead], later[n]], axis=1) for n, x in found.items()}
    return found


def _series(axis: Any, name: str, target: "Target", seen: np.ndarray, later: np.ndarray | None, model: Any) -> None:
    num = len(target.values)
    values = target.values if later is None else np.concatenate([target.values, later])
    time, unit = window_times(target, len(values), getattr(model, "time_unit", "step"))
    values, draws = values.reshape(len(values), -1), seen.reshape(*seen.shape[:2], -1)
    groups = min(values.shape[1], LINES)
    for k in range(groups):
        colour = COLOURS[0] if groups == 1 else COLOURS[k % len(COLOURS)]
        _band(axis, time[:num], draws[:, :num, k], colour)
        if len(values) > num:
            # Beginning with the last fitted value, so that the fan hangs on the band.
            _band(axis, time[num - 1 :], draws[:, num - 1 :, k], FAN if groups == 1 else colour, dashed=True)
        axis.plot(time[:num], values[:num, k], "o", color=INK if groups == 1 else colour, markersize=3.2)
        axis.plot(time[num:], values[num:, k], "o", color=INK if groups == 1 else colour, markersize=4, mfc="white")
    plain_axis(axis)
    axis.set_title(name.replace("_", " "), loc="left", fontsize=10, fontweight="bold", color=INK)
    if len(values) > num:
        axis.axvline(time[num - 1], color="#bbbbbb", linewidth=0.8, linestyle=":")
        axis.text(
            time[num - 1], 1.0, " held out", transform=axis.get_xaxis_transform(), fontsize=7.5, color=FAINT, va="top"
        )
    axis.set_xlabel(unit, fontsize=8, color=INK)
    axis.margins(x=0.03)
    if not unit:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        axis.xaxis.set_major_locator(places := AutoDateLocator(maxticks=7))
        axis.xaxis.set_major_formatter(ConciseDateFormatter(places))
        axis.xaxis.get_offset_text().set(fontsize=8, color=INK)
    if np.nanmin(values) >= 0:
        axis.set_ylim(bottom=0)


def window_times(target: "Target", num: int, unit: str) -> tuple[Any, str]:
    """When each window ends, and what to write below."""
    ends = target.first - 1 + target.every * np.arange(1, num + 1)
    dates = getattr(target, "dates", None)
    if dates is None or unit != "day":
        return ends, unit
    return dates[0] + target.every * np.arange(num), ""


def _band(axis: Any, time: Any, draws: np.ndarray, colour: str, dashed: bool = False) -> None:
    for low, high, opacity in BANDS:
        edges = np.quantile(draws, (low, high), axis=0)
        axis.fill_between(time, *edges, color=colour, alpha=opacity, linewidth=0)
    axis.plot(time, np.median(draws, axis=0), color=colour, linewidth=1.6, linestyle="--" if dashed else "-")


def _loss(axis: Any, fit: "Fit") -> None:
    runs = [one.runs for one in fit.trace]
    loss = [one.loss for one in fit.trace]
    plain_axis(axis)
    axis.set_title("search: loss", loc="left", fontsize=10, fontweight="bold", color=INK)
    if not np.isfinite(loss).any():
        axis.set_axis_off()  # no scale of nothing
        axis.text(0.5, 0.5, "this method has none", transform=axis.transAxes, ha="center", fontsize=8, color=FAINT)
        return
    axis.set_xlabel("runs", fontsize=8, color=INK)
    axis.plot(runs, loss, color=COLOURS[0], linewidth=1.4, marker="o", markersize=2.5)
    if np.nanmin(loss) > 0 and np.nanmax(loss) > 30 * np.nanmin(loss):
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)


def _course(axis: Any, fit: "Fit") -> None:
    sd = fit._sd()
    runs = [one.runs for one in fit.trace]
    away = np.stack([one.free - fit._solution.free for one in fit.trace]) / sd if fit.trace else np.empty((0, len(sd)))
    plain_axis(axis)
    axis.axhspan(-1.64, 1.64, color="#eeeeee", linewidth=0)
    for k in range(len(sd)):
        shown = np.clip(away[:, k], -REACH, REACH)
        axis.plot(runs, shown, color=COLOURS[k % len(COLOURS)], linewidth=1.2, marker="o", markersize=2.5)
    axis.set_title("search: parameters", loc="left", fontsize=10, fontweight="bold", color=INK)
    axis.set_ylabel("sd from the estimate; grey: 90 %", fontsize=8, color=INK)
    axis.set_xlabel("runs", fontsize=8, color=INK)
    if len(sd) <= 2 * LINES and len(away):
        last = np.clip(away[-1], -REACH, REACH)
        labels = fit._experiment.parameters.labels
        name_ends(axis, [(label, last[k], COLOURS[k % len(COLOURS)]) for k, label in enumerate(labels)])


def corner(fit: "Fit", path: Any) -> Any:
    """See `Fit.corner`."""
    cloud = marginals(fit)
    names = list(cloud)[:MOST]
    priors = prior_draws(fit)
    made, axes = figure(len(names), len(names), 2.1 if len(names) > 1 else 4.0, 2.0 if len(names) > 1 else 3.0)
    for i, row in enumerate(names):
        for j, column in enumerate(names):
            axis = axes[i, j]
            if j > i:
                axis.set_visible(False)
                continue
            plain_axis(axis)
            axis.grid(visible=False)
            if i == j:
                _marginal(axis, cloud[row], priors.get(row))
            else:
                axis.plot(cloud[column], cloud[row], ".", color=COLOURS[0], markersize=2, alpha=0.35, linewidth=0)
                axis.plot(np.median(cloud[column]), np.median(cloud[row]), "+", color=INK, markersize=7)
            axis.tick_params(labelsize=7, labelbottom=i == len(names) - 1, labelleft=j == 0 and i > 0)
            if i == len(names) - 1:
                axis.set_xlabel(column, fontsize=8, color=INK)
            if j == 0 and i > 0:
                axis.set_ylabel(row, fontsize=8, color=INK)
    more = f"    ·    {len(cloud) - MOST} more are not shown" if len(cloud) > MOST else ""
    text = f"parameters, {CLOUD:,} draws; grey: prior{more}" if priors else f"parameters, {CLOUD:,} draws{more}"
    made.suptitle(text, x=0.01, ha="left", fontsize=8.5, color=FAINT)
    if path is not None:
        save_figure(made, path)
    return made


def marginals(fit: "Fit") -> dict[str, np.ndarray]:
    """Draws of each number of the parameters, `[draws]` by label."""
    return columns(fit._experiment.parameters.values(fit._drawn(CLOUD, 0)))


def columns(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = {}
    for name, one in values.items():
        flat = one.reshape(len(one), -1)
        for k in range(flat.shape[1]):
            found[name if one.ndim == 1 else f"{name}[{k}]"] = flat[:, k]
    return found


def prior_draws(fit: "Fit") -> dict[str, np.ndarray]:
    """Draws of the priors, of those that can be drawn."""
    parameters, found = fit._experiment.parameters, {}
    for part in parameters.parts:
        if not part.flat():
            one = type(parameters)([part])
            found |= columns(one.values(one.draw("Fit.corner", 20 * CLOUD, np.random.default_rng(0))))
    return found


def _marginal(axis: Any, draws: np.ndarray, prior: np.ndarray | None) -> None:
    low, high = np.quantile(draws, [0.005, 0.995])
    edges = np.linspace(low, high, 25) if high > low else np.linspace(low - 0.5, high + 0.5, 25)
    axis.hist(draws, bins=edges, density=True, color=COLOURS[0], alpha=0.65)
    if prior is not None:
        weights = np.full(len(prior), 1 / len(prior) / np.diff(edges)[0])  # of all draws, those beyond the edges too
        axis.hist(prior, bins=edges, weights=weights, histtype="step", color=FAINT)
    for value in np.quantile(draws, [0.05, 0.95]):
        axis.axvline(value, color=INK, linewidth=0.8, linestyle=":")
    axis.set_yticks([])


def ranks(found: "Ranks", path: Any) -> Any:
    """See `Ranks.plot`."""
    names = list(found.ranks)[:LINES]
    made, axes = figure(1, 1, 5.6, 3.4)
    axis = axes[0, 0]
    at = np.arange(1, found.draws + 2) / (found.draws + 1)
    num = len(found.ranks[names[0]])
    low, high = found.band(num)
    axis.fill_between(at, low - at, high - at, step="post", color="#eeeeee", linewidth=0)
    for k, name in enumerate(names):
        share = np.bincount(found.ranks[name], minlength=found.draws + 1).cumsum() / num
        axis.step(at, share - at, where="post", color=COLOURS[k % len(COLOURS)], linewidth=1.3, label=name)
    plain_axis(axis)
    axis.set_title("ranks of the truth", loc="left", fontsize=10, fontweight="bold", color=INK)
    axis.set_xlabel("rank among the draws, as a share", fontsize=8, color=INK)
    axis.set_ylabel("share of ranks below, less uniform", fontsize=8, color=INK)
    axis.legend(fontsize=7, frameon=False, ncols=2 if len(names) > 4 else 1)
    text = f"{num} fits, {found.draws} draws of each; grey: where 95 % of uniform ranks lie"
    made.suptitle(text, x=0.01, ha="left", fontsize=8.5, color=FAINT)
    if path is not None:
        save_figure(made, path)
    return made
