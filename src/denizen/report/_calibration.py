"""Reports of calibrations: the fit beside the data, parameters beside their priors, what the data say, the search."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from denizen._results import QUANTILES
from denizen.errors import DenizenError
from denizen.fit import Fit
from denizen.fit._fit import LEVEL
from denizen.fit._plot import CLOUD, DRAWS, columns, marginals, prior_draws, seen_targets, window_times
from denizen.report._charts import Curve, Panel
from denizen.report._page import Page, commands, settings_of_runs, status_note

FITTED, AHEAD, DATA, LATER = 0, 1, 6, 4  # colours
GROUPS, BINS = 8, 24
SEARCH = 24  # parameters whose course is drawn


@dataclasses.dataclass(frozen=True)
class Calibrated:
    """A calibration to report.

    Attributes:
        name: what to call it where there are several.
        fit: what was found; None where it has not come to that.
        manifest: of its folder.
        status: how it stands.
        launches: done by now.
        simulates: whether the fit has its model, so that its curves can be drawn.
        command: what to type to get it again; "": not known.
    """

    name: str
    fit: Fit | None
    manifest: Mapping[str, Any]
    status: str
    launches: int
    simulates: bool = True
    command: str = ""


def calibrations(page: Page, found: Sequence[Calibrated]) -> None:
    """Add one calibration, or several one after the other, to a page."""
    several = len(found) > 1
    fits = [one for one in found if one.fit is not None]
    for one in found:
        status_note(page, one.name, one.status, f"{one.launches} launches", one.manifest.get("error"))
    if several and fits:
        _beside(page, fits)
    for one in fits:
        page.section(one.name if several else "The fit")
        _one(page, one, one.fit)  # type: ignore[arg-type]
    names = [one.name for one in found]
    page.section("What was fitted")
    settings_of_runs(page, "Settings", names, [_settings(one.manifest) for one in found])
    kept = ("device", "commit", "updated")
    versions = [{**one.manifest["versions"], **{n: one.manifest.get(n) for n in kept}} for one in found]
    settings_of_runs(page, "Versions", names, versions)
    commands(page, [one.command for one in found])


def about(one: Calibrated) -> str:
    """A line on what a calibration is."""
    if one.fit is None:
        return f"{one.launches} launches, no fit yet"
    rest = "at rest" if one.fit.converged else "not at rest"
    return f"{one.fit.runs:,} runs, {len(one.fit.trace)} iterations, the search {rest}"


def _beside(page: Page, found: Sequence[Calibrated]) -> None:
    """Estimates of several calibrations in one table."""
    labels = dict.fromkeys(label for one in found for label in _estimates(one.fit))  # type: ignore[arg-type]
    rows = [[label, *(_estimates(one.fit).get(label) for one in found)] for label in labels]  # type: ignore[arg-type]
    page.table("Parameters", ["parameter", *(one.name for one in found)], rows, f"Estimate ({LEVEL:.0%} interval).")


def _one(page: Page, one: Calibrated, fit: Fit) -> None:
    for note in fit.notes:
        page.note(note)
    if one.simulates:
        _or_told(page, fit, _curves)
    else:
        page.note("The model comes from a file, which a report does not run: curves and scores are left out.")
    _parameters(page, fit)
    _said(page, fit)
    if fit.held_out and one.simulates:
        _or_told(page, fit, _scores)
    _search(page, fit)


def _or_told(page: Page, fit: Fit, add: Callable[[Page, Fit], None]) -> None:
    """Add what needs simulations, or say why it is missing, as where the model fails at a draw of a wide interval."""
    try:
        add(page, fit)
    except DenizenError as error:
        page.note(f"Draws of the fit could not be simulated: {error}")


# --- the fit beside the data ------------------------------------------------------------------------------------------


def _curves(page: Page, fit: Fit) -> None:
    seen = seen_targets(fit)
    for name, target in fit._experiment.targets.items():
        later = fit.held_out.get(name)
        values = target.values if later is None else np.concatenate([target.values, later])
        num, draws = len(target.values), seen[name].reshape(*seen[name].shape[:2], -1)
        x, unit = window_times(target, len(values), getattr(fit._setup.model, "time_unit", "step"))
        flat = values.reshape(len(values), -1)
        about = f"The line is the median of {DRAWS} draws of the fit, each in a world of its own; the band holds 90 %."
        about += " The forecast was made without the values that were held out." if later is not None else ""
        panels = [_target(name, x, flat, draws, num, k) for k in range(min(flat.shape[1], GROUPS))]
        title, y_label = f"{name.replace('_', ' ')}: data and fit", _per(target, unit)
        if len(panels) == 1:
            page.curves(title, x, panels[0].curves, x_label=unit, y_label=y_label, about=about)
        else:
            page.multiples(title, panels, x_label=unit, y_label=y_label, about=about)


def _target(name: str, x: np.ndarray, values: np.ndarray, draws: np.ndarray, num: int, k: int) -> Panel:
    """One entry of a target: the band of the fit, the forecast's, and data."""
    middle, low, high = np.quantile(draws[..., k], QUANTILES, axis=0)
    curves = [Curve("fit", middle[:num], low[:num], high[:num], x[:num], colour=FITTED)]
    if len(values) > num:  # beginning with the last fitted value, so that the fan hangs on the band
        ahead = slice(num - 1, None)
        curves.append(Curve("forecast", middle[ahead], low[ahead], high[ahead], x[ahead], colour=AHEAD))
    curves.append(Curve("data", values[:num, k], x=x[:num], points=True, colour=DATA))
    if len(values) > num:
        curves.append(Curve("held out", values[num:, k], x=x[num:], points=True, colour=LATER))
    return Panel(f"{name}[{k}]", curves, x)


