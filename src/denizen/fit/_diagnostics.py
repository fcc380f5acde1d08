"""What a fit is looked at for by itself: whether it gives such data, and what the data say of each parameter."""

import dataclasses

import numpy as np

from denizen._printing import Table, plain
from denizen.errors import ModelError
from denizen.fit._experiment import Experiment
from denizen.fit._method import Solution
from denizen.fit._target import Target

ODD = 3.5  # standard deviations of what the fit gives: farther off is told
OUTLIER = 6.0  # the same of a single value, of which there are many
ALIKE = {"sqrt": 0.5, "identity": 0.01}  # of the mean scatter: the least that a single value is taken to scatter
PRIOR_DRAWS = 2000
FEWEST = 8  # worlds


@dataclasses.dataclass(frozen=True)
class Diagnostics:
    """How well a fit gives data like those observed, and what they say.

    Attributes:
        worlds: simulated for it, each with a draw of the parameters of its own.
        loss: mean squared distance of what was observed and the mean of the worlds, as they are compared.
        noise: standard deviation of the loss between sets of so many worlds.
        residuals: by target, distance of each value to the mean of the worlds, over their standard deviation.
        covered: by target, share of the values within the middle nine tenths of the worlds.
        checks: by target, how far its ``"total"``, its ``"peak"`` and the ``"autocorrelation"`` of its residuals lie
            from those of the worlds, in their standard deviations.
        eigenvalues: of the information about the free numbers, ascending, `[P]`; below 0.44 the data say little.
        directions: of each eigenvalue, `[P, P]`, one a column; with those NaN where the method computed no interval.
        correlations: of the estimates, `[P, P]`.
        shrinkage: share of the prior's variance that the data took away, `[P]`; NaN without a prior.
        labels: of the free numbers.
    """

    worlds: int
    loss: float
    noise: float
    residuals: dict[str, np.ndarray]
    covered: dict[str, float]
    checks: dict[str, dict[str, float]]
    eigenvalues: np.ndarray
    directions: np.ndarray
    correlations: np.ndarray
    shrinkage: np.ndarray
    labels: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Data that the fit does not give, in words."""
        notes = []
        for name, checks in self.checks.items():
            odd = [f"{what} {away:+.1f}" for what, away in checks.items() if abs(away) > ODD]
            if odd:
                what = ", ".join(odd)
                notes.append(
                    f"The fitted model does not give such {name}: {what} standard deviations from its own; the model "
                    f"is wrong there, or its noise too small."
                )
            for place in np.argwhere(np.abs(np.nan_to_num(self.residuals[name])) > OUTLIER):
                k = ", ".join(map(str, place))
                away = self.residuals[name][tuple(place)]
                notes.append(
                    f"{name}[{k}] lies {away:+.1f} standard deviations from what the fitted model gives there."
                )
        return tuple(notes)

    def __str__(self) -> str:
        fits = Table("target", "within 90 %", "total", "peak", "autocorrelation", title="Data, beside those of the fit")
        for name, checks in self.checks.items():
            fits.add_row(name, f"{self.covered[name]:.0%}", *(f"{away:+.1f} sd" for away in checks.values()))
        loss = f"loss {self.loss:.3g} ± {self.noise:.2g} (noise of {self.worlds} worlds)"
        if np.isnan(self.eigenvalues).any():
            return f"{plain(fits, 100)}\n{loss}"
        said = Table("parameter", "correlated most with", "prior's variance less", title="What the data say")
        for k, label in enumerate(self.labels):
            others = np.where(np.arange(len(self.labels)) == k, 0, self.correlations[k])
            j = int(np.abs(others).argmax())
            most = "" if len(self.labels) == 1 else f"{self.labels[j]} {others[j]:+.2f}"
            said.add_row(label, most, "" if np.isnan(self.shrinkage[k]) else f"{self.shrinkage[k]:.0%}")
        weak = self.directions[:, 0]
        parts = " ".join(f"{w:+.2f} {n}" for w, n in zip(weak, self.labels, strict=True) if abs(w) > 0.2)
        lines = [
            loss,
            f"known least: {parts}, to ± {self.eigenvalues[0] ** -0.5:.2g} in transformed units",
        ]
        return "\n".join([plain(fits, 100), plain(said, 100), *lines])


def diagnose(experiment: Experiment, solution: Solution, replicates: int) -> Diagnostics | None:
    """Simulate draws of a solution, in worlds that it has not used; None where the model fails at them."""
    worlds = max(FEWEST, replicates)
    free = solution.drawn(worlds, experiment.generator())
    free = np.stack([one if experiment.fits(one) else solution.free for one in free])
    try:
        seen = experiment.windows(free, range(solution.worlds, solution.worlds + worlds))
    except ModelError:
        return None
    compared = np.concatenate([_kept(target, seen[name]) for name, target in experiment.targets.items()], axis=1)
    observed = np.concatenate([_kept(t, t.values[None]) for t in experiment.targets.values()], axis=1)[0]
    loss = ((observed - compared.mean(0)) ** 2).mean()
    # Each world left out in turn (jackknife).
    left = (compared.sum(0) - compared) / (worlds - 1)
    noise = np.sqrt((worlds - 1) * ((observed - left) ** 2).mean(1).var())
    vectors = covariance = np.full(2 * [len(solution.free)], np.nan)
    values = vectors[0]
    if solution.precision is not None:
        values, vectors = np.linalg.eigh(solution.precision)
        covariance = solution.covariance()
    sd = np.sqrt(np.diag(covariance))
    return Diagnostics(
        worlds=worlds,
        loss=float(loss),
        noise=float(noise),
        residuals={name: _residuals(target, seen[name]) for name, target in experiment.targets.items()},
        covered={name: _covered(target, seen[name]) for name, target in experiment.targets.items()},
        checks=_checks(experiment, seen, solution.slope, free),
        eigenvalues=np.maximum(values, 1e-12),
        directions=vectors,
        correlations=covariance / np.outer(sd, sd),
        shrinkage=_shrinkage(experiment, sd),
        labels=tuple(experiment.parameters.labels),
    )


def _kept(target: Target, seen: np.ndarray) -> np.ndarray:
    """What was observed of values `[rows, values, …]`, as it is compared: `[rows, D]`."""
    return target.scaled(seen).reshape(len(seen), -1)[:, ~np.isnan(target.values).reshape(-1)]


def _residuals(target: Target, seen: np.ndarray) -> np.ndarray:
    scaled = target.scaled(seen)
    spread = scaled.std(0, ddof=1) * np.sqrt(1 + 1 / len(seen))
    # Of few worlds all may give the same number; roots of counts scatter alike at all sizes.
    spread = np.maximum(spread, 1e-9 + ALIKE[target.scale] * spread.mean())
    return (target.scaled(target.values) - scaled.mean(0)) / spread


def _covered(target: Target, seen: np.ndarray) -> float:
    low, high = np.quantile(seen, [0.05, 0.95], axis=0)
    kept = ~np.isnan(target.values)
    return float(((low <= target.values) & (target.values <= high))[kept].mean())


def _checks(
    experiment: Experiment, seen: dict[str, np.ndarray], slope: np.ndarray | None, free: np.ndarray
) -> dict[str, dict[str, float]]:
    rows = {name: np.concatenate([t.values[None], seen[name]]) for name, t in experiment.targets.items()}
    left = _left(experiment, rows, slope, free)
    found = {}
    for name, target in experiment.targets.items():
        scaled = target.scaled(np.where(np.isnan(target.values), np.nan, rows[name])).reshape(len(rows[name]), -1)
        measures = np.nansum(scaled, axis=1), np.nanmax(scaled, axis=1), _autocorrelation(left[name])
        names = ("total", "peak", "autocorrelation")
        found[name] = {what: _away(measure) for what, measure in zip(names, measures, strict=True)}
    return found


def _left(
    experiment: Experiment, rows: dict[str, np.ndarray], slope: np.ndarray | None, free: np.ndarray
) -> dict[str, np.ndarray]:
    """What is left of rows, the first observed and the others simulated, once the parameters have taken their part.

    Parameters were fitted to the first row and not to the others. Of all of them the part is taken away that any change
    of the parameters could give, to first order, so that they compare. By target `[rows, values, …]`, NaN for gaps.
    """
    parts, slopes, at = {}, [], 0
    for name, target in experiment.targets.items():
        parts[name] = _kept(target, rows[name])
        if slope is not None:
            slopes.append(slope[at : at + parts[name].shape[1]])
            at += experiment.compares(name)
    all_of = np.concatenate(list(parts.values()), axis=1)
    rest = all_of - all_of[1:].mean(0)
    if slope is None:
        moved = free - free.mean(0)
        slopes = [np.linalg.lstsq(moved, rest[1:], rcond=None)[0].T] if len(free) > 3 * free.shape[1] else []
    if slopes:
        basis = np.linalg.svd(np.concatenate(slopes), full_matrices=False)
        directions = basis[0][:, basis[1] > 1e-6 * max(basis[1].max(), 1e-300)]
        rest = rest - rest @ directions @ directions.T
    found, at = {}, 0
    for name, target in experiment.targets.items():
        full = np.full((len(rest), target.values.size), np.nan)
        full[:, ~np.isnan(target.values).reshape(-1)] = rest[:, at : at + parts[name].shape[1]]
        at += parts[name].shape[1]
        found[name] = full.reshape(len(rest), *target.values.shape)
    return found


def _autocorrelation(rest: np.ndarray) -> np.ndarray:
    """Of neighbours in time, over all groups: `[rows]` of `[rows, values, …]`; gaps are left out."""
    if rest.shape[1] < 2:
        return np.zeros(len(rest))
    products = (rest[:, 1:] * rest[:, :-1]).reshape(len(rest), -1)
    if np.isnan(products).all():  # gaps all along: no two neighbours were observed
        return np.zeros(len(rest))
    products = np.nanmean(products, axis=1)
    return products / np.maximum(np.nanmean((rest**2).reshape(len(rest), -1), axis=1), 1e-300)


def _away(measure: np.ndarray) -> float:
    """Of the first, from the mean of the others, in their standard deviations."""
    others = measure[1:]
    sd = others.std(ddof=1) * np.sqrt(1 + 1 / len(others))
    away = measure[0] - others.mean()
    return float(away / sd) if sd > 1e-12 * max(1.0, abs(measure[0])) else 0.0 if abs(away) < 1e-9 else np.inf


def _shrinkage(experiment: Experiment, sd: np.ndarray) -> np.ndarray:
    found, at = np.full(len(sd), np.nan), 0
    generator = experiment.generator()
    for part in experiment.parameters.parts:
        here = slice(at, at + part.size)
        at += part.size
        if not part.flat() and part.size:
            draws = type(experiment.parameters)([part]).draw("calibrate", PRIOR_DRAWS, generator)
            found[here] = 1 - sd[here] ** 2 / draws.var(0)
    return found
