"""What SIR and SEIR run on, out of what users have at hand."""

from typing import Any

from denizen.errors import InputError
from denizen.population import Population
from denizen.space import EdgeList, Graph, Layers

# Classes of other packages: how each becomes a graph.
MADE_BY = {"networkx": "dz.Graph.from_networkx(contacts)", "scipy": "dz.Graph.from_scipy(contacts)"}


def bound(model: str, contacts: Any, network: str, symmetrize: bool) -> Graph | Layers:
    """Contacts as a graph; a population's are those of one of its networks.

    Raises:
        InputError: they are something else; says how it becomes a graph.
    """
    if isinstance(contacts, Population):
        source, target, weight = contacts.edges(network, symmetrize=symmetrize)
        return Graph.from_edges(source, target, contacts.size, weight=weight)
    if isinstance(contacts, EdgeList):
        return Graph.from_edges(contacts)
    if isinstance(contacts, Graph | Layers):
        return contacts
    package, kind = type(contacts).__module__.partition(".")[0], type(contacts).__name__
    made = MADE_BY.get(package)
    what, instead = (f"{package}.{kind}", f"; write {made}") if made else (kind, "")
    raise InputError(
        f"{model}: contacts is {what}, expected a dz.Graph, Layers, an edge list of the generators or a "
        f"population{instead}"
    )