def _per(target: Any, unit: str) -> str:
    unit = unit or "day"  # of dates
    return f"observed in {target.every} {unit}s" if target.every > 1 else f"observed in a {unit}"


# --- parameters -------------------------------------------------------------------------------------------------------


def _estimates(fit: Fit) -> dict[str, Any]:
    """By label the estimate with its interval, or without one."""
    ends = fit.interval() if fit._has_interval else {}
    found: dict[str, Any] = {}
    for name, value in fit.params.items():
        low, high = ends.get(name, (np.nan, np.nan))
        for k, (middle, *around) in enumerate(np.broadcast(value, low, high)):
            label = name if np.ndim(value) == 0 else f"{name}[{k}]"
            found[label] = (float(middle), *map(float, around)) if ends else float(middle)
    return found


def _parameters(page: Page, fit: Fit) -> None:
    priors = prior_draws(fit)
    rows = []
    for label, estimate in _estimates(fit).items():
        prior = priors.get(label)
        rows.append([label, estimate, None if prior is None else tuple(np.quantile(prior, QUANTILES).tolist())])
    what = f"Estimate ({LEVEL:.0%} interval)" + ("; of the prior its median (middle 90 %)." if priors else ".")
    page.table("Parameters", ["parameter", "estimate", "prior"], rows, what)
    if not fit._has_interval:
        return
    panels = []
    for label, draws in marginals(fit).items():
        low, high = np.quantile(draws, (0.002, 0.998))
        edges = np.linspace(low, high, BINS + 1) if high > low else np.linspace(low - 0.5, high + 0.5, BINS + 1)
        curves = [_density("fit", draws, edges, FITTED)]
        curves += [_density("prior", priors[label], edges, DATA)] if label in priors else []
        panels.append(Panel(label, curves))
    about = f"Of {CLOUD:,} draws, as shares of a histogram's width."
    page.multiples("What each parameter may be", panels, x_label="value", y_label="density", about=about)


def _density(name: str, draws: np.ndarray, edges: np.ndarray, colour: int) -> Curve:
    """A histogram as a line through the middles of its bins."""
    counts = np.histogram(draws, edges)[0]
    return Curve(name, counts / len(draws) / np.diff(edges)[0], x=(edges[1:] + edges[:-1]) / 2, colour=colour)


# --- what the data say ------------------------------------------------------------------------------------------------


def _said(page: Page, fit: Fit) -> None:
    told = fit.diagnostics
    if told is None:
        page.note("The model failed at draws of this fit, so nothing is told of how well it gives such data.")
        return
    rows = []
    for name, checks in told.checks.items():
        rows.append([name, f"{told.covered[name]:.0%}", *(f"{away:+.1f}" for away in checks.values())])
    header = ["target", "within 90 %", "total", "peak", "autocorrelation"]
    what = f"How far the data lie from those of the fit, in standard deviations; {told.worlds} worlds."
    page.table("Data, beside those of the fit", header, rows, what)
    if np.isnan(told.eigenvalues).any():
        return
    rows = []
    for k, label in enumerate(told.labels):
        others = np.where(np.arange(len(told.labels)) == k, 0, told.correlations[k])
        most = int(np.abs(others).argmax())
        with_ = f"{told.labels[most]} {others[most]:+.2f}" if len(told.labels) > 1 else "–"
        less = told.shrinkage[k]
        rows.append([label, with_, "–" if np.isnan(less) else f"{less:.0%}"])
    weak = told.directions[:, 0]
    parts = " ".join(f"{w:+.2f} {n}" for w, n in zip(weak, told.labels, strict=True) if abs(w) > 0.2)
    what = f"Known least: {parts}, to ± {told.eigenvalues[0] ** -0.5:.2g} in transformed units."
    page.table("What the data say", ["parameter", "correlated most with", "prior's variance less"], rows, what)


def _scores(page: Page, fit: Fit) -> None:
    rows = []
    for name, one in fit.score().items():
        inside = (f"{share:.0%}" for share in (one.coverage_50, one.coverage_90))
        rows.append([name, len(fit.held_out[name]), one.crps, one.persistence_crps, one.wis, *inside])
    header = ["held out", "values", "CRPS", "CRPS of persistence", "WIS", "within 50 %", "within 90 %"]
    page.table("Scores of the forecast", header, rows, "Lower is better; persistence keeps the last observed value.")


# --- the search -------------------------------------------------------------------------------------------------------


def _search(page: Page, fit: Fit) -> None:
    if not fit.trace:
        return
    runs = [one.runs for one in fit.trace]
    panels = []
    loss = np.array([one.loss for one in fit.trace], dtype=float)
    if np.isfinite(loss).any():
        panels.append(Panel("loss", [Curve("loss", loss)], runs, about="Distance of the model to the data."))
    values = columns(fit._experiment.parameters.values(np.stack([one.free for one in fit.trace])))
    panels += [Panel(label, [Curve(label, course)], runs) for label, course in list(values.items())[:SEARCH]]
    page.multiples("The search", panels, x_label="runs", about="What the search stood at after so many runs.")


def _settings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    config = dict((manifest.get("settings") or {}).get("config") or {})
    for name in ("replicates", "steps", "device"):  # those of `denizen run`
        config.pop(name, None)
    model = manifest["model"]
    told = {"model": model.get("class", model.get("function")), "agents": model.get("agents")}
    asked = manifest["asked"] if isinstance(manifest.get("asked"), dict) else {}
    given = {name: asked[name] for name in ("seed", "holdout", "replicates", "steps") if name in asked}
    method = asked.get("method")
    if isinstance(method, dict) and "object" in method:
        given["method"] = method["object"]
    return {**told, **given, **{name: value for name, value in config.items() if value not in (None, False, {})}}
