"""Reports of trainings: how the return grew, what the learner did, what the world counted, and a film of the policy."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from denizen.report._charts import Curve, Panel
from denizen.report._page import Page, commands, settings_of_runs, status_note

POINTS = 150  # of a curve; of more updates the mean of as many neighbours
SHARE = 0.1  # of the updates, whose mean is the return at the end
X = "steps of worlds"
# Metrics of all trainings: title, and what is drawn upwards.
RETURNS = {
    "return_mean": ("Return", "mean return of lives that ended"),
    "validation_return": ("Return in worlds of the validation", "mean return"),
}
LEARNER = {
    "entropy": ("Entropy of the policy", "nats"),
    "value_loss": ("Loss of the critic", "mean squared error"),
    "policy_loss": ("Loss of the policy", "loss"),
    "explained_variance": ("Variance of returns explained", "share"),
    "kl": ("Change of the policy in an update", "KL divergence, nats"),
    "kl_old": ("Change of the policy in an update", "KL divergence, nats"),
    "kl_reference": ("Distance to the reference policy", "KL divergence, nats"),
    "clip_fraction": ("Ratios that were clipped", "share"),
    "gradient_norm": ("Length of the gradient", "norm"),
    "learning_rate": ("Learning rate", "rate"),
    "length_mean": ("Length of a life", "steps"),
    "steps_per_second_overall": ("Speed", "steps of worlds a second"),
}
# What else the learner tells; the rest is what the world counts.
OTHER = {"step", "steps", "seconds", "best_score", "clip", "entropy_coefficient", "entropy_floor", "episodes", "faulty"}
OTHER |= {"return_sum", "return_min", "return_max", "waited", "clip_low", "clip_high", "kl_k1", "kl_k2", "flat_groups"}
OTHER |= {"ratio_min", "ratio_max", "advantage_mean", "rollout_seconds", "learning_seconds", "steps_per_second"}
OTHER |= {"steps_per_second_of_4", "gpu_utilisation", "gpu_memory_gib", "gpu_power", "patience_over"}


@dataclasses.dataclass(frozen=True)
class Training:
    """A training to report, of one seed or several.

    Attributes:
        name: what to call it where there are several.
        seeds: for each seed its manifest.
        rows: for each seed its metrics, a row for each update.
        statuses: for each seed how it stands.
        command: what to type to get it again; "": not known.
        film: of the policy at the end: (file, mime type); None: none.
    """

    name: str
    seeds: Sequence[Mapping[str, Any]]
    rows: Sequence[Sequence[Mapping[str, Any]]]
    statuses: Sequence[str]
    command: str = ""
    film: tuple[bytes, str] | None = None


def about(training: Training) -> str:
    """A line on what a training is."""
    first, count = training.seeds[0], len(training.seeds)
    updates = max(one["updates"] for one in training.seeds)
    seeds = f"seed {first['seed']}" if count == 1 else f"{count} seeds from {first['seed']} on"
    algorithm = str(first["algorithm"]).partition("(")[0]
    return f"{algorithm}, {updates:,} updates of {first['samples']:,} steps, {seeds}"


def trainings(page: Page, found: Sequence[Training]) -> None:
    """Add one training, or several beside each other, to a page."""
    for one in found:
        for manifest, status in zip(one.seeds, one.statuses, strict=True):
            seed = f", seed {manifest['seed']}," if len(one.seeds) > 1 else ""
            status_note(page, f"{one.name}{seed}", status, f"{manifest['updates']:,} updates", manifest.get("error"))
    told = _told(found)
    page.section("How it learned")
    for name, (title, y_label) in RETURNS.items():
        if curves := curves_of(found, name):
            page.curves(title, None, curves, x_label=X, y_label=y_label, about=told)
    _ends(page, found)
    for one in found:
        if one.film is not None:
            what = f"The policy of {one.name} at the end of its training, acting in its world"
            page.picture(*one.film, f"A film: {what[0].lower()}{what[1:]}.", f"{what}.")
    learner = {**LEARNER, **{name: (name.replace("_", " "), "") for name in _own(found)}}
    panels = [
        Panel(title, curves, y_label=y_label)
        for name, (title, y_label) in learner.items()
        if (curves := curves_of(found, name))
    ]
    if panels:
        page.section("The learner and its world").multiples("Each update", panels, x_label=X, about=told)
    names = [one.name for one in found]
    page.section("What was trained")
    settings_of_runs(page, "Settings", names, [_settings(one.seeds[0]) for one in found])
    settings_of_runs(page, "Versions", names, [_surroundings(one.seeds[0]) for one in found])
    commands(page, [one.command for one in found])


def ends(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[float, float]:
    """The mean of a metric over the last tenth of its updates, and the highest; NaN where there is none."""
    known = [row[name] for row in rows if row.get(name) is not None and not math.isnan(row[name])]
    last = known[-max(1, round(len(known) * SHARE)) :]
    return (sum(last) / len(last), max(known)) if known else (math.nan, math.nan)


def _told(found: Sequence[Training]) -> str:
    told = "The line is the mean of neighbouring updates"
    if any(len(one.rows) > 1 for one in found):
        return f"{told}, and its median over seeds; the band goes from the lowest seed to the highest."
    return f"{told}; the band goes from the lowest of them to the highest."


def _own(found: Sequence[Training]) -> list[str]:
    """Metrics that the world counts, in the order in which they come."""
    names = dict.fromkeys(_alone(name) for one in found for rows in one.rows for row in rows[-1:] for name in row)
    return [name for name in names if name not in OTHER and name not in LEARNER and name not in RETURNS]


def roles_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whose metrics are told apart, ``predator/return_mean``; of a world without roles only ``""``."""
    ending = "/return_mean"
    return [name.removesuffix(ending) for name in (rows[-1] if rows else {}) if name.endswith(ending)] or [""]


