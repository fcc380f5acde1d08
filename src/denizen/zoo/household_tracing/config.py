"""Where the model's numbers come from, and how it is bound to homes and contacts."""

from typing import TYPE_CHECKING, Any

import numpy as np

from denizen.model import whole
from denizen.space import EdgeList, Graph, Layers
from denizen.zoo._contacts import check_params

if TYPE_CHECKING:
    from .model import HouseholdTracing


def household_tracing(
    contacts: Graph | EdgeList | Layers,
    *,
    household_size: int = 3,
    latent_days: int = 4,
    infectious_days: int = 5,
    isolation_days: int = 14,
    **params: Any,
) -> "HouseholdTracing":
    """Infection at home and outside with tests, contact tracing and isolation.

    The defaults are round numbers and stand for no disease in particular.

    Args:
        contacts: contacts outside, a graph or an edge list; households are runs of neighbouring agents. Or `Layers`
            called ``"home"`` and ``"outside"``.
        household_size: agents in a household.
        latent_days: days from infection until infectious.
        infectious_days: days from then on; on the last one a share is tested.
        isolation_days: days that the found stay away from contacts outside.
        **params: `home_rate`, `outside_rate`, `tested_share`, `home_coverage`, `coverage`, `seed_share`.

    Raises:
        InputError: for an unknown parameter, other contacts, or a value that does not fit.
    """
    from .model import HouseholdTracing

    caller = "household_tracing"
    check_params(caller, HouseholdTracing, params)
    if isinstance(contacts, EdgeList):
        contacts = Graph.from_edges(contacts)
    if isinstance(contacts, Graph):
        size = whole(caller, "household_size", household_size, 1, 1_000)
        contacts = Layers({"home": households(contacts.num_agents, size), "outside": contacts})
    return HouseholdTracing(
        contacts,
        latent_days=latent_days,
        infectious_days=infectious_days,
        isolation_days=isolation_days,
        **params,
    )


def households(num_agents: int, size: int) -> EdgeList:
    """Everybody with those of the same household, which are runs of `size` agents; the last may be smaller."""
    agent = np.arange(num_agents)
    pairs = [(agent, agent - agent % size + k) for k in range(size)]
    source, target = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    kept = (source != target) & (target < num_agents)
    dtype = np.int32
    return EdgeList(num_agents, source[kept].astype(dtype), target[kept].astype(dtype), None)
