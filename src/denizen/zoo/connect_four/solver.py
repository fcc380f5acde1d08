"""Connect Four played exactly: alpha-beta over bits, with moves in order of threats and a table of positions seen.

The ideas are published (Tromp's layout of bits; Pons, *Solving Connect 4*, 2015), the code is denizen's. Needs numba.
A position of 20 stones takes milliseconds, the empty board of 7 x 6 minutes.

A score is 0 for a draw, n where the one who moves wins with its n-th last stone (1: the last one that it would have),
and -n where the other one does. Larger is better: sooner wins, later losses.
"""

import numpy as np
import torch
from torch import Tensor

from denizen.errors import need
from denizen.zoo.connect_four.model import Board, ConnectFour

need("numba", "fast", "solve Connect Four")

from denizen.ops.for_numba import jit  # noqa: E402  # once it is known that there is numba

CLOSED = -127  # the score of a full column
TABLE = 2**22 + 15  # positions in the table; odd, so that the bits of all columns count


@jit
def _winning(own, taken, board, height):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Free cells that would make a line of four, whether they can be reached or not."""
    found = (own << 1) & (own << 2) & (own << 3)
    for shift in (height, height - 1, height + 1):
        pair = (own << shift) & (own << 2 * shift)
        found |= pair & (own << 3 * shift)
        found |= pair & (own >> shift)
        pair = (own >> shift) & (own >> 2 * shift)
        found |= pair & (own << shift)
        found |= pair & (own >> 3 * shift)
    return found & (board ^ taken)


@jit
def _count(bits):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    found = 0
    while bits:
        bits &= bits - 1
        found += 1
    return found


@jit
def _safe(own, taken, board, bottom, height):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Moves after which the other one cannot win at once."""
    possible = (taken + bottom) & board
    threats = _winning(own ^ taken, taken, board, height)
    forced = possible & threats
    if forced:
        if forced & (forced - 1):
            return forced & 0
        possible = forced
    return possible & ~(threats >> 1)


@jit
def _ordered(own, taken, possible, board, columns, height):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """(moves, those that make most threats last; how many)."""
    order = np.empty(columns, dtype=np.int64)
    threats = np.empty(columns, dtype=np.int64)
    count = 0
    for number in range(columns - 1, -1, -1):  # from the edges inwards: the last one is first among equals
        column = columns // 2 + (1 - 2 * (number % 2)) * (number + 1) // 2
        move = possible & (((1 << (height - 1)) - 1) << (column * height))
        if move == 0:
            continue
        made = _count(_winning(own | move, taken | move, board, height))
        at = count
        while at and threats[at - 1] > made:
            order[at], threats[at] = order[at - 1], threats[at - 1]
            at -= 1
        order[at], threats[at] = move, made
        count += 1
    return order, count


