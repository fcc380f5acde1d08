"""Narrow integers as 32 bits inside a compiled step, with the values that the narrow ones would have.

Compiled as they are, bytes are paired in 16-bit registers, and the assembler of CUDA 12.8 (V12.8.93, sm_90) then drops
the constant of an addition whose other half is masked out: `code > 0 & code < 13` came out true for code 0 in some
persistent reductions (docs/log.md). State is stored narrow all the same: widened where it is loaded, cut where stored.
"""

from typing import Any

import torch
from torch.fx import Graph, Node

from denizen.run._trace import Traced, calls, dtype

aten, own = torch.ops.aten, torch.ops.denizen
NARROW, WIDE = (torch.int8, torch.uint8, torch.int16), torch.int32
VIEWS = (
    aten.view.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.select.int,
    aten.permute.default,
    aten.expand.default,
    aten.slice.Tensor,
    aten.alias.default,
)
ARITHMETIC = (
    aten.add.Tensor,
    aten.add.Scalar,
    aten.sub.Tensor,
    aten.sub.Scalar,
    aten.rsub.Scalar,
    aten.mul.Tensor,
    aten.mul.Scalar,
    aten.neg.default,
    aten.abs.default,
    aten.sign.default,
    aten.minimum.default,
    aten.maximum.default,
    aten.clamp.default,
    aten.clamp_min.default,
    aten.clamp_max.default,
    aten.bitwise_and.Tensor,
    aten.bitwise_and.Scalar,
    aten.bitwise_or.Tensor,
    aten.bitwise_or.Scalar,
    aten.bitwise_xor.Tensor,
    aten.bitwise_xor.Scalar,
    aten.bitwise_not.default,
    aten.where.self,
)
COMPARISONS = tuple(
    getattr(getattr(aten, name), kind) for name in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Scalar", "Tensor")
)
SUMS = (aten.sum.default, aten.sum.dim_IntList)


def widen(traced: Traced) -> None:
    """Rewrite, in place, arithmetic and comparisons of narrow integers."""
    graph = traced.module.graph
    wide: dict[Node, Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or not any(_narrow(source) for source in node.all_input_nodes):
            if _from_bool(node):
                with graph.inserting_after(node):
                    wide[node] = _emit(graph, node, WIDE, node.target, *node.args, dtype=WIDE)
            continue
        if not (_narrow(node) and calls(node, *VIEWS, *ARITHMETIC)) and not _reads(node):
            continue
        with graph.inserting_before(node):
            changed = {source: _wide(graph, wide, source) for source in node.all_input_nodes if _narrow(source)}
            if not _narrow(node):
                for source, new in changed.items():
                    node.replace_input_with(source, new)
                continue
            args = torch.fx.map_arg(node.args, lambda source, c=changed: c.get(source, source))
            result = _emit(graph, node, WIDE, node.target, *args, **node.kwargs)
            if calls(node, *ARITHMETIC):
                result = _emit(graph, node, WIDE, own.wrap.default, result, dtype(node))
            narrow = _emit(graph, node, dtype(node), aten._to_copy.default, result, dtype=dtype(node))
        wide[narrow] = result
        node.replace_all_uses_with(narrow)
    graph.eliminate_dead_code()


def _narrow(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in NARROW


def _from_bool(node: Node) -> bool:
    """Whether a node makes a mask of a condition."""
    return _narrow(node) and calls(node, aten._to_copy.default) and dtype(node.all_input_nodes[0]) == torch.bool


def _reads(node: Node) -> bool:
    """Whether a node takes narrow integers and returns something else, with the same values for wide ones."""
    if calls(node, aten._to_copy.default, *ARITHMETIC, *COMPARISONS, *SUMS):
        value = node.meta["val"]
        return isinstance(value, torch.Tensor) and value.dtype not in NARROW
    return False


def _wide(graph: Graph, wide: dict[Node, Node], node: Node) -> Node:
    """The 32-bit form of a narrow node."""
    if node not in wide:
        with graph.inserting_after(_last_input(graph, node)):
            wide[node] = _emit(graph, node, WIDE, aten._to_copy.default, node, dtype=WIDE)
        with graph.inserting_after(wide[node]):
            wide[node] = _emit(graph, node, WIDE, own.wrap.default, wide[node], dtype(node))
    return wide[node]


def _last_input(graph: Graph, node: Node) -> Node:
    """The place behind which a use of `node` may stand: inputs of a graph come before everything else."""
    if node.op != "placeholder":
        return node
    return [other for other in graph.nodes if other.op == "placeholder"][-1]


def _emit(graph: Graph, like: Node, made: torch.dtype, target: Any, *args: Any, **kwargs: Any) -> Node:
    """Append a call that returns what `like` does, in another dtype."""
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = like.meta["val"].to(made)
    return node
