"""Kuhn poker: three cards, one bet (Kuhn, 1950)."""

from typing import Any

import torch
from torch import Tensor

import denizen as dz

CARDS = "JQK"
DEALS = [(one, other) for one in range(3) for other in range(3) if one != other]
HISTORIES = ("", "p", "b", "pb", "pp", "bp", "bb", "pbp", "pbb")  # p: pass, b: bet; a game is over from "pp" on
NEXT = [[HISTORIES.index(h + a) if h + a in HISTORIES else k for a in "pb"] for k, h in enumerate(HISTORIES)]
DECISIONS = 4  # the first histories, in which somebody moves
MOVER = [len(history) % 2 for history in HISTORIES]
STAKE = [0, 0, 0, 0, 1, 1, 2, 1, 2]  # what the loser pays
FOLDS = [0, 0, 0, 0, 0, 1, 0, -1, 0]  # 1: the second player gave up, -1: the first one did


class Hand(dz.State):
    """The players' cards, 0 to 2, and what was done, a place in `HISTORIES`."""

    cards: Tensor = dz.count("players")
    history: Tensor = dz.count()


class Kuhn(dz.rl.Game):
    """Pass (0) or bet (1); a pass after a bet gives up, a bet after a bet shows the cards."""

    action_space = dz.rl.Discrete(2)
    observation_space = dz.rl.Box(0, 1, (7,), torch.uint8)

    def init(self, rng: dz.rng.Rng) -> Hand:
        """A card for each player."""
        deal = rng.on("deals", 1).integers("deal", 0, len(DEALS))[0]
        return Hand(cards=_at(DEALS, deal), history=torch.zeros_like(deal))

    def starts(self) -> tuple[Any, Tensor]:
        """All deals, each as likely."""
        count = len(DEALS)
        start = Hand(cards=torch.tensor(DEALS), history=torch.zeros(count, dtype=torch.int64))
        return start, torch.full((count,), 1 / count, dtype=torch.float64)

    def step(self, now: Hand, action: Tensor, rng: dz.rng.Rng) -> Hand:
        """The history becomes longer."""
        return now.replace(history=_at(_at(NEXT, now.history), action))

    def player(self, now: Hand) -> Tensor:
        """The players take turns."""
        return _at(MOVER, now.history)

    def observe(self, now: Hand) -> Tensor:
        """The own card (3) and the history (4), one of each 1: uint8 `[7]`."""
        places = torch.arange(3, device=now.cards.device), torch.arange(DECISIONS, device=now.cards.device)
        mine = _at(now.cards, self.player(now))
        return torch.cat([places[0] == mine, places[1] == now.history]).to(torch.uint8)

    def payoff(self, before: Hand, now: Hand) -> Tensor:
        """Of the whole game where it is over."""
        higher = torch.where(now.cards[0] > now.cards[1], 1, -1)
        folds = _at(FOLDS, now.history)
        gain = torch.where(folds == 0, higher, folds) * _at(STAKE, now.history)
        return torch.stack([gain, -gain]).to(torch.float32)

    def terminated(self, now: Hand) -> Tensor:
        """Both passed, one gave up, or both bet."""
        return now.history >= DECISIONS

    def draw(self, now: Hand) -> list[str]:
        """Both cards and the history."""
        done = " ".join("pass" if a == "p" else "bet" for a in HISTORIES[int(now.history)])
        return [f"cards: {' '.join(CARDS[int(card)] for card in now.cards)}", f"moves: {done or '-'}"]


def _at(table: Any, place: Tensor) -> Tensor:
    """The row of a table at a place int64 `[]`."""
    table = torch.as_tensor(table, device=place.device)
    return torch.index_select(table, 0, place.reshape(1).to(torch.int64))[0]
