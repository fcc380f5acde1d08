"""Rewritings of a traced step before it is compiled: reductions in two stages, and narrow integers as 32 bits.

Reductions over agents: a sum over all would end in a kernel of its own each step, for each record. Here the agents are
cut into rows; the pass over the agents returns a partial sum for each row, and the epilogue of a chunk adds the rows
up. Integers only: the order of a float sum is left as it is.

Narrow integers: compiled as they are, bytes are paired in 16-bit registers, and the assembler of CUDA 12.8 (V12.8.93,
sm_90) then drops the constant of an addition whose other half is masked out: `code > 0 & code < 13` came out true for
code 0 in some persistent reductions (docs/log.md). State is stored narrow all the same: widened where it is loaded, cut
where it is stored, with the values that the narrow ones would have.
"""

from typing import Any

import torch
from torch.fx import Graph, Node

from denizen.run._trace import Traced, calls, dtype, shape

aten = torch.ops.aten
ROW = 1024  # longest row: what inductor holds in registers at once
SUMS = (aten.sum.default, aten.sum.dim_IntList)
TESTS = (aten.all.default, aten.all.dim, aten.any.default, aten.any.dim)


def split_reductions(traced: Traced, least: int) -> None:
    """Rewrite, in place, integer sums and tests over the last axis, and the checks of draws."""
    graph = traced.module.graph
    for node in list(graph.nodes):
        if calls(node, *SUMS, *TESTS) and _over_agents(node, least):
            with graph.inserting_before(node):
                total = _sum(graph, node) if calls(node, *SUMS) else _test(graph, node)
            node.replace_all_uses_with(total)
        elif calls(node, torch.ops.denizen.draw_mask.default):
            _split_check(traced, node, least)
    graph.eliminate_dead_code()


def _over_agents(node: Node, least: int) -> bool:
    """Whether a long last axis of integers is reduced, and no other one that is longer than 1."""
    (source, *rest), kept = node.args, shape(node)
    assert isinstance(source, Node)
    axes = shape(source)
    if not axes or axes[-1] < least or dtype(source).is_floating_point or dtype(source).is_complex:
        return False
    if calls(node, *TESTS) and dtype(source) != torch.bool:
        return False
    if calls(node, aten.sum.default, aten.all.default, aten.any.default) or rest[:1] == [None]:  # nanmean asks for None
        return axes[:-1].count(1) == len(axes) - 1
    dims = rest[0] if isinstance(rest[0], list | tuple) else [rest[0]]
    return [int(dim) % len(axes) for dim in dims] == [len(axes) - 1] and kept[: len(axes) - 1] == axes[:-1]  # type: ignore[arg-type]