def of_role(role: str, name: str) -> str:
    """A metric's name in the rows of a training."""
    return f"{role}/{name}" if role else name


def _alone(name: str) -> str:
    """A metric's name without its role."""
    return name.rpartition("/")[2]


def curves_of(found: Sequence[Training], name: str) -> list[Curve]:
    """A metric of each training that has it, of worlds with roles one curve for each: its mean over neighbours and
    median over seeds, and a band of extremes.
    """
    curves, place = [], 0
    for one in found:
        every = [row for rows in one.rows for row in rows]
        roles = roles_of(every)
        keys = {role: of_role(role, name) for role in roles}
        if not any(key in row for row in every for key in keys.values()):
            keys = {"": name}  # of the world
        for role, key in keys.items():
            points = [[(r["steps"], r[key]) for r in rows if isinstance(r.get(key), int | float)] for rows in one.rows]
            known = [np.array([p for p in seed if math.isfinite(p[1])]) for seed in points]
            known = [seed for seed in known if len(seed)]
            called = " ".join(filter(None, (one.name if len(found) > 1 or not role else "", role)))
            if known:
                curves.append(_curve(known, called, place + (roles.index(role) if role else 0)))
        place += len(roles)
    return curves


def _curve(seeds: list[np.ndarray], name: str, colour: int) -> Curve:
    """The mean of neighbouring updates, its median over seeds, and its extremes.

    Args:
        seeds: for each seed (steps, value), `[updates, 2]`.
        name: of the curve.
        colour: of it.
    """
    most = max(len(seed) for seed in seeds)
    edges = np.linspace(0, max(seed[-1, 0] for seed in seeds), min(POINTS, most) + 1)
    means = np.full((len(seeds), len(edges) - 1), np.nan)
    low, high = means[0].copy(), means[0].copy()  # of one seed: within each bucket
    for k, seed in enumerate(seeds):
        bucket = np.clip(np.searchsorted(edges, seed[:, 0], side="left") - 1, 0, len(edges) - 2)
        for b in np.unique(bucket):
            values = seed[bucket == b, 1]
            means[k, b], low[b], high[b] = values.mean(), values.min(), values.max()
    seen = ~np.isnan(means).all(axis=0)
    means, x = means[:, seen], edges[1:][seen]
    if len(seeds) > 1:
        low, high = np.nanmin(means, axis=0), np.nanmax(means, axis=0)
    else:
        low, high = low[seen], high[seen]
    banded = bool((low < high).any())
    return Curve(name, np.nanmedian(means, axis=0), low if banded else None, high if banded else None, x, colour=colour)


def _ends(page: Page, found: Sequence[Training]) -> None:
    rows: list[list[Any]] = []
    for one in found:
        for manifest, metrics in zip(one.seeds, one.rows, strict=True):
            steps = metrics[-1]["steps"] if metrics else 0
            speed = metrics[-1].get("steps_per_second_overall", math.nan) if metrics else math.nan
            for role in roles_of(metrics):
                last, highest = ends(metrics, of_role(role, "return_mean"))
                validated = ends(metrics, of_role(role, "validation_return"))[1]
                whose = [f"{one.name} {role}".rstrip(), str(manifest["seed"])]
                rows.append([*whose, manifest["updates"], steps, last, highest, validated, speed])
    header = ["training", "seed", "updates", "steps", "return at the end", "highest", "best validation", "steps/s"]
    keep = [k for k in range(len(header)) if k != 6 or any(not math.isnan(row[6]) for row in rows)]
    about = "The return at the end is the mean over the last tenth of the updates."
    page.table("At the end", [header[k] for k in keep], [[row[k] for k in keep] for row in rows], about)


def _settings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    names = ("algorithm", "total_steps", "samples", "seed", "validate_every", "validation", "patience", "params")
    told = {name: manifest.get(name) for name in names}
    config = {name: value for name, value in (manifest["settings"] or {}).items() if value not in (None, False, {}, "")}
    config.pop("origin", None)
    return {"world": manifest["env"].get("class"), **told, "settings": config}


def _surroundings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: manifest.get(name) for name in ("device", "commit", "updated")}
    return {**manifest["versions"], **kept}
