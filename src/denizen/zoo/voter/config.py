"""The grid that voters live on unless they are given a graph, and what theory says of them."""

import math
from typing import TYPE_CHECKING, Any

from denizen.model import whole
from denizen.space import Grid
from denizen.zoo._contacts import check_params

if TYPE_CHECKING:
    from .model import Voter


def voter(*, rows: int = 60, columns: int = 60, **params: Any) -> "Voter":
    """Voters on a torus, each with four neighbours. On a graph: `Voter(graph)`.

    Args:
        rows: of the grid.
        columns: of the grid.
        **params: `rate`, `share`.

    Raises:
        InputError: for an unknown parameter or a value that does not fit.
    """
    from .model import Voter

    check_params("voter", Voter, params)
    shape = (whole("voter", "rows", rows, 3), whole("voter", "columns", columns, 3))
    return Voter(Grid(shape, neighbours="von_neumann"), **params)


def steps_to_consensus(voters: int, share: float, rate: float, dt: float = 1.0) -> float:
    """Mean time until all agree where everybody is a neighbour of everybody, in units of time, for many voters.

    Of the diffusion of the share x, whose variance grows by a (2 - a) x (1 - x) / voters in a step, where a is the
    probability to ask in a step: T = -2 voters (x ln x + (1 - x) ln(1 - x)) / (a (2 - a)) steps.
    """
    asks = -math.expm1(-rate * dt)
    entropy = -share * math.log(share) - (1 - share) * math.log1p(-share)
    return 2 * voters * entropy / (asks * (2 - asks)) * dt


def discord_on_square(time: float) -> float:
    """Share of neighbours who disagree on a large square lattice, from opinions at random, for long times.

    With rate 1 (Frachebourg and Krapivsky, Phys. Rev. E 53, R3009, 1996): pi / (2 ln t + ln 256).
    """
    return math.pi / (2 * math.log(time) + math.log(256))
