"""Connect Four on bits: a column has one more bit than rows, so that lines never run over an edge."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

import denizen as dz
from denizen.model import Kind, whole
from denizen.zoo._picture import BLUE, PAPER, RED, tiles

MOST_BITS = 62
LINE = 4
YELLOW = (230, 190, 60)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bits(Kind):
    """Up to 62 bits: int64."""

    name = "bits"
    dtype = torch.int64

    def fault(self, value: Any) -> Tensor:
        """Below 0."""
        return (value < 0).any()


class Board(dz.State):
    """Stones of each player as bits, how many there are, and the result: 0 none yet, 1 or 2 who has won, 3 drawn."""

    stones: Tensor = dataclasses.field(metadata={"kind": Bits(axes=("players",))})
    moves: Tensor = dz.count()
    result: Tensor = dz.count()


class ConnectFour(dz.rl.Game):
    """Drop a stone into a column; four in a line win. A stone in a full column loses the game.

    Attributes:
        rows: of the board.
        columns: of the board.
        openings: int64 `[positions, 2]`, stones of both players as bits, one of which is drawn for each game to begin
            with; `openings.random_openings` makes some. None: the empty board.
    """

    rows: int = 6
    columns: int = 7
    openings: Tensor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rows", "columns"):
            whole("ConnectFour", name, getattr(self, name), 1)
        if self.columns * (self.rows + 1) > MOST_BITS:
            raise dz.errors.InputError(
                f"ConnectFour: rows={self.rows}, columns={self.columns} take {self.columns * (self.rows + 1)} bits, "
                f"expected columns * (rows + 1) of at most {MOST_BITS}"
            )
        if self.openings is not None:
            self._check(self.openings)

    def _check(self, openings: Any) -> None:
        """Raise `InputError` where games cannot begin with these positions."""
        if not isinstance(openings, Tensor) or openings.dtype != torch.int64 or openings.shape[1:] != (2,):
            told = f"{openings.dtype} {list(openings.shape)}" if isinstance(openings, Tensor) else repr(openings)
            raise dz.errors.InputError(f"ConnectFour: openings is {told}, expected int64 [positions, 2]")
        height, (first, second) = self.rows + 1, openings.T
        bottom = sum(1 << column * height for column in range(self.columns))
        board, taken = bottom * ((1 << self.rows) - 1), first | second
        ahead = _count(first, height * self.columns) - _count(second, height * self.columns)
        faults = {
            "has a stone beside the board": ((first | second) & ~board) != 0,
            "has both players' stones in one cell": (first & second) != 0,
            "has a stone over a free cell": ((taken + bottom) & taken) != 0,
            "has stones that players who take turns from the first on do not have": (ahead != 0) & (ahead != 1),
            "is over": _lines(first, height) | _lines(second, height) | (taken == board),
        }
        if not len(openings):
            raise dz.errors.InputError("ConnectFour: openings is empty, expected one position at least, or None")
        for fault, there in faults.items():
            if there.any():
                raise dz.errors.InputError(f"ConnectFour: openings[{int(there.nonzero()[0])}] {fault}")

    @property
    def action_space(self) -> dz.rl.Discrete:
        """Columns."""
        return dz.rl.Discrete(self.columns)

    @property
    def observation_space(self) -> dz.rl.Box:
        """Stones of the one who moves, and of the other; the first row is the top."""
        return dz.rl.Box(0, 1, (2, self.rows, self.columns), torch.uint8)

    def init(self, rng: dz.rng.Rng) -> Board:
        """An empty board, or one of the openings."""
        drawn = rng.on("boards", 1)
        none = torch.zeros_like(drawn.integers("none", 0, 1)[0])
        if self.openings is None:
            return Board(stones=torch.stack([none, none]), moves=none, result=none)
        stones = self.openings.index_select(0, drawn.integers("opening", 0, len(self.openings)))[0]
        return Board(stones=stones, moves=_count(stones.sum(), self.columns * (self.rows + 1)), result=none)

    def step(self, now: Board, action: Tensor, rng: dz.rng.Rng) -> Board:
        """A stone of the one who moves."""
        mover, height = self.player(now).to(torch.int64), self.rows + 1
        bottom = torch.ones_like(action) << (action * height)
        column = bottom * ((1 << self.rows) - 1)
        taken = now.stones[0] | now.stones[1]
        stone = (taken + bottom) & column
        mine = torch.arange(2, device=mover.device) == mover
        stones = torch.where(mine, now.stones | stone, now.stones)
        own, moves = torch.where(mine, stones, 0).sum(), now.moves + 1
        full = moves == self.rows * self.columns
        decided = torch.where(_lines(own, height), 1 + mover, torch.where(full, 3, 0))
        result = torch.where(stone == 0, 2 - mover, decided)
        return now.replace(stones=stones, moves=moves, result=result)

    def player(self, now: Board) -> Tensor:
        """The players take turns."""
        return now.moves % 2

    def observe(self, now: Board) -> Tensor:
        """uint8 `[2, rows, columns]`: stones of the one who moves, and of the other."""
        planes = self._planes(now)
        return torch.where(self.player(now) == 0, planes, planes.flip(0))

    def _planes(self, now: Board) -> Tensor:
        device = now.stones.device
        row, column = torch.arange(self.rows - 1, -1, -1, device=device), torch.arange(self.columns, device=device)
        place = column * (self.rows + 1) + row[:, None]
        return ((now.stones[:, None, None] >> place) & 1).to(torch.uint8)

    def action_mask(self, now: Board) -> Tensor:
        """Columns that are not full; all when the game is over."""
        column = torch.arange(self.columns, device=now.stones.device)
        top = ((now.stones[0] | now.stones[1]) >> (column * (self.rows + 1) + self.rows - 1)) & 1
        return (top == 0) | (now.result > 0)

    def payoff(self, before: Board, now: Board) -> Tensor:
        """1 for the winner, -1 for the loser."""
        gain = torch.where(now.result == 1, 1.0, torch.where(now.result == 2, -1.0, 0.0))
        return torch.stack([gain, -gain])

    def terminated(self, now: Board) -> Tensor:
        """Somebody has won, or the board is full."""
        return now.result > 0

    def draw(self, now: Board) -> Tensor:
        """The first player's stones red, the second one's yellow."""
        first, second = self._planes(now)
        return tiles([(first + second == 0, PAPER), (first, RED), (second, YELLOW)], size=16, ground=BLUE)


def _lines(stones: Tensor, height: int) -> Tensor:
    """Whether bits have a line of four: upwards, to the right, or along a diagonal."""
    found = torch.zeros_like(stones)
    for shift in (1, height, height + 1, height - 1):
        pairs = stones & (stones >> shift)
        found = found | (pairs & (pairs >> 2 * shift))
    return found != 0


def _count(stones: Tensor, cells: int) -> Tensor:
    """How many of the lowest bits are set."""
    return ((stones[..., None] >> torch.arange(cells, device=stones.device)) & 1).sum(-1)
