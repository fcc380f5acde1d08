"""Sizes of the roads, and what theory says of the flow."""

import math
from typing import TYPE_CHECKING, Any

from denizen.model import whole
from denizen.space import Grid
from denizen.zoo._contacts import check_params

if TYPE_CHECKING:
    from .model import Traffic


def traffic(*, roads: int = 60, cells: int = 120, max_speed: int = 5, **params: Any) -> "Traffic":
    """Ring roads side by side.

    Args:
        roads: how many, each on its own.
        cells: of a road, each as long as a car with its distance: 7.5 m.
        max_speed: cells in a step.
        **params: `density`, `dawdle`.

    Raises:
        InputError: for an unknown parameter or a value that does not fit.
    """
    from .model import Traffic

    check_params("traffic", Traffic, params)
    max_speed = whole("traffic", "max_speed", max_speed, 1, 127)
    shape = (whole("traffic", "roads", roads, 3), whole("traffic", "cells", cells, max(3, max_speed + 1)))
    return Traffic(Grid(shape), max_speed=max_speed, **params)


def flow_without_dawdling(density: float, max_speed: int) -> float:
    """Cars that pass a place in a step when nobody dawdles, once jams have dissolved (Nagel and Herrmann 1993)."""
    return min(density * max_speed, 1 - density)


def flow_of_slow_cars(density: float, dawdle: float) -> float:
    """The same for a largest speed of 1, exact on a long road (Schreckenberg et al., Phys. Rev. E 51, 2939, 1995)."""
    return (1 - math.sqrt(1 - 4 * (1 - dawdle) * density * (1 - density))) / 2
