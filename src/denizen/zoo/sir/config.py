"""Where the SIR model's numbers come from, and how it is bound to contacts."""

from typing import TYPE_CHECKING, Any

from denizen.population import Population
from denizen.space import EdgeList, Graph, Grid, Layers, Mixing
from denizen.zoo._contacts import bound, check_params

if TYPE_CHECKING:
    from .model import SIR


def sir(
    contacts: Graph | Layers | Mixing | Grid | EdgeList | Population,
    *,
    network: str = "0",
    symmetrize: bool = False,
    infectious_phases: int = 1,
    **params: Any,
) -> "SIR":
    """The SIR model on a contact network.

    The defaults are round numbers (a week of illness, 0.05 infections per infected contact and day) and stand for no
    disease in particular: with 10 contacts an agent the first case infects 2.6 others.

    Args:
        contacts: a graph, random `Mixing` by groups, several of them as `Layers`, a grid whose cells are the agents,
            an edge list (as the generators make), or a population with a network.
        network: which network of a population.
        symmetrize: add the opposite direction of every contact of a population's network.
        infectious_phases: 1 for a memoryless duration, days / dt for a fixed one, others between.
        **params: `infect_rate`, `infectious_days`, `seed_share`.

    Raises:
        InputError: for an unknown parameter or a value that does not fit.
    """
    from .model import SIR

    check_params("sir", SIR, params)
    graph = bound("sir", contacts, network, symmetrize)
    return SIR(graph, infectious_phases=infectious_phases, **params)
