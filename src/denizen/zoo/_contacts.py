"""What models of people and their contacts share: graphs out of what users have, and lengths of a step."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from denizen.errors import InputError, nearest
from denizen.model import Model
from denizen.population import Population
from denizen.space import EdgeList, Graph, Grid, Layers, Mixing

# Classes of other packages: how each becomes a graph.
MADE_BY = {"networkx": "dz.Graph.from_networkx(contacts)", "scipy": "dz.Graph.from_scipy(contacts)"}


def bound(model: str, contacts: Any, network: str, symmetrize: bool) -> Graph | Layers | Mixing | Grid:
    """Contacts as a graph. Those of a population are one of its networks.

    Raises:
        InputError: they are something else; says how it becomes a graph.
    """
    if isinstance(contacts, Population):
        source, target, weight = contacts.edges(network, symmetrize=symmetrize)
        return Graph.from_edges(source, target, contacts.size, weight=weight)
    if isinstance(contacts, EdgeList):
        return Graph.from_edges(contacts)
    if isinstance(contacts, Graph | Layers | Mixing | Grid):
        return contacts
    package, kind = type(contacts).__module__.partition(".")[0], type(contacts).__name__
    made = MADE_BY.get(package)
    what, instead = (f"{package}.{kind}", f"; write {made}") if made else (kind, "")
    raise InputError(
        f"{model}: contacts is {what}, expected a dz.Graph, Layers, Mixing, Grid, an edge list of the generators or a "
        f"population{instead}"
    )


def check_params(caller: str, model: type[Model], params: Iterable[str]) -> None:
    """Raise `InputError` for a name that is no parameter of a model; names the nearest."""
    for name in params:
        if name not in model.params:
            raise InputError(f"{caller}: unknown parameter {name!r}; {nearest(name, model.params)}")


def check_duration(stage: str, days: Tensor, phases: int, dt: float) -> None:
    """Raise `InputError` where `phases` phases of a stage, each at least a step long, outlast `days`."""
    shortest = phases * dt
    if bool((days.detach() < shortest * (1 - 1e-6)).any()):
        count = "1 phase" if phases == 1 else f"{phases} phases"
        raise InputError(
            f"{stage}_days={float(days.min()):g} is shorter than {count} of a step each ({shortest:g} days); raise it, "
            f"or lower dt{' or ' + stage + '_phases' if phases > 1 else ''}"
        )


def check_schedules(contacts: Graph | Layers | Mixing | Grid, dt: float) -> None:
    """Raise `InputError` where layers have schedules, which count steps, and a step is no day."""
    strength = contacts.strength if isinstance(contacts, Layers) else {}
    scheduled = [name for name, factor in strength.items() if factor.dim()]
    if scheduled and dt != 1:
        raise InputError(
            f"contacts: dt={dt:g}, and the strength of {scheduled[0]!r} is a schedule with one factor for each step, "
            f"which would last {dt:g} days and not one; run it with dt=1, or give it one number and change that by "
            f"dz.model.Course(target='contacts.{scheduled[0]}', values=[…], days=1)"
        )


def check_days(model: str, dt: float) -> None:
    """Raise `InputError` for a step that is neither a part of a day, such as 1/4, nor whole days."""
    if min(abs(dt - round(dt)), abs(1 / dt - round(1 / dt))) > 1e-9 * max(dt, 1 / dt):
        raise InputError(f"{model}: dt={dt:g}, expected a part of a day, such as 1/2, 1/4 or 1/24, or whole days")


def check_whole(model: str, dt: float, why: str) -> None:
    """Raise `InputError` for every length of a step but 1.

    Args:
        model: its name.
        dt: length of a step.
        why: what counts steps, as a sentence.
    """
    if dt != 1:
        raise InputError(f"{model}: dt={dt:g}, expected 1: {why}; leave dt out")
