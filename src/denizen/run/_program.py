"""A traced step taken apart, so that few kernels are left of it: what runs before, in and after the compiled body.

    tables      what parameters and constants alone determine: once for a chunk of steps
    sums        the step's sums over neighbours that need nothing but the state: each a kernel of its own, which adds
                into an accumulator that the one of the step before has cleared
    body        everything else, compiled into one pass over the agents: draws, transitions, partial sums of records,
                and, for the *next* step, the arguments of its sums over neighbours
    tallies     histograms of codes that only records need: a kernel of their own
    log         rows of logged events: a kernel for each event
    epilogue    what records and checks make of partial sums and histograms: once for a chunk of steps

The loop is thereby rotated by half a step, which changes no value: `prologue` makes the arguments of the first sums.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from denizen.ops import lookup_narrow
from denizen.run._logged import ATTRIBUTE, Event, alike, base, events
from denizen.run._neighbour_sums import VIEWS, Sum, as_sum
from denizen.run._passes import split_reductions, widen
from denizen.run._trace import Builder, Traced, ancestors, calls, shape

ops = torch.ops.denizen
SUMS = (ops.sum_counts.default, ops.sum_fixed.default)
DRAWS = (ops.draw_mask.default, ops.draw_words.default)
LEAST = 2048
SAME_ORDER = (  # views that keep the order of the entries, where they keep their number
    torch.ops.aten.view.default,
    torch.ops.aten.unsqueeze.default,
    torch.ops.aten.squeeze.dim,
    torch.ops.aten.select.int,
    torch.ops.aten.alias.default,
)
TABLE = 1 << 16  # entries of the largest tensor that is worth keeping for a chunk
Source = Callable[[Node], bool]
OPAQUE = (*SUMS, ops.sum_real.default, ops.pull.default, *DRAWS, ops.form_ties.default, ATTRIBUTE)


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of tensors that stand for traced nodes.

    Attributes:
        module: takes `inputs` in order, returns a list.
        inputs: traced nodes; ("bad", node) for the flags of a sum in fixed point.
    """

    module: GraphModule
    inputs: list[Hashable]


@dataclasses.dataclass(frozen=True)
class Program:
    """A step taken apart; see the head of this module.

    Attributes:
        traced: the step.
        tables: parameters, constants -> `fixed`.
        fixed: traced nodes that are the same in every step.
        sums: sums over neighbours before the body.
        prologue: state -> arguments of the sums.
        body: -> new leaves, new switches, arguments of the next sums, `kept`, codes of the tallies, logged events.
        tallies: histograms after the body.
        groups: constants -> groups of the tallies, empty for none.
        kept: traced nodes that the body returns for the epilogue, each step its own.
        epilogue: -> records, checks of one step.
        events: the logged ones.
        logged: traced nodes that the body returns for them.
    """

    traced: Traced
    tables: Function
    fixed: list[Node]
    sums: list[Sum]
    prologue: Function
    body: Function
    tallies: list[Node]
    groups: Function
    kept: list[Node]
    epilogue: Function
    events: list[Event]
    logged: list[Node]


def build(traced: Traced, masks: list[bool], least: int = LEAST) -> Program:
    """Take a step apart.

    Args:
        traced: the step; its graph is rewritten.
        masks: for each leaf whether it holds only 0 and 1.
        least: entries that make a reduction worth two stages.
    """
    for node in traced.module.graph.nodes:
        if calls(node, ops.lookup.default):
            node.target = lookup_narrow
    _hand_on(traced)
    split_reductions(traced, least)
    widen(traced)
    order = {node: place for place, node in enumerate(traced.module.graph.nodes)}
    sums = _leading_sums(traced, {leaf for leaf, mask in zip(traced.leaves, masks, strict=True) if mask})
    fixed = _fixed(traced)
    logged = events(traced)
    needed = list(dict.fromkeys(base(node, fixed) for event in logged for node in event.needed))
    late, kept, tallies = _after(traced, order, set(fixed), needed)
    given = [one for sum_ in sums for one in sum_.arguments]
    needed = [node for node in needed if not (_is_input(node) or node in fixed or not _numel(node))]
    needed = [node for k, node in enumerate(needed) if not any(alike(node, one) for one in (*given, *needed[:k]))]

    def source(node: Node) -> bool:
        return _is_input(node) or node in fixed

    return Program(
        traced=traced,
        tables=_tables(order, fixed),
        fixed=fixed,
        sums=sums,
        prologue=_prologue(order, sums, source),
        body=_body(traced, order, sums, [*kept, *(one.args[0] for one in tallies), *needed], source),
        tallies=tallies,
        groups=_groups(order, tallies),
        kept=kept,
        epilogue=_epilogue(traced, order, late, tallies),
        events=logged,
        logged=needed,
    )


