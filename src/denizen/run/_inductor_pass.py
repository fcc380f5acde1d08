"""A pass over compiled graphs that mends two faults of Inductor (torch 2.11 to 2.13) in writes at positions.

Under vmap `torch.zeros(k).index_add(0, codes, batched)` adds into one row of zeros, expanded to all worlds. Inductor
(`fx_passes/reinplace.py`) makes that a write in place, for nobody reads the row afterwards, and all worlds get the sum
over all worlds. A copy of the row for each world keeps them apart.

For sums of 8- and 16-bit integers Inductor writes an atomic addition on CUDA that Triton does not have ("atomic_add
does not support int8"). They become sums of int32.
"""

import torch
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

aten = torch.ops.aten
WRITES = (aten.index_put.default, aten._unsafe_index_put.default)
# The arguments that hold numbers: the target and what is added to it.
ADDS = {
    aten.index_put.default: (0, 2),
    aten._unsafe_index_put.default: (0, 2),
    aten.scatter_add.default: (0, 3),
    aten.scatter_reduce.two: (0, 3),
}
NARROW = (torch.int8, torch.uint8, torch.int16)


class SafeWrites(CustomGraphPass):
    """Copies what is expanded before it is written to; adds narrow integers as int32."""

    def __call__(self, graph: Graph) -> None:
        for node in [node for write in WRITES for node in graph.find_nodes(op="call_function", target=write)]:
            target = node.all_input_nodes[0]
            value = target.meta["val"]
            if not any(size > 1 and step == 0 for size, step in zip(value.shape, value.stride(), strict=True)):
                continue
            with graph.inserting_before(node):
                own = graph.call_function(aten.clone.default, (target,), {"memory_format": torch.contiguous_format})
            own.meta["val"] = value.clone(memory_format=torch.contiguous_format)
            node.replace_input_with(target, own)
        for add, places in ADDS.items():
            for node in graph.find_nodes(op="call_function", target=add):
                value: Tensor = node.meta["val"]
                replaces = add in WRITES and not (len(node.args) > 3 and node.args[3])
                if value.dtype in NARROW and not replaces:
                    _widen(graph, node, value, places)

    def uuid(self) -> bytes:
        return get_hash_for_files((__file__,))


def _widen(graph: Graph, node: Node, value: Tensor, places: tuple[int, int]) -> None:
    """Let a call add in int32; its result comes back in its own type, whose lower bits are the same."""
    for place in places:
        with graph.inserting_before(node):
            given = node.args[place]
            assert isinstance(given, Node)
            node.update_arg(place, _cast(graph, given, torch.int32))
    node.meta["val"] = value.to(torch.int32)
    with graph.inserting_after(node):
        back = _cast(graph, node, value.dtype)
    node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)


def _cast(graph: Graph, node: Node, dtype: torch.dtype) -> Node:
    cast = graph.call_function(torch.ops.prims.convert_element_type.default, (node, dtype))
    cast.meta["val"] = node.meta["val"].to(dtype)
    return cast
