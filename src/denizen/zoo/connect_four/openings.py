"""Positions of games under random moves, to begin games with or to judge policies by."""

from collections.abc import Iterator

import torch

from denizen.model import whole
from denizen.zoo.connect_four.model import Board, ConnectFour


def random_games(game: ConnectFour, games: int, generator: torch.Generator) -> Iterator[Board]:
    """Those of so many games that are not over after 0, 1, 2 … random moves."""
    none = torch.zeros(games, dtype=torch.int64)
    now = Board(stones=torch.zeros(games, 2, dtype=torch.int64), moves=none, result=none)
    while len(now.stones):
        yield now
        open_ = torch.vmap(game.action_mask)(now)
        move = torch.where(open_, torch.rand(open_.shape, generator=generator), -1.0).argmax(1)
        now = torch.vmap(lambda state, action: game.step(state, action, None))(now, move)  # type: ignore[arg-type]
        now = taken(now, torch.vmap(game.terminated)(now).logical_not().nonzero()[:, 0])


def random_openings(game: ConnectFour, count: int, most: int, seed: int = 0) -> torch.Tensor:
    """Positions of games under random moves, for `ConnectFour(openings=…)`.

    Args:
        game: of which size the board is.
        count: how many; they may be alike.
        most: stones; as many positions have none as have 1, 2 … `most`, as far as games last.
        seed: of the moves.

    Returns:
        Stones of both players as bits: int64 `[count, 2]`.

    Raises:
        InputError: `count` is no whole number from 1, or `most` none from 0.
    """
    count, most = whole("random_openings", "count", count, 1), whole("random_openings", "most", most, 0)
    generator, found = torch.Generator().manual_seed(seed), []
    for now in random_games(game, count, generator):
        found.append(now.stones)
        if len(found) > most:
            break
    parts = torch.arange(count).remainder(len(found)).bincount(minlength=len(found)).tolist()
    return torch.cat(
        [some[torch.randint(len(some), (num,), generator=generator)] for some, num in zip(found, parts, strict=True)]
    )


def taken(now: Board, index: torch.Tensor) -> Board:
    """Some of the boards."""
    return Board(stones=now.stones[index], moves=now.moves[index], result=now.result[index])
