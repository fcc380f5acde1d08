"""Where the model's numbers come from, and how it is bound to contacts."""

from typing import TYPE_CHECKING, Any

from denizen.population import Population
from denizen.space import EdgeList, Graph, Grid, Layers, Mixing
from denizen.zoo._contacts import bound, check_params

if TYPE_CHECKING:
    from .model import SIRVaccination


def sir_vaccination(
    contacts: Graph | Layers | Mixing | Grid | EdgeList | Population,
    *,
    network: str = "0",
    symmetrize: bool = False,
    kind: str = "leaky",
    daily_share: float = 0.02,
    first_day: float = 5.0,
    waning_days: float = 0.0,
    waning_phases: int = 1,
    **params: Any,
) -> "SIRVaccination":
    """SIR with a vaccination campaign on a contact network.

    The defaults are round numbers and stand for no disease or vaccine in particular.

    Args:
        contacts: a graph, several as `Layers`, a `Mixing`, a grid, an edge list, or a population with a network.
        network: which network of a population.
        symmetrize: add the opposite direction of every contact of a population's network.
        kind: ``"leaky"`` or ``"all_or_nothing"``.
        daily_share: doses a day as a share of all agents; 0 for no campaign.
        first_day: day on which the campaign begins.
        waning_days: mean time that protection lasts; 0 for ever.
        waning_phases: shape of that time: 1 for a memoryless one.
        **params: `infect_rate`, `infectious_days`, `seed_share`, `efficacy`, `coverage`.

    Raises:
        InputError: for an unknown parameter or a value that does not fit.
    """
    from .model import SIRVaccination

    check_params("sir_vaccination", SIRVaccination, params)
    return SIRVaccination(
        bound("sir_vaccination", contacts, network, symmetrize),
        kind=kind,
        daily_share=daily_share,
        first_day=first_day,
        waning_days=waning_days,
        waning_phases=waning_phases,
        **params,
    )
