"""Kuhn, Leduc and Connect Four by their rules: games of OpenSpiel 2.0.2 played again, and what is known of them."""

import json
from pathlib import Path

import pytest
import torch
from torch.utils import _pytree as pytree

import denizen as dz
from denizen.zoo.connect_four import Board, ConnectFour
from denizen.zoo.kuhn import Hand, Kuhn
from denizen.zoo.leduc import Leduc, Table

GAMES = json.loads((Path(__file__).parents[1] / "data" / "openspiel_games.json").read_text())


def start(name, cards):
    """States of all games, as they begin."""
    count = len(cards)
    none, cards = torch.zeros(count, dtype=torch.int64), torch.tensor(cards)
    if name == "kuhn_poker":
        return Kuhn(), Hand(cards=cards, history=none)
    if name == "connect_four":
        return ConnectFour(), Board(stones=torch.zeros(count, 2, dtype=torch.int64), moves=none, result=none)
    moves, stakes = torch.zeros(count, 8, dtype=torch.int64), torch.ones(count, 2, dtype=torch.int64)
    return Leduc(), Table(cards=cards, moves=moves, stakes=stakes, round=none, number=none, raises=none, result=none)


@pytest.mark.parametrize("name", GAMES)
def test_games_of_openspiel(name):
    played = GAMES[name]
    game, now = start(name, [one["cards"] for one in played])
    for number in range(max(len(one["moves"]) for one in played)):
        going = [k for k, one in enumerate(played) if number < len(one["moves"])]
        over, player = torch.vmap(game.terminated)(now), torch.vmap(game.player)(now)
        assert over.tolist() == [k not in going for k in range(len(played))]
        assert [int(player[k]) for k in going] == [played[k]["players"][number] for k in going]
        if name != "kuhn_poker":  # where all is open
            masks = torch.vmap(game.action_mask)(now)
            opened = [masks[k].nonzero().flatten().tolist() for k in going]
            assert opened == [played[k]["open"][number] for k in going]
        action = torch.tensor([one["moves"][number] if k in going else 0 for k, one in enumerate(played)])
        new = torch.vmap(lambda state, move: game.step(state, move, None))(now, action)
        paid = torch.vmap(game.payoff)(now, new)
        for k in going:
            last = number == len(played[k]["moves"]) - 1
            assert paid[k].tolist() == (played[k]["returns"] if last else [0, 0])
        kept = torch.tensor([k in going for k in range(len(played))])
        now = pytree.tree_map(
            lambda one, other, kept=kept: torch.where(kept.reshape(-1, *[1] * (other.dim() - 1)), one, other), new, now
        )
    assert bool(torch.vmap(game.terminated)(now).all())


def kuhns_family(alpha):
    """The equilibria of Kuhn (1950), by how often the first player bets with the lowest card."""
    bets = {"J": (alpha, 1 / 3, 0, 0), "Q": (0, 0, 1 / 3, alpha + 1 / 3), "K": (3 * alpha, 1, 1, 1)}

    def play(seen, open_):
        bet = torch.tensor([list(bets.values())[row[:3].index(1)][row[3:].index(1)] for row in seen.tolist()]).double()
        return torch.stack([1 - bet, bet], 1)

    return play


def test_kuhns_equilibria_cannot_be_exploited():
    tree = dz.rl.GameTree(Kuhn())
    assert tree.num_nodes == 6 * len(("", "p", "b", "pb", "pp", "bp", "bb", "pbp", "pbb"))
    assert len(tree.open) == 12
    for alpha in (0.0, 0.125, 1 / 3):
        play = kuhns_family(alpha)
        assert tree.exploitability(play) == pytest.approx(0, abs=1e-7)
        assert tree.value(play, kuhns_family(0.25)) == pytest.approx(-1 / 18, abs=1e-7)
    assert tree.nash_conv(None) == pytest.approx(11 / 12)  # OpenSpiel
    gain, reply = tree.best_response(None, 1)
    assert tree.value(None, reply) == pytest.approx(-gain)


