"""Where the numbers of Boids come from."""

from typing import TYPE_CHECKING, Any

from denizen.model import number, whole
from denizen.space import Space
from denizen.zoo._contacts import check_params

if TYPE_CHECKING:
    from .model import Boids

LARGE = (400, 150.0)  # birds on a square of that side: the large flock of JuliaDynamics/ABMFrameworksComparison


def boids(num_agents: int = LARGE[0], *, radius: float = 15.0, side: float | None = None, **params: Any) -> "Boids":
    """Birds on a square torus, at the density of the large flock of JuliaDynamics/ABMFrameworksComparison.

    The numbers are its DECLARATION.md's: speed 1, separation 1, cohere 0.03, separate 0.015, match 0.05. Its large
    flock has 400 birds on 150 x 150 that see 15 far, its small one is ``boids(200, side=100, radius=5)``.

    Args:
        num_agents: number of birds.
        radius: how far they see.
        side: of the square; default: as large as the density takes.
        **params: `cohere`, `separate`, `match`, `separation`, `speed`.

    Raises:
        InputError: for an unknown parameter or a value that does not fit.
    """
    from .model import Boids

    check_params("boids", Boids, params)
    num = whole("boids", "num_agents", num_agents, 1)
    birds, large = LARGE
    length = large * (num / birds) ** 0.5 if side is None else number("boids", "side", side, above=0)
    return Boids(Space(size=(length, length)), num_agents=num, radius=radius, **params)
