"""Leduc poker: six cards, two rounds of bets, one public card (Southey et al., 2005)."""

import itertools
from typing import Any

import torch
from torch import Tensor

import denizen as dz

FOLD, CALL, RAISE = 0, 1, 2
RANKS = "JQK"
DEALS = list(itertools.permutations(range(6), 3))  # of both players and the table; a card's rank is card // 2
MOST = 4  # moves of one round
LETTERS = "fcr"


class Table(dz.State):
    """A hand.

    Attributes:
        cards: of the first player, the second one and the table, which is shown in the second round.
        moves: 0 none, else 1 + the move: a round has `MOST` places.
        stakes: what each player has put in.
        round: 0 or 1.
        number: of the next move in the round.
        raises: in the round.
        result: 0 going on, 1 over by the cards, 2 the first player gave up, 3 the second one did.
    """

    cards: Tensor = dz.count("deck")
    moves: Tensor = dz.count("moves")
    stakes: Tensor = dz.count("players")
    round: Tensor = dz.count()
    number: Tensor = dz.count()
    raises: Tensor = dz.count()
    result: Tensor = dz.count()


class Leduc(dz.rl.Game):
    """Fold (0), call or check (1), raise (2): two raises a round, by 2 in the first one and by 4 in the second."""

    most_replies = 2  # who answers the first round's last raise begins the second one

    action_space = dz.rl.Discrete(3)
    observation_space = dz.rl.Box(0, 1, (24,), torch.uint8)

    def init(self, rng: dz.rng.Rng) -> Table:
        """Three cards; each player has put in 1."""
        deal = rng.on("deals", 1).integers("deal", 0, len(DEALS))
        cards = torch.index_select(torch.tensor(DEALS, device=deal.device), 0, deal)[0]
        none = torch.zeros_like(cards[0])
        return Table(
            cards=cards,
            moves=torch.zeros(2 * MOST, dtype=torch.int64, device=deal.device),
            stakes=torch.ones(2, dtype=torch.int64, device=deal.device),
            round=none,
            number=none,
            raises=none,
            result=none,
        )

    def starts(self) -> tuple[Any, Tensor]:
        """All deals, each as likely."""
        cards = torch.tensor(DEALS)
        ones, none = torch.ones(len(DEALS), 2, dtype=torch.int64), torch.zeros(len(DEALS), dtype=torch.int64)
        start = Table(
            cards=cards,
            moves=torch.zeros(len(DEALS), 2 * MOST, dtype=torch.int64),
            stakes=ones,
            round=none,
            number=none,
            raises=none,
            result=none,
        )
        return start, torch.full((len(DEALS),), 1 / len(DEALS), dtype=torch.float64)

    def step(self, now: Table, action: Tensor, rng: dz.rng.Rng) -> Table:
        """One move; a call that answers ends the round, and the hand in the second round."""
        mover = now.number % 2
        mine = torch.arange(2, device=mover.device) == mover
        call, more = action == CALL, action == RAISE
        price = now.stakes.max() + torch.where(more, 2 * (1 + now.round), 0)
        stakes = torch.where(mine & (action != FOLD), price, now.stakes)
        place = torch.arange(2 * MOST, device=mover.device) == now.round * MOST + now.number
        closed = call & (now.number > 0)
        shown = closed & (now.round == 1)
        result = torch.where(action == FOLD, 2 + mover, torch.where(shown, 1, 0))
        return now.replace(
            moves=torch.where(place, 1 + action, now.moves),
            stakes=stakes,
            round=torch.where(closed, 1, now.round),
            number=torch.where(closed, 0, now.number + 1),
            raises=torch.where(closed, 0, now.raises + more),
            result=result,
        )

    def player(self, now: Table) -> Tensor:
        """The first player begins both rounds."""
        return now.number % 2

    def observe(self, now: Table) -> Tensor:
        """The own rank (3), that of the table (3), calls and raises by place (2 x 8), who moves (2): uint8 `[24]`."""
        ranks, mover = torch.arange(3, device=now.cards.device), self.player(now)
        mine = torch.where(mover == 0, now.cards[0], now.cards[1]) // 2
        table = (ranks == now.cards[2] // 2) & (now.round == 1)
        done = torch.cat([now.moves == 1 + CALL, now.moves == 1 + RAISE])
        return torch.cat([ranks == mine, table, done, ranks[:2] == mover]).to(torch.uint8)

    def action_mask(self, now: Table) -> Tensor:
        """Who has put in as much as the other one need not fold; after two raises there is no third."""
        behind, call = now.stakes[0] != now.stakes[1], torch.ones_like(now.round, dtype=torch.bool)
        return torch.stack([behind, call, now.raises < 2])

    def payoff(self, before: Table, now: Table) -> Tensor:
        """Of the whole hand where it is over: a pair with the table wins, else the higher rank; equals share."""
        rank = now.cards // 2
        worth = rank[:2] + 3 * (rank[:2] == rank[2])
        by_cards = torch.sign(worth[0] - worth[1])
        sign = torch.where(now.result == 1, by_cards, torch.where(now.result == 2, -1, 1))
        gain = torch.where(now.result == 0, 0, sign * now.stakes.min())
        return torch.stack([gain, -gain]).to(torch.float32)

    def terminated(self, now: Table) -> Tensor:
        """Somebody gave up, or the cards were shown."""
        return now.result > 0

    def draw(self, now: Table) -> list[str]:
        """Cards, stakes and moves."""
        one, other, table = (RANKS[int(card) // 2] for card in now.cards)
        rounds = ["".join(LETTERS[int(m) - 1] for m in part if m > 0) for part in now.moves.view(2, MOST)]
        return [
            f"cards: {one} {other}, table: {table if int(now.round) else '-'}",
            f"stakes: {int(now.stakes[0])} {int(now.stakes[1])}",
            f"moves: {rounds[0] or '-'} / {rounds[1] or '-'}",
        ]