@jit
def _search(own, taken, moves, low, high, sizes, keys, values):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """The score within (low, high), where nobody who moves now can win at once; a bound of it outside."""
    board, bottom, columns, height = sizes[0], sizes[1], sizes[2], sizes[3]
    cells = columns * (height - 1)
    possible = _safe(own, taken, board, bottom, height)
    if possible == 0:
        return -((cells - moves) // 2)
    if moves >= cells - 2:
        return 0
    least = -((cells - 2 - moves) // 2)
    if low < least:
        low = least
        if low >= high:
            return low
    most = (cells - 1 - moves) // 2
    key = own + taken
    place = key % len(keys)
    if keys[place] == key:
        most = min(most, values[place])
    if high > most:
        high = most
        if low >= high:
            return high
    order, count = _ordered(own, taken, possible, board, columns, height)
    for number in range(count - 1, -1, -1):
        move = order[number]
        score = -_search(own ^ taken, taken | move, moves + 1, -high, -low, sizes, keys, values)
        if score >= high:
            return score
        low = max(low, score)
    keys[place], values[place] = key, low
    return low


@jit
def _score(own, taken, sizes, keys, values, weak):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """The score of a position that is not over; its sign alone where `weak`."""
    board, bottom, columns, height = sizes[0], sizes[1], sizes[2], sizes[3]
    cells, moves = columns * (height - 1), _count(taken)
    if (taken + bottom) & board & _winning(own, taken, board, height):
        return 1 if weak else (cells + 1 - moves) // 2
    low, high = -((cells - moves) // 2), (cells + 1 - moves) // 2
    if weak:
        low, high = max(low, -1), min(high, 1)
    while low < high:  # windows of width 1, which the table serves best
        middle = low + (high - low) // 2
        if middle <= 0 and low // 2 < middle:
            middle = -(-low // 2)
        elif middle >= 0 and high // 2 > middle:
            middle = high // 2
        if middle >= high:
            middle = high - 1
        found = _search(own, taken, moves, middle, middle + 1, sizes, keys, values)
        if found <= middle:
            high = found
        else:
            low = found
    return max(-1, min(low, 1)) if weak else low


@jit
def _scores(own, taken, sizes, keys, values, weak, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Of each move of each position."""
    board, bottom, columns, height = sizes[0], sizes[1], sizes[2], sizes[3]
    cells = columns * (height - 1)
    for row in range(len(own)):
        possible = (taken[row] + bottom) & board
        winning = possible & _winning(own[row], taken[row], board, height)
        moves = _count(taken[row])
        for column in range(columns):
            move = possible & (((1 << (height - 1)) - 1) << (column * height))
            if move == 0:
                out[row, column] = CLOSED
            elif move & winning:
                out[row, column] = 1 if weak else (cells + 1 - moves) // 2
            elif moves + 1 == cells:
                out[row, column] = 0
            else:
                out[row, column] = -_score(own[row] ^ taken[row], taken[row] | move, sizes, keys, values, weak)


class Solver:
    """Exact scores of a board's positions.

    ```python
    solver = Solver(ConnectFour(rows=4, columns=5))
    solver.score(worlds.state())  # int8 [worlds]
    ```

    Attributes:
        game: of which size the board is.
    """

    def __init__(self, game: ConnectFour) -> None:
        """Args:
        game: of which size the board is.
        """
        self.game = game
        height, columns = game.rows + 1, game.columns
        bottom = sum(1 << column * height for column in range(columns))
        board = bottom * ((1 << game.rows) - 1)
        self._sizes = np.array([board, bottom, columns, height], dtype=np.int64)
        self._tables = [self._table(), self._table()]  # bounds of signs are none of scores

    @staticmethod
    def _table() -> tuple[np.ndarray, np.ndarray]:
        return np.full(TABLE, -1, dtype=np.int64), np.zeros(TABLE, dtype=np.int64)

    def scores(self, now: Board, *, weak: bool = False) -> Tensor:
        """Scores of the moves in positions that are not over: int8 `[positions, columns]`, `CLOSED` for full columns.

        Args:
            now: positions, along a leading axis.
            weak: signs only, which is faster.
        """
        own, taken = self._bits(now)
        out = np.zeros((len(own), int(self._sizes[2])), dtype=np.int8)
        _scores(own, taken, self._sizes, *self._tables[weak], weak, out)
        return torch.from_numpy(out)

    def score(self, now: Board, *, weak: bool = False) -> Tensor:
        """Scores of positions that are not over, for the one who moves: int8 `[positions]`; as `scores` takes them."""
        own, taken = self._bits(now)
        found = [_score(*pair, self._sizes, *self._tables[weak], weak) for pair in zip(own, taken, strict=True)]
        return torch.tensor(found, dtype=torch.int8)

    @staticmethod
    def _bits(now: Board) -> tuple[np.ndarray, np.ndarray]:
        """(stones of those who move, all stones)."""
        stones = now.stones.detach().cpu().numpy()
        mover = (now.moves % 2).cpu().numpy().astype(np.int64)
        return np.take_along_axis(stones, mover[:, None], 1)[:, 0].copy(), stones[:, 0] | stones[:, 1]
