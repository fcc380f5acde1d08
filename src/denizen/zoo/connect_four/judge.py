"""How often a policy's moves are right, by the exact solver."""

import itertools
from typing import NamedTuple

import torch

from denizen.errors import CapacityError
from denizen.rl import ActorCritic
from denizen.zoo.connect_four.model import Board, ConnectFour
from denizen.zoo.connect_four.openings import random_games, taken
from denizen.zoo.connect_four.solver import CLOSED, Solver

MOST_GAMES = 2**20


class Agreement(NamedTuple):
    """Shares of positions.

    Attributes:
        right: the likeliest move keeps what the position is worth: a win, a draw or a loss.
        decisive: the same, of positions in which some open move does not.
        by_chance: the same as `decisive`, for a move that is drawn among the open ones.
        best: the likeliest move has the best score: the soonest win or the latest loss.
        positions: how many there were.
        num_decisive: of them.
    """

    right: float
    decisive: float
    by_chance: float
    best: float
    positions: int
    num_decisive: int


def late_positions(game: ConnectFour, stones: int, count: int, seed: int = 0) -> Board:
    """Positions with so many stones that are not over, all different, from games under random moves.

    Raises:
        CapacityError: so many were not found.
    """
    generator, games = torch.Generator().manual_seed(seed), 4 * count
    while games <= MOST_GAMES:
        now = next(itertools.islice(random_games(game, games, generator), stones, None), None)
        if now is not None:
            found, place = torch.unique(now.stones, dim=0, return_inverse=True)
            if len(found) >= count:
                first = torch.full((len(found),), len(place)).scatter_reduce(0, place, torch.arange(len(place)), "amin")
                return taken(now, first.sort().values[:count])
        games *= 4
    raise CapacityError(f"late_positions: fewer than {count} positions with {stones} stones in {games // 4} games")


def agreement(policy: ActorCritic, solver: Solver, now: Board) -> Agreement:
    """How often the likeliest moves of a policy are right in positions that are not over."""
    game, device = solver.game, policy.actor.weight.device
    seen, open_ = torch.vmap(game.observe)(now), torch.vmap(game.action_mask)(now)
    with torch.no_grad():
        memory = policy.first_memory(len(seen), device)
        move = policy(seen.to(device), memory, open_.to(device), actor_only=True).actions.mode().cpu()
    scores = solver.scores(now).to(torch.int64)
    top = scores.max(1, keepdim=True).values
    keeps = (scores.sign() == top.sign()) & (scores != CLOSED)
    kept, best = (table.gather(1, move[:, None])[:, 0] for table in (keeps, scores == top))
    decisive = (open_ & ~keeps).any(1)
    chance = (keeps.sum(1) / open_.sum(1))[decisive]
    right, sure, drawn, top_move = (float(part.double().mean()) for part in (kept, kept[decisive], chance, best))
    return Agreement(right, sure, drawn, top_move, len(seen), int(decisive.sum()))
