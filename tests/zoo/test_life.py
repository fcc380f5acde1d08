"""The Game of Life: patterns whose life is known, and the rule cell by cell."""

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.space import Grid
from denizen.zoo.life import PATTERNS, Life, life, placed


def played(model, generations, **options):
    run = dz.simulate(model, generations, compile=False, device="cpu", **options)
    return run, run.state.live.reshape(-1, *model.grid.shape)


@pytest.mark.parametrize(
    ("pattern", "period", "moves"),
    [("blinker", 2, (0, 0)), ("glider", 4, (1, 1)), ("lightweight_spaceship", 4, (0, -2))],
)
def test_patterns_come_back(pattern, period, moves):
    model = life(rows=11, columns=12, pattern=pattern)
    start = model.pattern.reshape(11, 12)
    run, now = played(model, 3 * period)
    moved = torch.roll(start, [3 * by for by in moves], (0, 1))
    assert torch.equal(now[0], moved)
    assert int(run["living"][0, -1]) == int(start.sum())


@pytest.mark.parametrize("torus", [True, False])
def test_every_cell_follows_the_rule(torus):
    model = life(rows=9, columns=7, torus=torus, rule="b36/S23")
    _, before = played(model, 3, replicates=2, seed=4)
    _, after = played(model, 4, replicates=2, seed=4)
    for world in range(2):
        for row in range(9):
            for column in range(7):
                places = [(row + r, column + c) for r in (-1, 0, 1) for c in (-1, 0, 1) if r or c]
                if torus:
                    places = [(r % 9, c % 7) for r, c in places]
                around = sum(int(before[world, r, c]) for r, c in places if 0 <= r < 9 and 0 <= c < 7)
                lives = around in ((2, 3) if before[world, row, column] else (3, 6))
                assert int(after[world, row, column]) == lives


@pytest.mark.slow
def test_the_r_pentomino_settles():
    """LifeWiki: at most 319 cells, in generation 821; from 1103 on 116, of which 30 are six gliders under way."""
    run, _ = played(life(rows=560, columns=560, pattern="r_pentomino", torus=False), 1110)
    living = run["living"][0]
    assert (int(living.max()), int(living.argmax()) + 1) == (319, 821)
    assert living[1102:].tolist() == [116] * 8
    assert int(living[1101]) != 116


def test_replicates_chunks_and_worlds():
    model = life(rows=12, columns=10)
    both, one = dz.simulate(model, 12, replicates=2, seed=3), dz.simulate(model, 5, worlds=[1], seed=3)
    one.extend(7)
    assert torch.equal(both["living"][1], one["living"][0])
    assert torch.equal(both.state.live[1], one.state.live[0])


def test_wrong_arguments():
    for wrong, told in (
        ({"pattern": "glyder"}, "glider"),
        ({"rule": "23/3"}, "B3/S23"),
        ({"rows": 2}, "rows=2"),
        ({"shar": 0.1}, "share"),
        ({"pattern": "acorn", "columns": 5}, r"3 × 7 cells does not fit on \(80, 5\)"),
    ):
        with pytest.raises(InputError, match=told):
            life(**wrong)
    own = Life(Grid((5, 5)), pattern=placed(PATTERNS["blinker"], Grid((5, 5))))
    assert int(dz.simulate(own, 1)["living"]) == 3


def test_a_grid_that_does_not_fit_is_refused_before_anything_is_made():
    with pytest.raises(InputError, match=r"1,600,000,000 cells × 1,000,000 replicates need at least .* GiB"):
        dz.simulate(life(rows=40_000, columns=40_000), 1, replicates=1_000_000, device="cpu")
