"""GRPO learns what it should, over five seeds; hours on a slow machine, so left out by default."""

import math
import runpy
from pathlib import Path

import pytest

MEASURE = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks/grpo_learning.py"), run_name="measure")

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]


def test_cartpole_is_balanced():
    scores = [MEASURE["cartpole"](seed)["score"] for seed in range(5)]
    assert sum(scores) / 5 >= 478, scores


def test_fruits_are_caught_and_games_won():
    rows = [MEASURE["learn"]("grpo", seed, 150, every=150) for seed in range(5)]
    scores, won = [row["score"] for row in rows], [row["won"] for row in rows]
    assert all(math.isfinite(score) for score in scores)
    assert min(scores) > 5.29, "no seed collapses below chasing the lowest fruit"
    assert sum(scores) / 5 >= 6.5, scores
    assert min(won) >= 0.95, won


def test_the_original_learns_less_in_as_many_steps():
    ours, theirs = (MEASURE["learn"](name, 0, 60, every=60)["score"] for name in ("grpo", "original"))
    assert ours > theirs + 3
