"""Counting what a region of code does: operations, host reads, transfers, allocations, kernels, graphs, bytes.

Nothing here is active unless asked: a mode, a hook or a profiler exists only within its `with` block.
"""

from denizen._watch._compiled import graphs_compiled as graphs_compiled
