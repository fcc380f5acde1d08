"""Ratings by hand, against simulated strengths with the coverage of their intervals; tournaments against the tree."""

import math

import numpy as np
import pytest

import denizen as dz
from denizen.zoo.kuhn import Kuhn

TRUE = np.array([-200.0, -50.0, 0.0, 80.0, 170.0])


def test_two_players_by_hand():
    """30 points of 40 are odds of 3: 400 log10(3) points; the error is that of a binomial share."""
    for wins, draws in (([[0, 30], [10, 0]], None), ([[0, 28], [8, 0]], [[0, 4], [4, 0]])):
        found = dz.rl.rating(wins, draws, players=("new", "old"))
        ahead, low, high = found.difference("new", "old")
        assert ahead == pytest.approx(400 * math.log10(3))
        share, drawn = 0.75, 0 if draws is None else 4 / 40
        error = 400 / math.log(10) * math.sqrt(share * (1 - share) - drawn / 4) / math.sqrt(40) / (share * (1 - share))
        assert (high - low) / 2 == pytest.approx(1.959964 * error)
        assert found.elo.sum() == pytest.approx(0)
    assert repr(found).startswith("new: 95 (95 %")


def simulated(generator, games, draws):
    """Wins and draws of a round of games of all pairs."""
    won, drawn = np.zeros((5, 5)), np.zeros((5, 5))
    for i in range(5):
        for j in range(i):
            prob = 1 / (1 + 10 ** ((TRUE[j] - TRUE[i]) / 400))
            tied = draws * 2 * min(prob, 1 - prob)
            won[i, j], drawn[i, j], won[j, i] = generator.multinomial(
                games, [prob - tied / 2, tied, 1 - prob - tied / 2]
            )
            drawn[j, i] = drawn[i, j]
    return won, drawn


@pytest.mark.parametrize("draws", [0.0, 0.4])
def test_intervals_hold_the_strengths(draws):
    """Over 400 tables of 40 games a pair: no bias, and 95 % intervals in 95 % of cases (standard error below 1 %)."""
    generator, held, elo = np.random.default_rng(1), [], []
    for _ in range(400):
        found = dz.rl.rating(*simulated(generator, 40, draws))
        low, high = found.interval.T
        held.append((low <= TRUE) & (high >= TRUE))
        elo.append(found.elo)
    assert abs(np.mean(held) - 0.95) < 0.02
    assert np.abs(np.mean(elo, 0) - TRUE).max() < 5


def test_what_cannot_be_rated():
    refused = dz.errors.InputError
    with pytest.raises(refused, match="b took no point from a"):
        dz.rl.rating([[0, 3], [0, 0]], players=("a", "b"))
    assert dz.rl.rating([[0, 3], [0, 0]], prior=1).elo[0] == pytest.approx(200 * math.log10(7))
    with pytest.raises(refused, match=r"wins has shape \(2, 3\)"):
        dz.rl.rating(np.zeros((2, 3)))
    for given in ("ab", [[0, 1], [1]], {"a": 1}, None):
        with pytest.raises(refused, match="rating: wins"):
            dz.rl.rating(given)
    with pytest.raises(refused, match="draws"):
        dz.rl.rating([[0, 1], [1, 0]], [[0, 1], [0, 0]])
    with pytest.raises(refused, match="2 different names"):
        dz.rl.rating([[0, 1], [1, 0]], players=("a", "a"))
    with pytest.raises(refused, match="no player 'c'"):
        dz.rl.rating([[0, 1], [1, 0]], players=("a", "b")).difference("a", "c")


def test_draws_alone_leave_a_strength_open():
    """Where every game was drawn, the interval is that of as many games without a draw, not one of no width."""
    drawn = dz.rl.rating([[0, 0], [0, 0]], [[0, 40], [40, 0]])
    played = dz.rl.rating([[0, 20], [20, 0]])
    assert drawn.interval == pytest.approx(played.interval)
    never_met = dz.rl.rating([[0, 30, 0, 0], [30, 0, 0, 0], [0, 0, 0, 30], [0, 0, 30, 0]], prior=1)
    met, apart = (high - low for _, low, high in (never_met.difference("0", other) for other in ("1", "2")))
    assert apart > 2.5 * met  # the four drawn games between them and the others are nobody's but the prior's


def test_each_pair_plays_games_of_its_own():
    policy = dz.rl.mlp(Kuhn(), (4,))
    cup = dz.rl.tournament(Kuhn(), {"one": policy, "same": policy}, games=200, max_moves=3)
    assert cup.won[0, 1] != cup.won[1, 0]
    for wrong, text in ((("one", "other"), "no player 'other'"), (("one", "one"), "did not play itself")):
        with pytest.raises(dz.errors.InputError, match=text):
            cup.score(*wrong)


def test_a_tournament_pays_what_the_tree_says():
    game = Kuhn()
    tree, policy = dz.rl.GameTree(game), dz.rl.mlp(game, (4,))
    cup = dz.rl.tournament(game, {"policy": policy, "random": None}, games=2_000, max_moves=3)
    for i, j, pair in ((0, 1, (policy, None)), (1, 0, (None, policy))):
        assert abs(cup.payoff[i, j] - tree.value(*pair)) < 4 * 2 / math.sqrt(2_000)
        assert cup.won[i, j] + cup.drawn[i, j] + cup.lost[i, j] == 2_000
    assert cup.score("policy", "random") + cup.score("random", "policy") == pytest.approx(1)
    assert abs(cup.rating().difference("policy", "random")[0]) < 60
    with pytest.raises(dz.errors.InputError, match="two players that play at random"):
        dz.rl.tournament(game, {"a": None, "b": None})
    with pytest.raises(dz.errors.InputError, match="tournament: max_moves=0"):
        dz.rl.tournament(game, {"a": policy, "b": None}, max_moves=0)
    with pytest.raises(dz.errors.InputError, match="games were not over after max_moves=1"):
        dz.rl.tournament(game, {"a": policy, "b": None}, games=64, max_moves=1)
