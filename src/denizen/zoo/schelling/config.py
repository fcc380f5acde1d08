"""The two sizes at which frameworks are compared, and the checks of what makes no town."""

from typing import TYPE_CHECKING

from denizen.space import Grid

if TYPE_CHECKING:
    from .model import Schelling

LARGE = {"rows": 100, "columns": 100, "num_agents": 8_000, "radius": 2, "need": 8}


def schelling(
    rows: int = 40, columns: int = 40, *, num_agents: int = 1_000, radius: int = 1, need: int = 3, torus: bool = False
) -> "Schelling":
    """The model on a grid; the defaults are the small case of JuliaDynamics' ABMFrameworksComparison.

    `LARGE` holds the large one: ``schelling(**LARGE)``.

    Args:
        rows: of the grid.
        columns: of the grid.
        num_agents: how many live there, the two groups equally large; one fits into a cell.
        radius: how far neighbours live, along both axes.
        need: neighbours of one's own group without whom one moves.
        torus: whether the grid has no sides.

    Raises:
        InputError: for a grid without room, or a wish that no neighbourhood can meet.
    """
    from .model import Schelling

    grid = Grid((rows, columns), torus=torus, radius=radius)
    return Schelling(grid, num_agents=num_agents, need=need)
