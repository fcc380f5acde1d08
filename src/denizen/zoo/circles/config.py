"""Where the numbers of Circles come from."""

from typing import TYPE_CHECKING, Any

from denizen.model import number, whole
from denizen.space import Space
from denizen.zoo._contacts import check_params

if TYPE_CHECKING:
    from .model import Circles


def circles(
    num_agents: int = 1_000, *, density: float = 1.0, radius: float = 2.0, dims: int = 3, **params: Any
) -> "Circles":
    """Points in a closed cube, as many to a unit of volume as `density` says.

    The numbers are those of FLAMEGPU/FLAMEGPU2-circles-benchmark: three dimensions, density 1, radius 2, and thus 33.5
    points within the radius and 216 in the cells around, fewer at the sides.

    Args:
        num_agents: number of points.
        density: points to a unit of volume.
        radius: how far the force reaches.
        dims: 1, 2 or 3.
        **params: `push`.

    Raises:
        InputError: for an unknown parameter or a value that does not fit.
    """
    from .model import Circles

    check_params("circles", Circles, params)
    num, axes = whole("circles", "num_agents", num_agents, 1), whole("circles", "dims", dims, 1, 3)
    side = (num / number("circles", "density", density, above=0)) ** (1 / axes)
    return Circles(Space(size=(side,) * axes, torus=False), num_agents=num, radius=radius, **params)
