"""Where the model's numbers come from, and how it is bound to contacts."""

from typing import TYPE_CHECKING, Any

from denizen.population import Population
from denizen.space import EdgeList, Graph, Grid, Layers, Mixing
from denizen.zoo._contacts import bound, check_params

if TYPE_CHECKING:
    from .model import Strains


def strains(
    contacts: Graph | Layers | Mixing | Grid | EdgeList | Population,
    *,
    network: str = "0",
    symmetrize: bool = False,
    arrival_day: float = 100.0,
    **params: Any,
) -> "Strains":
    """Two strains on a contact network.

    The defaults are round numbers and stand for no disease in particular. The second strain spreads less well, and
    coexists with the first as long as the first protects from it by less than a threshold; see README.md.

    Args:
        contacts: a graph, several as `Layers`, a `Mixing`, a grid, an edge list, or a population with a network.
        network: which network of a population.
        symmetrize: add the opposite direction of every contact of a population's network.
        arrival_day: day on which the second strain arrives; 0 for the start.
        **params: `infect_rate`, `infectious_days`, `immune_days`, `protection`, `seed_share`.

    Raises:
        InputError: for an unknown parameter or a value that does not fit.
    """
    from .model import Strains

    check_params("strains", Strains, params)
    graph = bound("strains", contacts, network, symmetrize)
    return Strains(graph, arrival_day=arrival_day, **params)
