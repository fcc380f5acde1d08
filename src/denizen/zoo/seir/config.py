"""Where the SEIR model's numbers come from, and how it is bound to contacts."""

from typing import TYPE_CHECKING, Any

from denizen.population import Population
from denizen.space import EdgeList, Graph, Grid, Layers, Mixing
from denizen.zoo._contacts import bound, check_params

if TYPE_CHECKING:
    from .model import SEIR


def seir(
    contacts: Graph | Layers | Mixing | Grid | EdgeList | Population,
    *,
    network: str = "0",
    symmetrize: bool = False,
    latent_phases: int = 1,
    infectious_phases: int = 1,
    **params: Any,
) -> "SEIR":
    """The SEIR model on a contact network.

    The defaults are round numbers (5 days latent, 7 infectious, 0.05 infections per infectious contact and day) and
    stand for no disease in particular: with 10 contacts an agent the first case infects 2.6 others.

    Args:
        contacts: a graph, random `Mixing` by groups, several of them as `Layers`, a grid whose cells are the agents,
            an edge list (as the generators make), or a population with a network.
        network: which network of a population.
        symmetrize: add the opposite direction of every contact of a population's network.
        latent_phases: 1 for a memoryless latent period, days / dt for a fixed one, others between.
        infectious_phases: the same for the infectious period.
        **params: `infect_rate`, `latent_days`, `infectious_days`, `seed_share`.

    Raises:
        InputError: for an unknown parameter or a value that does not fit.
    """
    from .model import SEIR

    check_params("seir", SEIR, params)
    graph = bound("seir", contacts, network, symmetrize)
    return SEIR(graph, latent_phases=latent_phases, infectious_phases=infectious_phases, **params)
