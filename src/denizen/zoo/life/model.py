"""Conway's Game of Life, and every rule of its kind, on a grid."""

import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError
from denizen.model import whole
from denizen.zoo._contacts import check_whole
from denizen.zoo._picture import INK, PAPER, tiles


class Cells(dz.State):
    """Which cells live."""

    live: Tensor = dz.mask("cells")


class Life(dz.Model):
    """A dead cell comes to life with `born` living neighbours, a living one lives on with `survive`; all at once.

    The start is `pattern`, or, where there is none, a soup in which each cell lives with probability `share`.
    """

    grid: dz.space.Grid
    share: Tensor = dz.param(0.37, low=0.0, high=1.0, learnable=False, about="share alive in a soup at the start")
    pattern: Tensor | None = None
    born: tuple[int, ...] = (3,)
    survive: tuple[int, ...] = (2, 3)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("born", "survive"):
            for near in getattr(self, name):
                whole("life", name, near, 0, 8)
        if self.pattern is not None and self.pattern.shape != (self.grid.num_cells,):
            raise InputError(
                f"life: pattern has shape {tuple(self.pattern.shape)}, expected ({self.grid.num_cells},), as the grid"
            )

    def fits(self, dt: float) -> None:
        """Refuse every length of a step but 1: a step is what happens in it."""
        check_whole("life", dt, "a step is a generation")

    @property
    def num_agents(self) -> int:
        """None: the cells are all there is."""
        return 0

    def init(self, rng: dz.rng.Rng) -> Cells:
        """The pattern, or a soup."""
        if self.pattern is None:
            return Cells(live=rng.on("cells", self.grid.num_cells).bernoulli("soup", self.share))
        return Cells(live=self.pattern)

    def step(self, now: Cells, rng: dz.rng.Rng) -> Cells:
        """One generation."""
        around = self.grid.sum(now.live)
        live = torch.where(now.live != 0, _one_of(around, self.survive), _one_of(around, self.born))
        return now.replace(live=live.to(torch.int8))

    @dz.series
    def living(self, now: Cells) -> Tensor:
        """Cells that live."""
        return now.live.sum()

    @dz.series
    def changed(self, before: Cells, now: Cells) -> Tensor:
        """Cells that came to life or died."""
        return (before.live != now.live).sum()

    def draw(self, now: Cells) -> Tensor:
        """The grid from above."""
        live = now.live.reshape(self.grid.shape)
        return tiles([(live, INK)], max(1, 240 // max(self.grid.shape)), PAPER)


def _one_of(count: Tensor, numbers: tuple[int, ...]) -> Tensor:
    found = torch.zeros_like(count, dtype=torch.bool)
    for number in numbers:
        found = found | (count == number)
    return found