def _layout(size: int) -> tuple[int, int]:
    """(rows, length of a row): a divisor where there is one, since only whole rows fuse with a pass over the agents."""
    lengths = [n for n in range(ROW, ROW // 4 - 1, -1) if size % n == 0]
    lengths = [n for n in lengths if n % 4 == 0] or lengths  # four agents share a block of random numbers
    length = lengths[0] if lengths else ROW
    return -(-size // length), length


def _emit(graph: Graph, target: Any, *args: Any, **kwargs: Any) -> Node:
    node = graph.call_function(target, args, kwargs)
    plain = [arg.meta["val"] if isinstance(arg, Node) else arg for arg in args]
    node.meta["val"] = target(*plain, **kwargs)
    return node


def _rows(graph: Graph, source: Node, wide: torch.dtype) -> Node:
    """Partial sums of the last axis: `[…, rows]`."""
    *front, size = shape(source)
    rows, length = _layout(size)
    values = _emit(graph, aten._to_copy.default, source, dtype=wide)
    if rows * length > size:
        values = _emit(graph, aten.constant_pad_nd.default, values, [0, rows * length - size], 0)
    values = _emit(graph, aten.view.default, values, [*front, rows, length])
    return _emit(graph, aten.sum.dim_IntList, values, [-1], False, dtype=wide)


def _finish(graph: Graph, rows: Node, node: Node, out: torch.dtype) -> Node:
    total = _emit(graph, aten.sum.dim_IntList, rows, [-1], False, dtype=out)
    return _emit(graph, aten.view.default, total, list(shape(node)))


def _sum(graph: Graph, node: Node) -> Node:
    source = node.args[0]
    assert isinstance(source, Node)
    wide = torch.int32 if dtype(source).itemsize <= 2 else torch.int64
    return _finish(graph, _rows(graph, source, wide), node, dtype(node))


def _test(graph: Graph, node: Node) -> Node:
    source = node.args[0]
    assert isinstance(source, Node)
    if calls(node, aten.any.default, aten.any.dim):
        return _any(graph, source, node)
    wrong = _any(graph, _emit(graph, aten.logical_not.default, source), node)
    return _emit(graph, aten.logical_not.default, wrong)


def _any(graph: Graph, source: Node, node: Node) -> Node:
    known = _same_everywhere(source)
    if known is not None:  # the check of a number that is written in the model
        device = source.meta["val"].device
        return _emit(graph, aten.full.default, list(shape(node)), bool(known), dtype=torch.bool, device=device)
    return _emit(graph, aten.ne.Scalar, _finish(graph, _rows(graph, source, torch.int32), node, torch.int64), 0)


def _same_everywhere(node: Node) -> torch.Tensor | None:
    """What a node holds at every place, 0-d, where it is made of a number alone; else None."""
    if calls(node, aten.full.default):
        return torch.full((), node.args[1], dtype=dtype(node))  # type: ignore[arg-type]
    if calls(node, *VIEWS):
        return _same_everywhere(node.all_input_nodes[0])
    if not calls(node, *COMPARISONS, *LOGIC):
        return None
    parts = [_same_everywhere(arg) if isinstance(arg, Node) else arg for arg in node.args]
    return None if any(part is None for part in parts) else node.target(*parts)  # type: ignore[operator]


def _split_check(traced: Traced, draw: Node, least: int) -> None:
    """Whether a hazard or a probability is unusable, spelled out instead of as an output of the draw."""
    graph, (values, hazard, *_) = traced.module.graph, draw.args
    assert isinstance(values, Node)
    checks = [user for user in draw.users if user.args[1] == 1]
    if not checks or shape(values)[-1] < least:
        return
    with graph.inserting_before(checks[0]):
        bad = _emit(graph, aten.logical_not.default, _emit(graph, aten.ge.Scalar, values, 0))
        if not hazard:
            above = _emit(graph, aten.logical_not.default, _emit(graph, aten.le.Scalar, values, 1))
            bad = _emit(graph, aten.logical_or.default, bad, above)
        flag = _emit(graph, aten._to_copy.default, _any(graph, bad, checks[0]), dtype=torch.int8)
    for check in checks:
        check.replace_all_uses_with(flag)


own = torch.ops.denizen
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
LOGIC = (aten.logical_not.default, aten.logical_or.default, aten.bitwise_not.default, aten.bitwise_and.Tensor)
COMPARISONS = tuple(
    getattr(getattr(aten, name), kind) for name in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Scalar", "Tensor")
)


def widen(traced: Traced) -> None:
    """Rewrite, in place, arithmetic and comparisons of narrow integers."""
    graph = traced.module.graph
    wide: dict[Node, Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or not any(_narrow(source) for source in node.all_input_nodes):
            if _from_bool(node):
                with graph.inserting_after(node):
                    wide[node] = _emit_as(graph, node, WIDE, node.target, *node.args, dtype=WIDE)
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
            result = _emit_as(graph, node, WIDE, node.target, *args, **node.kwargs)
            if calls(node, *ARITHMETIC):
                result = _emit_as(graph, node, WIDE, own.wrap.default, result, dtype(node))
            narrow = _emit_as(graph, node, dtype(node), aten._to_copy.default, result, dtype=dtype(node))
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
            wide[node] = _emit_as(graph, node, WIDE, aten._to_copy.default, node, dtype=WIDE)
        with graph.inserting_after(wide[node]):
            wide[node] = _emit_as(graph, node, WIDE, own.wrap.default, wide[node], dtype(node))
    return wide[node]


def _last_input(graph: Graph, node: Node) -> Node:
    """The place behind which a use of `node` may stand: inputs of a graph come before everything else."""
    if node.op != "placeholder":
        return node
    return [other for other in graph.nodes if other.op == "placeholder"][-1]


def _emit_as(graph: Graph, like: Node, made: torch.dtype, target: Any, *args: Any, **kwargs: Any) -> Node:
    """Append a call that returns what `like` does, in another dtype."""
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = like.meta["val"].to(made)
    return node
