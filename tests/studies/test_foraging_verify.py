"""Constructed scenes: where agents go that were written, what is judged, and how it is reported."""

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.studies.foraging.evaluate import forage
from denizen.studies.foraging.report import write_report
from denizen.studies.foraging.verify import SIDES, Directions, directions, lasting, mean_of
from denizen.studies.statistics import Survival
from denizen.zoo.foraging import foraging
from denizen.zoo.foraging.agents import Learnt, OmniscientSeeker, ProxySeeker, Uniform

ENV = foraging()
EVEN = dict.fromkeys(SIDES, 0.5)


class Only:
    """Always the same move."""

    def __init__(self, action):
        self.action = action

    def act(self, observed, uniform):
        return torch.full((observed.observation.shape[0],), self.action)


def test_agents_that_were_written_do_what_they_were_written_for():
    told = {agent.__name__: directions(ENV, agent(ENV)) for agent in (OmniscientSeeker, ProxySeeker, Uniform)}
    assert told["OmniscientSeeker"].verdicts == {"food": (80, 80), "choice": (80, 80), "poison": (8, 8)}
    assert told["ProxySeeker"].verdicts == {"food": (80, 80), "choice": (80, 80), "poison": (0, 8)}
    assert told["ProxySeeker"].sides("poison") == dict.fromkeys(SIDES, 1.0)
    assert told["Uniform"].verdicts == {"food": (0, 80), "choice": (0, 80), "poison": (0, 8)}
    assert told["Uniform"].sides() == told["Uniform"].sides("poison") == EVEN
    assert np.nanmean(told["Uniform"].poison_taken) == pytest.approx(1 / 8)
    assert np.nanmax(told["OmniscientSeeker"].poison_taken) == 0


@pytest.mark.parametrize(
    ("action", "side", "other"),
    [(3, "up", "down"), (4, "down", "up"), (6, "right", "left"), (1, "left", "right")],
)
def test_a_scene_is_where_it_says(action, side, other):
    told = directions(ENV, Only(action)).sides()
    assert (told[side], told[other]) == (1.0, 0.0)
    assert sum(told.values()) == pytest.approx(2.0)


def test_scenes_are_looks_of_real_worlds():
    """An item put into a world is seen as in the scene: x to the right is the bit to the right."""
    worlds = dz.rl.Worlds(ENV, 64, seed=3, device="cpu")
    observed = worlds.reset()
    told = directions(ENV, OmniscientSeeker(ENV))
    planes = ENV.unpacked(observed.observation)
    moves = OmniscientSeeker(ENV).act(observed, torch.full((64, 1), 0.5))
    alone = [w for w in range(64) if planes[w].sum() == 1 and planes[w, 0].sum() == 1]
    for world in alone:
        y, x = (int(part[0]) for part in planes[world, 0].nonzero(as_tuple=True))
        jump = int(moves[world]) + (int(moves[world]) >= 4)
        toward = (jump // 3 - 1) * (x - 5) + (jump % 3 - 1) * (y - 5) > 0
        assert np.isnan(told.food[y, x]) or told.food[y, x] == float(toward)
    assert alone


def test_a_policy_is_judged_by_its_chances():
    policy = dz.rl.conv(ENV, (2,), hidden=8, head=dz.rl.PopArt)
    with torch.no_grad():
        policy.get_parameter("actor.bias")[6] = 50.0  # always to the right
    told = directions(ENV, Learnt(policy)).sides()
    assert (told["right"], told["left"]) == (1.0, 0.0)


def test_maps_are_kept_averaged_and_reported(tmp_path):
    one, other = directions(ENV, OmniscientSeeker(ENV)), directions(ENV, Uniform(ENV))
    one.save(tmp_path / "one.npz")
    back = Directions.load(tmp_path / "one.npz")
    assert np.array_equal(back.food, one.food, equal_nan=True)
    assert back.verdicts == one.verdicts
    assert mean_of([one, other]).sides() == dict.fromkeys(SIDES, 0.75)
    lives = {"random": [forage(ENV, Uniform(ENV), num_envs=2, steps=5, device="cpu")]}
    told = write_report(tmp_path, lives, directions={"both": [one, other], "one": [one]}, figures=False)
    text = told.read_text(encoding="utf-8")
    assert "| both | 75 | 75 | 75 | 75 |" in text
    assert "| 50 | 50 | 50 |" in text  # one of two trainings passes
    silent = write_report(tmp_path, lives, figures=False).read_text(encoding="utf-8")
    assert "## Where do they go?" in text
    assert "## Where do they go?" not in silent


def test_a_report_draws_the_maps(tmp_path):
    worlds = foraging(height=16, width=16, food_range=(4, 6), poison_range=(4, 6))
    found = forage(worlds, Uniform(worlds), num_envs=4, steps=20, device="cpu")
    path = write_report(tmp_path, {"proxy": [found]}, directions={"proxy": [directions(worlds, Uniform(worlds))]})
    text = path.read_text(encoding="utf-8")
    assert "## Where do they go?" in text
    assert "![Moves in constructed scenes](directions.png)" in text
    assert "Do they live" not in text  # 20 steps are too few to tell
    assert (tmp_path / "directions.png").stat().st_size > 5_000


def test_lives_are_held_against_what_is_wanted():
    died, censored = np.zeros(601, dtype=int), np.zeros(601, dtype=int)
    censored[600] = 20
    few = lasting(Survival(died, censored))
    assert [one.age for one in few] == [101, 512]
    assert [one.passed for one in few] == [False, False]  # none of 20 died, which may well be by chance
    censored[600] = 200
    assert all(one.passed for one in lasting(Survival(died, censored)))
    died[300], censored[600] = 12, 188
    told = lasting(Survival(died, censored))
    assert [one.passed for one in told] == [True, True]
    died[300], censored[600] = 16, 184  # 92 %, but not surely above 90
    assert [one.passed for one in lasting(Survival(died, censored))] == [True, False]
