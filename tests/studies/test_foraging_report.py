"""The report of a foraging experiment."""

import numpy as np
import pytest

import denizen as dz
from denizen.studies.foraging.evaluate import Foraged
from denizen.studies.foraging.report import Arm, survival_band, write_report


def foraged(hazard, share, seed, worlds=60, budget=600):
    """Counts of worlds as an agent with a death rate and a share of food would leave them."""
    rng = np.random.default_rng(seed)
    died, censored = np.zeros(budget + 1, dtype=np.int64), np.zeros(budget + 1, dtype=np.int64)
    deaths, first_age, first_died = np.zeros(worlds, dtype=np.int64), np.full(worlds, budget), np.zeros(worlds, bool)
    for world in range(worlds):
        left = budget
        while hazard and (life := int(rng.geometric(hazard))) <= left:
            if not first_died[world]:
                first_age[world], first_died[world] = life, True
            died[life] += 1
            deaths[world] += 1
            left -= life
        censored[left] += 1
    meals = rng.poisson(60, worlds)
    food = rng.binomial(meals, share)
    return Foraged(
        food,
        meals - food,
        deaths,
        np.full(worlds, budget),
        died,
        censored,
        first_age,
        first_died,
        deaths * share * 0.6,
        deaths,
        0.5,
        0.01,
        1.0,
        2.0,
    )


MODES = {
    "ground_truth": [foraged(0.0, 0.99, seed) for seed in range(3)],
    "proxy": [foraged(0.03, 0.55 + 0.01 * seed, seed) for seed in range(3)],
    "proxy_mortal": [foraged(0.02, 0.6, 5)],
}


def test_the_report_tells_everything_and_keeps_the_counts(tmp_path):
    path = write_report(
        tmp_path / "out",
        MODES,
        agents={"Uniform": foraged(0.01, 0.5, 9)},
        facts={"grid_lifetime": "persist"},
        otherwise={"likeliest actions": {"proxy": MODES["proxy"]}},
    )
    text = path.read_text(encoding="utf-8")
    for part in ("## Rates", "## Survival", "## Without skill", "## Between modes", "## Beside what was published"):
        assert part in text
    assert "| grid_lifetime | persist |" in text
    rates = next(line for line in text.splitlines() if line.startswith("| proxy | "))
    assert rates.replace("| proxy |", "| proxy | likeliest actions |") in text  # the same evaluations, so the same line
    assert "> 600" in text  # the median of those that never die
    assert "0 (below 0.028)" in text  # 3 deaths in 108,000 steps would not surprise
    assert "tells of its models only: proxy_mortal" in text
    assert "ground_truth - proxy |" in text
    assert "trainings for it" in text
    assert "With 3 of each it finds effects (g) from 3.07 on" in text
    assert "| ground_truth | 100.00: yes | 100.00: yes |" in text  # of the ages that were watched
    assert "Where do they go" not in text  # nothing was given
    assert "- proxy_mortal" not in text  # one training claims nothing
    assert "(144.6)" in text
    assert {p.name for p in path.parent.glob("*.png")} == {"survival.png", "rates.png"}
    back = Foraged.load(path.parent / "counts" / "proxy-2.npz")
    assert back.died.tolist() == MODES["proxy"][2].died.tolist()


def test_the_band_holds_the_curve():
    arm = Arm("proxy", MODES["proxy"])
    low, high = survival_band(arm, draws=50)
    curve = arm.all.first_lives.survival
    assert bool(((low <= curve + 0.03) & (curve <= high + 0.03)).all())


def test_what_cannot_be_reported_is_named(tmp_path):
    with pytest.raises(dz.errors.InputError, match="modes is empty"):
        write_report(tmp_path, {})
    with pytest.raises(dz.errors.InputError, match="no evaluation"):
        write_report(tmp_path, {"proxy": []})
    with pytest.raises(dz.errors.InputError, match=r"budgets of \[500, 600\]"):
        write_report(tmp_path, MODES, agents={"Uniform": foraged(0.01, 0.5, 9, budget=500)})