def test_leducs_tree():
    tree = dz.rl.GameTree(Leduc())
    assert tree.nash_conv(None) == pytest.approx(4.747222222222222)  # OpenSpiel, of the uniform policy
    generator = torch.Generator().manual_seed(0)
    weights = (torch.rand(tree.open.shape, generator=generator) * tree.open).double()
    one, uniform = weights / weights.sum(1, keepdim=True), tree.table(None)
    mixed = tree.average([one, uniform], [3, 1])
    # An average plays as one that is drawn before the game: linear in what it gains.
    for seat in (0, 1):
        pairs = [(p, one)[:: 1 - 2 * seat] for p in (mixed, one, uniform)]
        both, first, second = (tree.value(*pair) for pair in pairs)
        assert both == pytest.approx((3 * first + second) / 4, abs=1e-12)


def test_worlds_pay_what_the_tree_says():
    """Payoffs of 4,000 sampled games against exact values, in both seats."""
    game = Leduc()
    tree, policy, other = dz.rl.GameTree(game), dz.rl.mlp(game, (8,), seed=1), dz.rl.mlp(game, (8,), seed=2)
    with torch.no_grad():
        for k, net in enumerate((policy, other)):
            net.actor.weight.mul_(300)
            net.actor.bias.copy_(torch.tensor([-1.0, 0.0, 1.0 - k]))
    exact = (tree.value(policy, other), -tree.value(other, policy))
    for seat in (0, 1):
        env = dz.rl.Against(game, [other], seat=seat)
        found = dz.rl.evaluate(env, policy, num_envs=4_000, max_steps=10)
        assert abs(found.mean - exact[seat]) < 4 * found.error
        assert bool(found.finished.all())


class Listed(ConnectFour):
    """Connect Four with a tree: the board is empty at first."""

    def starts(self):
        none = torch.zeros(1, dtype=torch.int64)
        return Board(stones=torch.zeros(1, 2, dtype=torch.int64), moves=none, result=none), torch.ones(1).double()


def test_a_stone_in_a_full_column_loses():
    worlds = dz.rl.Worlds(ConnectFour(rows=1, columns=4), 1, device="cpu", max_resets=0)
    worlds.reset()
    worlds.step(torch.tensor([2]))
    step = worlds.step(torch.tensor([2]))
    assert bool(step.terminated)
    assert worlds.state(0).result == 1
    assert ConnectFour(1, 4).draw(worlds.state(0)).shape == (16, 64, 3)
    with pytest.raises(dz.errors.InputError, match=r"rows=9, columns=7 take 70 bits"):
        ConnectFour(rows=9, columns=7)


def test_what_no_tree_is_made_of():
    with pytest.raises(dz.errors.ModelError, match=r"ConnectFour has no starts"):
        dz.rl.GameTree(ConnectFour())
    tree = dz.rl.GameTree(Kuhn())
    with pytest.raises(dz.errors.InputError, match=r"gave \(12, 2\), expected probabilities"):
        tree.value(torch.ones(12, 2), None)
    with pytest.raises(dz.errors.InputError, match=r"seat=2, expected 0 or 1"):
        tree.best_response(None, 2)
    for wrong, text in (("uniform", "a player is str"), (dz.rl.q_mlp(Kuhn(), (4,)), "a player is QNetwork")):
        with pytest.raises(dz.errors.InputError, match=text):
            tree.value(wrong, None)
    with pytest.raises(dz.errors.InputError, match="a player gave int, expected a tensor"):
        tree.value(lambda seen, open_: 1, None)
    with pytest.raises(dz.errors.InputError, match="second='other', expected a player"):
        tree.nash_conv(None, "other")
    for weights in ([0.0, 0.0], [-1.0, 2.0], [float("nan"), 1.0]):
        with pytest.raises(dz.errors.InputError, match="expected numbers of at least 0"):
            tree.average([None, None], weights)


@pytest.mark.slow
@pytest.mark.parametrize("game", [Kuhn(), Leduc(), ConnectFour()], ids=lambda game: type(game).__name__)
def test_the_authors_rules_hold(game):
    for env in (game, dz.rl.Against(game, [dz.rl.mlp(game, (8,))])):
        report = dz.check(env, steps=2)
        assert report.ok, str(report)
