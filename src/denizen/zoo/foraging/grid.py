"""A torus of cells in bits: one plane for food, one for poison; and exactly uniform draws of empty cells.

A plane's row is int32 words of 32 columns. Beside the planes a count of taken cells for every row is kept, so that
the r-th empty cell is found in work of a row and a column, not of the whole torus.
"""

import dataclasses

import torch
from torch import Tensor

from denizen.model import Kind

WORD = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bits(Kind):
    """Words of 32 bits, any value: int32."""

    name = "bits"
    dtype = torch.int32

    def fault(self, value: Tensor) -> Tensor:
        """Never: every pattern is one."""
        return torch.zeros((), dtype=torch.bool, device=value.device)


def words_of(width: int) -> int:
    """Words in a row of a plane."""
    return -(-width // WORD)


def bit(column: Tensor) -> Tensor:
    """The bit of a column within its word: int32."""
    return torch.ones_like(column, dtype=torch.int32) << (column % WORD).to(torch.int32)


def cells(planes: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """0 or 1 for (plane, row, column): int32 `[2, rows, columns]`.

    Args:
        planes: int32 `[2, height, words]`.
        rows: int64 `[rows]`.
        columns: int64 `[columns]`.
    """
    words = planes[:, rows[:, None], (columns // WORD)[None, :]]
    return (words >> (columns % WORD).to(torch.int32)) & 1


def windows(planes: Tensor, rows: Tensor, columns: Tensor, width: int) -> Tensor:
    """Bits of neighbouring columns of some rows, the first column lowest: int32 `[2, rows]`.

    Args:
        planes: int32 `[2, height, words]`.
        rows: int64 `[rows]`.
        columns: int64 `[columns]`, up to 31, each the one after the last, on the torus.
        width: columns of the torus.
    """
    if width % WORD:  # rows that end within a word: bit by bit
        place = torch.arange(columns.shape[0], dtype=torch.int32, device=planes.device)
        return (cells(planes, rows, columns) << place).sum(-1, dtype=torch.int32)
    first = columns[0] // WORD
    pair = torch.stack([first, (first + 1) % planes.shape[2]])
    low, high = planes[:, rows[:, None], pair[None, :]].unbind(-1)
    shift = (columns[0] % WORD).to(torch.int32)
    kept = ~(-2 << (31 - shift))  # a shift to the right copies the sign into bits that are not the word's
    joined = ((low >> shift) & kept) | ((high << 1) << (31 - shift))
    return joined & ((1 << columns.shape[0]) - 1)


def flipped(planes: Tensor, plane: Tensor, row: Tensor, column: Tensor, sign: Tensor) -> Tensor:
    """Planes with cells set (sign 1), cleared (-1) or left (0): in each case the cell must be in the other state.

    Args:
        planes: int32 `[2, height, words]`.
        plane: int64 `[changes]`; `row`, `column` and `sign` likewise.
        row: int64.
        column: int64.
        sign: int32.
    """
    height, width = planes.shape[1:]
    place = (plane * height + row) * width + column // WORD
    return planes.flatten().scatter_add(0, place, bit(column) * sign).unflatten(0, (2, height, width))


def draw_empty(planes: Tensor, taken: Tensor, width: int, word: Tensor, y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """(row, column) of a uniformly drawn empty cell other than (y, x): the one of a drawn rank.

    Args:
        planes: int32 `[2, height, words]`.
        taken: int64 `[height]`: cells with an item, in each row.
        width: columns.
        word: int64 `[]`: uniform on 0 … 2^31 - 1; the bias is below cells / 2^31.
        y: row of a cell to leave out, which does not count as taken; -1: none.
        x: its column.
    """
    height = planes.shape[1]
    rows = torch.arange(height, device=planes.device)
    columns = torch.arange(width, device=planes.device)
    upto = (width - taken - (rows == y).to(torch.int64)).cumsum(0)
    rank = (word * upto[-1]) >> 31
    row = (upto <= rank).sum()
    before = torch.where(rows == row - 1, upto, 0).sum()
    words = planes.gather(1, row.expand(2, 1, planes.shape[2]))
    items = ((words[0, 0] | words[1, 0])[:, None] >> torch.arange(WORD, dtype=torch.int32, device=planes.device)) & 1
    empty = (items.flatten()[:width] == 0) & ~((row == y) & (columns == x))
    column = (empty.cumsum(0) <= rank - before).sum()
    return row, column


def scattered(order: Tensor, foods: Tensor, poisons: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """(planes, cells taken in each row int64 `[height]`): food on the first different cells of an order, then poison.

    Args:
        order: int64 `[draws]`: cells, row by row; repeated ones are passed over.
        foods: int64 `[]`.
        poisons: int64 `[]`.
        height: rows.
        width: columns.
    """
    ordered, index = order.sort(stable=True)
    repeated = torch.cat([torch.zeros_like(ordered[:1], dtype=torch.bool), ordered[1:] == ordered[:-1]])
    new = torch.zeros_like(repeated).scatter(0, index, ~repeated)
    rank = new.cumsum(0) - 1
    food, poison = new & (rank < foods), new & (rank >= foods) & (rank < foods + poisons)
    row, column = order // width, order % width
    place = (poison.to(torch.int64) * height + row) * words_of(width) + column // WORD
    value = bit(column) * (food | poison)
    planes = torch.zeros(2 * height * words_of(width), dtype=torch.int32, device=order.device)
    planes = planes.scatter_add(0, place, value).unflatten(0, (2, height, words_of(width)))
    taken = torch.zeros(height, dtype=torch.int64, device=order.device)
    return planes, taken.scatter_add(0, row, (food | poison).to(torch.int64))


def draws_for(items: int, cells: int) -> int:
    """Draws of cells that hold `items` different ones, except in at most one of 10^12 worlds.

    Repetitions are about Poisson with mean items^2 / (2 cells); twice that and 50 more are drawn.
    """
    return items + items * items // cells + 50
