"""The solver of Connect Four against known values of small boards and a plain search over the world's own steps."""

import functools

import pytest
import torch

import denizen as dz
from denizen.zoo.connect_four import Board, ConnectFour

pytest.importorskip("numba")

from denizen.zoo.connect_four.judge import agreement, late_positions
from denizen.zoo.connect_four.solver import CLOSED, Solver


def empty():
    none = torch.zeros(1, dtype=torch.int64)
    return Board(stones=torch.zeros(1, 2, dtype=torch.int64), moves=none, result=none)


# Tromp's table of small boards: the first player's result, by rows and columns.
@pytest.mark.parametrize(
    ("rows", "columns", "sign"), [(4, 4, 0), (4, 5, 0), (5, 4, 0), (5, 5, 0), (4, 6, -1), (6, 4, 0)]
)
def test_values_of_small_boards(rows, columns, sign):
    solver = Solver(ConnectFour(rows=rows, columns=columns))
    assert int(solver.score(empty())[0].sign()) == int(solver.score(empty(), weak=True)[0]) == sign


def lines(rows, columns):
    """All lines of four, as cells (column, row)."""
    steps = ((1, 0), (0, 1), (1, 1), (1, -1))
    starts = [(c, r, dc, dr) for c in range(columns) for r in range(rows) for dc, dr in steps]
    found = [[(c + k * dc, r + k * dr) for k in range(4)] for c, r, dc, dr in starts]
    return [line for line in found if all(0 <= c < columns and 0 <= r < rows for c, r in line)]


def plainly(rows, columns):
    """Scores of moves by search over lists of columns; no bits, no bounds."""
    every = lines(rows, columns)

    @functools.cache
    def score(board):
        stones = sum(len(column) for column in board)
        best = None
        for place in range(columns):
            value = of_move(board, place, stones)
            if value is not None and (best is None or value > best):
                best = value
        return best

    def of_move(board, place, stones):
        if len(board[place]) == rows:
            return None
        mover = "XO"[stones % 2]
        new = (*board[:place], board[place] + mover, *board[place + 1 :])
        row = len(board[place])
        for line in every:
            if (place, row) in line and all(len(new[c]) > r and new[c][r] == mover for c, r in line):
                return (rows * columns + 1 - stones) // 2
        return 0 if stones + 1 == rows * columns else -score(new)

    def moves(board):
        stones = sum(len(column) for column in board)
        found = [of_move(board, place, stones) for place in range(columns)]
        return [CLOSED if value is None else value for value in found]

    return moves


def board_of(now, place, game):
    """Columns as texts, from the bottom up."""
    height, (first, second) = game.rows + 1, now.stones[place].tolist()
    at = [[c * height + r for r in range(game.rows)] for c in range(game.columns)]
    return tuple("".join("X" if first >> b & 1 else "O" for b in bits if (first | second) >> b & 1) for bits in at)


@pytest.mark.parametrize(("rows", "columns", "stones"), [(4, 5, 10), (6, 7, 31), (6, 7, 36), (4, 6, 15)])
def test_late_positions_against_a_plain_search(rows, columns, stones):
    game = ConnectFour(rows=rows, columns=columns)
    now, search = late_positions(game, stones, 12), plainly(rows, columns)
    wanted = torch.tensor([search(board_of(now, place, game)) for place in range(12)])
    solver = Solver(game)
    assert torch.equal(solver.scores(now).long(), wanted)
    assert torch.equal(solver.score(now).long(), wanted.max(1).values)
    signs = torch.where(wanted == CLOSED, wanted, wanted.sign())
    assert torch.equal(solver.scores(now, weak=True).long(), signs)
    assert len({tuple(row) for row in now.stones.tolist()}) == 12
    policy = dz.rl.mlp(game, (8,))
    found = agreement(policy, solver, now)
    seen, open_ = torch.vmap(game.observe)(now), torch.vmap(game.action_mask)(now)
    move = policy(seen, policy.first_memory(12, seen.device), open_).actions.mode()
    assert found.best == pytest.approx(
        float((wanted.gather(1, move[:, None])[:, 0] == wanted.max(1).values).float().mean())
    )
    assert 0 <= found.by_chance <= 1
    assert found.best <= found.right
