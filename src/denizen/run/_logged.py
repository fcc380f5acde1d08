"""Logged events of a step that is taken apart: what the body hands to the kernels that write rows.

Who caused an event is found out for the rows alone, where nothing else asks for it: a step then writes a byte for each
agent instead of ten.
"""

import dataclasses
import math
from collections.abc import Callable, Container
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from denizen import ops
from denizen.run._trace import Traced, calls, shape

ATTRIBUTE = torch.ops.denizen.attribute.default
aten = torch.ops.aten
SAME = (  # operations that leave the entries as they are, in their order, where they keep their number
    aten.view.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.select.int,
    aten.alias.default,
    aten.detach.default,
    aten.expand.default,
    aten.permute.default,
)
CASTS = (aten._to_copy.default, torch.ops.denizen.wrap.default)


@dataclasses.dataclass(frozen=True)
class Event:
    """What the rows of one event are made of.

    Attributes:
        mask: of those to whom it happened.
        columns: by name, `"id"` for identities; None for a column that a race gives.
        race: the call that finds out who caused it, for the rows alone; None where the columns are there already.
    """

    mask: Node
    columns: dict[str, Node | None]
    race: Node | None

    @property
    def needed(self) -> list[Node]:
        """Nodes whose tensors the kernels read, but for parts of graphs."""
        found = [self.mask, *(node for node in self.columns.values() if node is not None)]
        if self.race is not None:
            given: tuple[Any, ...] = self.race.args
            values, where, factor, *_, ids, key, step, _ = given
            found += [node for node in (*values, *where, factor, ids, key, step) if isinstance(node, Node)]
        return found


def events(traced: Traced) -> list[Event]:
    """The logged events of a step."""
    nodes, found = iter(traced.logged), []
    for names in traced.columns:
        mask = next(nodes)
        columns: dict[str, Node | None] = {name: next(nodes) for name in names}
        race = _race(columns, traced.module.graph.output_node())
        if race is not None:
            columns |= dict.fromkeys(("by", "layer"))
        found.append(Event(mask, columns, race))
    return found


def _race(columns: dict[str, Node | None], output: Node) -> Node | None:
    """The call of `attribute` that gives the columns `by` and `layer`, and nothing else."""
    parts = [columns.get(name) for name in ("by", "layer")]
    if any(part is None for part in parts):
        return None
    calls_of = [_origin(part) for part in parts if part is not None]
    if not all(calls(part, getitem) for part in calls_of) or [part.args[1] for part in calls_of] != [0, 1]:
        return None
    race = calls_of[0].args[0]
    if not isinstance(race, Node) or not calls(race, ATTRIBUTE) or calls_of[1].args[0] is not race:
        return None
    alone = all(_only_logged(user, output) for user in race.users)
    constant = all(base(node).op == "get_attr" or not _numel(node) for part in race.args[3:6] for node in part)  # type: ignore[union-attr, arg-type]
    return race if alone and constant else None


def _origin(node: Node) -> Node:
    """The node whose entries these are, whatever their width: whole numbers are computed with in 32 bits."""
    while calls(base(node), *CASTS):
        node = base(node).all_input_nodes[0]
    return base(node)


def _only_logged(node: Node, output: Node) -> bool:
    return all(user is output or (calls(user, *SAME, *CASTS) and _only_logged(user, output)) for user in node.users)


def base(node: Node, stop: Container[Node] = ()) -> Node:
    """The node whose entries these are, in the same order; not beyond those of `stop`."""
    while node not in stop and calls(node, *SAME) and _numel(node) == _numel(node.all_input_nodes[0]):
        if calls(node, aten.permute.default) and list(node.args[1]) != sorted(node.args[1]):  # type: ignore[arg-type]
            break
        node = node.all_input_nodes[0]
    return node


def _numel(node: Node) -> int:
    return math.prod(shape(node))


def alike(one: Any, other: Any) -> bool:
    """Whether two nodes compute the same from the same."""
    if not isinstance(one, Node) or not isinstance(other, Node):
        return type(one) is type(other) and one == other
    one, other = base(one), base(other)
    if one is other:
        return True
    if one.op != "call_function" or one.target is not other.target or len(one.args) != len(other.args):
        return False
    return one.kwargs == other.kwargs and all(alike(a, b) for a, b in zip(one.args, other.args, strict=True))


def race_of(event: Event, tensor: Callable[[Node], Tensor]) -> "ops.Race | None":
    """The arguments of a race.

    Args:
        event: with a race or without.
        tensor: gives the tensor of a node.
    """
    if event.race is None:
        return None
    names = [name for name in event.columns if name != "id"]
    *tensors, streams = event.race.args
    given = [[tensor(node) for node in one] if isinstance(one, list | tuple) else tensor(one) for one in tensors]  # type: ignore[arg-type]
    return ops.Race(*given, list(streams), names.index("by"), names.index("layer"))  # type: ignore[arg-type]
