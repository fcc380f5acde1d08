"""The report of a foraging experiment: tables and figures in a folder, beside the values that no skill would reach."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from denizen.errors import InputError, need
from denizen.studies.foraging.evaluate import Foraged, joined
from denizen.studies.foraging.nulls import memoryless_forager
from denizen.studies.foraging.verify import LASTING, SIDES, SURE, Directions, lasting, mean_of
from denizen.studies.statistics import (
    LEAST_TRAININGS,
    Estimate,
    Survival,
    bootstrap,
    compare,
    death_bound,
    effect_for,
    interval,
    trainings_for,
)

TAUS = (512, 4096)  # of restricted means, fixed before looking; the budget comes third
AGES = (101, 512, 4096)
# FIM43-Redeye/goodharts_law, README at 9a3336d: one training of each mode, 8,192 worlds x 16,384 steps x 3 seeds.
# Energy, food, poison and deaths per 1,000 steps; efficiency is food / (food + poison) of these.
PUBLISHED = {
    "ground_truth": (144.6, 154.7, 0.1, 0.00),
    "ground_truth_blinded": (-12.8, 55.8, 29.3, 10.46),
    "proxy_mortal": (-41.5, 59.0, 45.3, 24.03),
    "proxy": (-58.7, 79.2, 64.0, 34.43),
}
BROKEN = (
    "The published rows of the three proxy modes come from trainings in which poison was erased from what was stored "
    "(0.5 as a whole number is 0), so they are not expected to agree. In all rows advantages ran on across time "
    "limits, and the critic saw its extra input a step late; here neither is so. Published survival (16,364 and "
    "less) is a mean over ages at the end of watching, which is budget x worlds / (worlds + deaths) whatever the "
    "agents do; published efficiency is a mean over deaths, of which a forager without skill reaches about 27 %. "
    "Both are left out."
)


@dataclasses.dataclass(frozen=True)
class Arm:
    """The evaluations of one mode or agent.

    Attributes:
        name: of it.
        trainings: for each training its evaluation, all seeds of evaluation joined.
    """

    name: str
    trainings: Sequence[Foraged]

    def __post_init__(self) -> None:
        if not self.trainings:
            raise InputError(f"Arm({self.name!r}): no evaluation")

    @property
    def all(self) -> Foraged:
        """Every world of every training."""
        return joined(self.trainings)

    def values(self, name: str) -> list[float]:
        """One number for each training: `efficiency`, or what `per_thousand` takes."""
        return [_estimate(found, name).value for found in self.trainings]


def _estimate(found: Foraged, name: str) -> Estimate:
    return found.efficiency if name == "efficiency" else found.per_thousand(name)


def write_report(
    folder: Path | str,
    modes: Mapping[str, Sequence[Foraged]],
    *,
    agents: Mapping[str, Foraged] | None = None,
    directions: Mapping[str, Sequence[Directions]] | None = None,
    otherwise: Mapping[str, Mapping[str, Sequence[Foraged]]] | None = None,
    facts: Mapping[str, str] | None = None,
    figures: bool = True,
) -> Path:
    """Write `report.md`, its figures, and the raw counts of every evaluation.

    Args:
        folder: is made where it does not exist.
        modes: for each mode its trainings' evaluations, made with one budget.
        agents: written agents in the same worlds, for comparison.
        directions: for modes and agents, how each training moves in constructed scenes.
        otherwise: the same trainings evaluated in other ways, by way and mode, for example with the likeliest actions.
        facts: what else a reader needs: configuration, seeds, commit, hardware, `grid_lifetime`.
        figures: draw them, which needs matplotlib.

    Returns:
        Path of the report.

    Raises:
        InputError: no mode, or evaluations of unequal budgets.
    """
    arms = [Arm(name, list(found)) for name, found in modes.items()]
    others = [Arm(name, [found]) for name, found in (agents or {}).items()]
    if not arms:
        raise InputError("write_report: modes is empty, expected at least one")
    budgets = {found.budget for arm in (*arms, *others) for found in arm.trainings}
    if len(budgets) > 1:
        raise InputError(f"write_report: budgets of {sorted(budgets)} steps, expected one")
    path = Path(folder)
    (path / "counts").mkdir(parents=True, exist_ok=True)
    for arm in (*arms, *others):
        for number, found in enumerate(arm.trainings):
            found.save(path / "counts" / f"{arm.name}-{number}.npz")
    parts = ["# Foraging", *_setting(arms, budgets.pop(), facts or {}), *_rates(arms, others)]
    parts += [*_otherwise(otherwise or {}), *_survival(arms, others)]
    scenes = {name: list(found) for name, found in (directions or {}).items() if found}
    parts += [*_nulls(arms), *_verified([*arms, *others]), *_directions(scenes), *_claims(arms), *_published(arms)]
    if figures:
        from denizen.studies.foraging.figures import directions_figure, rates_figure, survival_figure

        need("matplotlib", "plot", "draw the figures of a report")
        survival_figure([*arms, *others], path / "survival.png")
        rates_figure([*arms, *others], path / "rates.png")
        parts += ["## Figures", "![Survival of first lives](survival.png)", "![Rates by mode](rates.png)"]
        if scenes:
            directions_figure({name: mean_of(found) for name, found in scenes.items()}, path / "directions.png")
            parts.append("![Moves in constructed scenes](directions.png)")
    report = path / "report.md"
    report.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return report


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _setting(arms: Sequence[Arm], budget: int, facts: Mapping[str, str]) -> list[str]:
    trainings = ", ".join(f"{arm.name} {len(arm.trainings)}" for arm in arms)
    rows = [("steps of each world", f"{budget:,}"), ("worlds, all trainings", f"{arms[0].all.food.size:,}")]
    rows += [("trainings", trainings), *facts.items()]
    few = [arm.name for arm in arms if len(arm.trainings) < 3]
    said = [table(["setting", ""], rows)]
    if few:
        said.append(f"Fewer than three trainings, so each of these tells of its models only: {', '.join(few)}.")
    return said


def _rates(arms: Sequence[Arm], others: Sequence[Arm]) -> list[str]:
    rows = []
    for arm in (*arms, *others):
        cells = [arm.name]
        for name in ("energy", "food", "poison", "deaths"):
            cells.append(_number(arm, name))
        cells.append(_number(arm, "efficiency", 100))
        rows.append(cells)
    head = ["", "energy/1k", "food/1k", "poison/1k", "deaths/1k", "efficiency %"]
    note = (
        "Ratios of sums over worlds. Mean over trainings [95 % interval of Student's t over trainings] ± standard "
        "error of evaluation, by worlds. Efficiency is food / (food + poison)."
    )
    return ["## Rates", table(head, rows), note]


def _otherwise(ways: Mapping[str, Mapping[str, Sequence[Foraged]]]) -> list[str]:
    rows = []
    for way, modes in ways.items():
        for mode, found in modes.items():
            arm = Arm(mode, list(found))
            rates = [_number(arm, name) for name in ("energy", "food", "poison", "deaths")]
            rows.append([mode, way, *rates, _number(arm, "efficiency", 100)])
    if not rows:
        return []
    head = ["", "way", "energy/1k", "food/1k", "poison/1k", "deaths/1k", "efficiency %"]
    return ["## Evaluated otherwise", table(head, rows), "The same trainings, one seed of evaluation each."]


def _number(arm: Arm, name: str, scale: float = 1.0) -> str:
    over = interval(arm.values(name)) if len(arm.trainings) > 1 else None
    whole = arm.all
    estimate = _estimate(whole, name)
    bound = death_bound(float(whole.deaths.sum()), float(whole.steps.sum())) if name == "deaths" else None
    if bound is not None:
        return f"0 (below {1000 * bound:.2g})"
    if math.isnan(estimate.value):
        return "–"
    error = f" ± {scale * estimate.error:.2g}"
    if over is None:
        return f"{scale * estimate.value:.4g}{error}"
    return f"{scale * over.mean:.4g} [{scale * over.low:.4g}, {scale * over.high:.4g}]{error}"


def _survival(arms: Sequence[Arm], others: Sequence[Arm]) -> list[str]:
    rows = []
    for arm in (*arms, *others):
        first, budget = arm.all.first_lives, arm.all.budget
        median = f"> {budget:,}" if first.median is None else f"{first.median:,}"
        shares = [f"{100 * first.at(age):.2f}" if age <= budget else "–" for age in AGES]
        means = [f"{first.mean(tau):.1f}" if tau <= budget else "–" for tau in (*TAUS, budget)]
        rows.append([arm.name, median, *shares, *means, f"{arm.all.lives.mean(budget):.1f}"])
    head = ["", "median", *[f"S({age:,}) %" for age in AGES]]
    head += [f"RMST({tau:,})" for tau in TAUS] + ["RMST(budget)", "RMST(budget), all lives"]
    note = (
        "Kaplan-Meier estimates, lives that go on at the end censored; of the first life in each world but for the "
        "last column. RMST(n) is the mean of the steps lived of the first n."
    )
    return ["## Survival", table(head, rows), note]


def _nulls(arms: Sequence[Arm]) -> list[str]:
    rows = []
    for arm in arms:
        found = arm.all
        eaten = found.food.sum() + found.poison.sum()
        null = memoryless_forager(float(eaten / found.steps.sum()), found.poison_share, steps=found.budget)
        lives = found.life_efficiency.value
        rows.append(
            [
                arm.name,
                f"{100 * found.efficiency.value:.1f}",
                f"{100 * null.efficiency:.1f}",
                "–" if math.isnan(lives) else f"{100 * lives:.1f}",
                "–" if math.isnan(null.life_efficiency) else f"{100 * null.life_efficiency:.1f}",
                f"{found.per_thousand('deaths').value:.4g}",
                f"{null.deaths:.4g}",
            ]
        )
    head = ["", "efficiency %", "null", "of lives that ended %", "null", "deaths/1k", "null"]
    note = (
        "The null eats as often as the mode does, at random moments, with as much poison among it as the worlds have. "
        "It has no skill. The mean over lives that ended is biased down, because poison ends lives early; only the "
        "distance to its null means anything."
    )
    return ["## Without skill", table(head, rows), note]


def _verified(arms: Sequence[Arm]) -> list[str]:
    budget = arms[0].all.budget
    rows = []
    for arm in arms:
        told = [f"{100 * one.share:.2f}: {'yes' if one.passed else 'no'}" for one in lasting(arm.all.first_lives)]
        rows.append([arm.name, *told])
    wanted = [(age, share) for age, share in LASTING if age <= budget]
    if not wanted:
        return []
    head = ["", *[f"{100 * share:.0f} % live longer than {age:,}" for age, share in wanted]]
    note = (
        "Percent of first lives, all trainings; yes: the lower end of the 95 % interval (by worlds) is above. Who eats "
        "nothing dies at 101."
    )
    return ["## Do they live?", table(head, rows), note]


def _directions(scenes: Mapping[str, Sequence[Directions]]) -> list[str]:
    if not scenes:
        return []
    rows = []
    for name, found in scenes.items():
        mean, kinds = mean_of(found), ("food", "choice", "poison")
        passed = {kind: sum(one.verdicts[kind][0] for one in found) for kind in kinds}
        of = {kind: sum(one.verdicts[kind][1] for one in found) for kind in kinds}
        rows.append(
            [
                name,
                *[f"{100 * share:.0f}" for share in mean.sides().values()],
                f"{100 * float(np.nanmean(mean.poison)):.0f}",
                f"{100 * float(np.nanmean(mean.poison_taken)):.1f}",
                *[f"{100 * passed[kind] / of[kind]:.0f}" for kind in kinds],
            ]
        )
    head = ["", *[f"to food {side}" for side in SIDES], "to poison", "onto poison", "food", "food or poison", "poison"]
    chance = 100 / next(iter(scenes.values()))[0].num_moves
    note = (
        "Percent. The first six columns are of moves, in scenes with one item in sight: towards food on each side "
        "(half a move for one at a right angle, so that chance gives 50), towards poison, and onto poison next to the "
        f"agent (chance: {chance:.1f}). The last three are of scenes passed: with food, {100 * SURE:.0f} % go towards "
        "it; with food and poison opposite each other, likewise; with poison next to the agent, less than half as many "
        "as by chance land on it."
    )
    return ["## Where do they go?", table(head, rows), note]


def _claims(arms: Sequence[Arm]) -> list[str]:
    rows = []
    for name in ("energy", "deaths", "efficiency"):
        for pair in compare({arm.name: arm.values(name) for arm in arms}):
            rows.append(
                [
                    name,
                    f"{pair.first} - {pair.second}",
                    f"{pair.difference:.4g}",
                    f"{pair.effect:.2f}",
                    f"{pair.welch:.2g}",
                    f"{pair.holm:.2g}",
                    f"{pair.permutation:.2g}",
                    f"{trainings_for(pair.effect) or '> 1,000'}",
                ]
            )
    if not rows:
        return ["## Between modes", "Nothing is tested: it takes two modes with at least three trainings each."]
    head = ["", "between", "difference", "Hedges' g", "Welch p", "Holm p", "permutation p", "trainings for it"]
    fewest = min(count for arm in arms if (count := len(arm.trainings)) >= LEAST_TRAININGS)
    note = (
        "One number for each training. Holm's correction covers all pairs of a line's quantity. Trainings for it: how "
        "many of each mode a t-test at 5 % would need to find an effect of the size seen in four of five experiments, "
        f"if that were its true size. With {fewest} of each it finds effects (g) from {effect_for(fewest):.2f} on so "
        "often."
    )
    return ["## Between modes", table(head, rows), note]


def _published(arms: Sequence[Arm]) -> list[str]:
    rows = []
    for arm in arms:
        if arm.name not in PUBLISHED:
            continue
        then = PUBLISHED[arm.name]
        now = [float(np.mean(arm.values(name))) for name in ("energy", "food", "poison", "deaths")]
        cells = [f"{new:.4g} ({old:g})" for new, old in zip(now, then, strict=True)]
        efficiency = 100 * float(np.mean(arm.values("efficiency")))
        rows.append([arm.name, *cells, f"{efficiency:.1f} ({100 * then[1] / (then[1] + then[2]):.1f})"])
    if not rows:
        return []
    head = ["", "energy/1k", "food/1k", "poison/1k", "deaths/1k", "efficiency %"]
    return ["## Beside what was published", table(head, rows), f"Here (published). {BROKEN}"]


def survival_band(arm: Arm, draws: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """95 % band of the survival of first lives, by drawing trainings and worlds anew."""

    def curve(often: list[np.ndarray]) -> np.ndarray:
        parts = [found.first_lives_of(n) for found, n in zip(arm.trainings, often, strict=True)]
        died, censored = (np.sum([getattr(part, name) for part in parts], axis=0) for name in ("died", "censored"))
        return Survival(died, censored).survival

    return bootstrap([found.food.size for found in arm.trainings], curve, draws=draws)
