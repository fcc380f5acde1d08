"""Positions of games under random moves, to begin games with or to judge policies by."""

from collections.abc import Iterator

import torch

from denizen.zoo.connect_four.model import Board, ConnectFour


def random_games(game: ConnectFour, games: int, generator: torch.Generator) -> Iterator[Board]:
    """Those of so many games that are not over after 0, 1, 2 … random moves."""
    none = torch.zeros(games, dtype=torch.int64)
    now = Board(stones=torch.zeros(games, 2, dtype=torch.int64), moves=none, result=none)
    while len(now.stones):
        yield now
        open_ = torch.vmap(game.action_mask)(now).to(torch.float32)
        move = torch.multinomial(open_, 1, generator=generator)[:, 0]
        now = torch.vmap(lambda state, action: game.step(state, action, None))(now, move)  # type: ignore[arg-type]
        now = taken(now, torch.vmap(game.terminated)(now).logical_not().nonzero()[:, 0])


def random_openings(game: ConnectFour, count: int, most: int, seed: int = 0) -> torch.Tensor:
    """Stones of `count` positions, int64 `[count, 2]`: as many with no stone as with 1, 2 … `most`, while games last."""
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