# --- what goes where --------------------------------------------------------------------------------------------------


def _hand_on(traced: Traced) -> None:
    """Fields that a step leaves as they were go out as they came in, instead of through views and 32 bits: a copy."""
    output = traced.module.graph.output_node()
    given: list[Node] = list(output.args[0])  # type: ignore[arg-type]
    for place in range(len(traced.leaves)):
        source = given[place]
        while calls(source, *SAME_ORDER) and _numel(source) == _numel(source.all_input_nodes[0]):
            source = source.all_input_nodes[0]
        if source in traced.leaves and shape(source) == shape(given[place]):
            given[place] = source
    output.args = (given,)
    traced.module.graph.eliminate_dead_code()


def _numel(node: Node) -> int:
    return math.prod(shape(node))


def _leading_sums(traced: Traced, masks: set[Node]) -> list[Sum]:
    """Sums whose arguments need no other sum and no draw."""
    sums = []
    for node in traced.module.graph.nodes:
        if calls(node, *SUMS):
            found = as_sum(node, masks, traced.constant)
            if found is not None and not any(calls(other, *OPAQUE) for other in ancestors([found.values])):
                sums.append(found)
    return sums


def _after(
    traced: Traced, order: dict[Node, int], fixed: set[Node], logged: list[Node]
) -> tuple[set[Node], list[Node], list[Node]]:
    """(nodes of the epilogue, those that the body keeps for it, histograms that become tallies)."""
    needed = ancestors([*traced.new_leaves, traced.new_switches, *logged])
    wanted = ancestors([*traced.records, traced.bad])
    most = max((math.prod(shape(leaf)) for leaf in traced.leaves), default=1) // 8
    nodes = [
        node for node in traced.module.graph.nodes if node in wanted and node not in needed and not _is_input(node)
    ]
    late = {  # draws follow the step's counter, which an epilogue over all steps has no single value of
        node
        for node in nodes
        if not calls(node, *OPAQUE) and all(_is_small(n, most) for n in (node, *node.all_input_nodes))
    }
    tallies = [node for node in nodes if calls(node, ops.histogram.default) and node not in late]
    for node in reversed(list(traced.module.graph.nodes)):  # what something early needs is early, too
        if node in late and any(user not in late and user in wanted and user.op != "output" for user in node.users):
            late.discard(node)
    late -= {node for node in late if any(_is_several(i) and i not in late for i in node.all_input_nodes)}
    tallies = [node for node in tallies if all(user in late for user in node.users) and _constant_group(node)]
    outputs = [node for node in dict.fromkeys([*traced.records, traced.bad]) if node not in late]
    used = dict.fromkeys([*(i for node in late for i in node.all_input_nodes), *outputs])
    kept = [
        node
        for node in used
        if node not in late and node not in tallies and node not in fixed and _varies(traced, node)
    ]
    return late, sorted(kept, key=order.__getitem__), tallies


