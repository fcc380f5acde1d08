"""How the SIS model is bound to contacts."""

from typing import TYPE_CHECKING, Any

from denizen.population import Population
from denizen.space import EdgeList, Graph, Grid, Layers, Mixing
from denizen.zoo._contacts import bound, check_params

if TYPE_CHECKING:
    from .model import SIS


def sis(
    contacts: Graph | Layers | Mixing | Grid | EdgeList | Population,
    *,
    network: str = "0",
    symmetrize: bool = False,
    **params: Any,
) -> "SIS":
    """The SIS model on contacts, or in a mixed population.

    The defaults are round numbers and stand for no disease in particular.

    Args:
        contacts: a graph, random `Mixing` by groups, several of them as `Layers`, a grid, an edge list or a population.
        network: which network of a population.
        symmetrize: add the opposite direction of every contact of a population's network.
        **params: parameters of `SIS`.

    Raises:
        InputError: for an unknown parameter or a value that does not fit.
    """
    from .model import SIS

    check_params("sis", SIS, params)
    return SIS(bound("sis", contacts, network, symmetrize), **params)
