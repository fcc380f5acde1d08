"""A forest fire on a grid: it burns its way from the left side through the trees that touch."""

import torch
from torch import Tensor

import denizen as dz
from denizen.zoo._contacts import check_whole
from denizen.zoo._picture import GREEN, INK, PAPER, RED, tiles

LEVELS = ("bare", "tree", "burning", "ash")


class Forest(dz.State):
    """What stands in each cell."""

    stage: dz.model.Stage = dz.stage("cells", levels=LEVELS)


class ForestFire(dz.Model):
    """A tree catches fire a step after a neighbour did, and burns for one step. Trees of the left column burn first.

    What burns in the end are the trees joined to the left side, as in site percolation.
    """

    grid: dz.space.Grid
    density: Tensor = dz.param(0.6, low=0.0, high=1.0, learnable=False, about="share of cells with a tree")

    def fits(self, dt: float) -> None:
        """Refuse every length of a step but 1: a step is what happens in it."""
        check_whole("forest_fire", dt, "fire goes from tree to tree once in a step")

    @property
    def num_agents(self) -> int:
        """None: the cells are all there is."""
        return 0

    def init(self, rng: dz.rng.Rng) -> Forest:
        """Trees at random, those of the left column on fire."""
        trees = rng.on("cells", self.grid.num_cells).bernoulli("trees", self.density).to(torch.int8)
        return Forest(stage=dz.model.Stage(trees * (1 + self._column(0, trees.device)), LEVELS))

    def step(self, now: Forest, rng: dz.rng.Rng) -> Forest:
        """The fire goes on to the neighbours."""
        burning = now.stage.is_("burning")
        reached = self.grid.any(burning)
        stage = now.stage.move(burning, "ash", source="burning")
        return now.replace(stage=stage.move(reached, "burning", source="tree"))

    def _column(self, number: int, device: torch.device) -> Tensor:
        """Mask int8 `[cells]` of a column; -1 for the last."""
        rows, columns = self.grid.shape
        line = torch.arange(columns, device=device) == number % columns
        return line.to(torch.int8).expand(rows, columns).reshape(-1)

    @dz.series
    def burning(self, now: Forest) -> Tensor:
        """Cells on fire."""
        return now.stage.is_("burning").sum()

    @dz.series
    def burnt(self, now: Forest) -> Tensor:
        """Share of the trees that burn or are ash."""
        lost = now.stage.is_("burning", "ash").sum()
        return lost / (lost + now.stage.is_("tree").sum()).clamp(min=1)

    @dz.series
    def crossed(self, now: Forest) -> Tensor:
        """1 once the fire has reached the right column."""
        lost = now.stage.is_("burning", "ash")
        return (lost * self._column(-1, lost.device)).sum().clamp(max=1)

    def draw(self, now: Forest) -> Tensor:
        """The forest from above."""
        colours = {"bare": PAPER, "tree": GREEN, "burning": RED, "ash": INK}
        planes = [(now.stage.is_(level).reshape(self.grid.shape), colour) for level, colour in colours.items()]
        return tiles(planes, max(1, 240 // max(self.grid.shape)))