def _fixed(traced: Traced) -> list[Node]:
    """Small tensors that parameters and constants determine and that steps use; mere views are left where they are."""
    steady: set[Node] = set()
    made: set[Node] = set()  # by more than a change of shape
    for node in traced.module.graph.nodes:
        if _is_input(node):
            if not _varies(traced, node):
                steady.add(node)
        elif node.op == "output" or not _is_small(node, TABLE) or calls(node, *OPAQUE):
            continue
        elif all(source in steady for source in node.all_input_nodes):
            steady.add(node)
            if not calls(node, *VIEWS) or any(source in made for source in node.all_input_nodes):
                made.add(node)
    return [
        node
        for node in traced.module.graph.nodes
        if node in made and isinstance(node.meta["val"], Tensor) and any(user not in steady for user in node.users)
    ]


def _constant_group(histogram: Node) -> bool:
    group = histogram.args[1]
    return not isinstance(group, Node) or all(node.op in ("get_attr", "call_function") for node in ancestors([group]))


def _is_several(node: Node) -> bool:
    """Whether a node returns several tensors, which only its parts can be kept of."""
    return isinstance(node.meta.get("val"), tuple | list)


def _is_small(node: Node, most: int) -> bool:
    """Whether a node's tensors have far fewer entries than a field of the agents."""
    value = node.meta.get("val")
    parts = value if isinstance(value, tuple | list) else (value,)
    return all(not isinstance(part, Tensor) or part.numel() <= most for part in parts)


def _varies(traced: Traced, node: Node) -> bool:
    """Whether a node may differ from step to step."""
    return node.op != "get_attr" and node not in traced.invariants


# --- the functions ----------------------------------------------------------------------------------------------------


def _is_input(node: Node) -> bool:
    return node.op in ("placeholder", "get_attr")


def _arguments(builder: Builder, sums: list[Sum], known: dict[Node, Node], source: Source) -> list[Node]:
    """The arguments of every sum."""
    out = []
    for one in sums:
        out += builder.copy(one.arguments, known, source)
    return out


def _tables(order: dict[Node, int], fixed: list[Node]) -> Function:
    builder = Builder(order)
    return Function(builder.finish(builder.copy(fixed, {}, _is_input)), builder.inputs)


def _prologue(order: dict[Node, int], sums: list[Sum], source: Source) -> Function:
    builder = Builder(order)
    return Function(builder.finish(_arguments(builder, sums, {}, source)), builder.inputs)


def _body(traced: Traced, order: dict[Node, int], sums: list[Sum], rest: list[Any], source: Source) -> Function:
    builder = Builder(order)
    known: dict[Node, Node] = {}
    for one in sums:
        known[one.node] = one.total(builder, known, source)
    wanted = [*traced.new_leaves, traced.new_switches, *rest]
    copied = builder.copy(wanted, known, source)
    count = len(traced.leaves)
    # The next step's head: the same nodes once more, over the new state.
    after = dict(zip(traced.leaves, copied[:count], strict=True))
    after[traced.switches] = copied[count]
    after[traced.step] = builder.call(torch.ops.aten.add.Tensor, builder.argument(traced.step), 1)
    ahead = _arguments(builder, sums, after, source)
    return Function(builder.finish([*copied[: count + 1], *ahead, *copied[count + 1 :]]), builder.inputs)


def _groups(order: dict[Node, int], tallies: list[Node]) -> Function:
    builder = Builder(order)
    known: dict[Node, Node] = {}
    groups = []
    for node in tallies:
        if isinstance(node.args[1], Node):
            groups += builder.copy([node.args[1]], known, _is_input)
        else:
            groups.append(builder.call(torch.zeros, 0))
    return Function(builder.finish(groups), builder.inputs)


def _epilogue(traced: Traced, order: dict[Node, int], late: set[Node], tallies: list[Node]) -> Function:
    builder = Builder(order)
    known = {
        node: builder.call(torch.ops.aten._to_copy.default, builder.argument(node), dtype=torch.int64)
        for node in tallies
    }
    outputs = builder.copy([*traced.records, traced.bad], known, lambda node: node not in late)
    return Function(builder.finish(outputs), builder.inputs)
