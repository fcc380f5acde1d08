"""A pass over compiled graphs that keeps writes out of memory which several worlds share.

Under vmap `torch.zeros(k).index_add(0, codes, batched)` adds into one row of zeros, expanded to all worlds. Inductor
(torch 2.11 to 2.13, `fx_passes/reinplace.py`) makes that a write in place, for nobody reads the row afterwards, and all
worlds get the sum over all worlds. A copy of the row for each world keeps them apart.
"""

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph

aten = torch.ops.aten
WRITES = (aten.index_put.default, aten._unsafe_index_put.default)


class OwnMemory(CustomGraphPass):
    """Copies what is expanded before it is written to."""

    def __call__(self, graph: Graph) -> None:
        for node in [node for write in WRITES for node in graph.find_nodes(op="call_function", target=write)]:
            target = node.args[0]
            value = target.meta["val"]
            if not any(size > 1 and step == 0 for size, step in zip(value.shape, value.stride(), strict=True)):
                continue
            with graph.inserting_before(node):
                own = graph.call_function(aten.clone.default, (target,), {"memory_format": torch.contiguous_format})
            own.meta["val"] = value.clone(memory_format=torch.contiguous_format)
            node.replace_input_with(target, own)

    def uuid(self) -> bytes:
        return get_hash_for_files((__file__,))
