"""Counting what a region of code does: operations, host reads, transfers, allocations, kernels, graphs, bytes.

Nothing here is active unless asked: a mode, a hook or a profiler exists only within its `with` block.
"""

from denizen.perf.watch._compiler import graphs_compiled as graphs_compiled
from denizen.perf.watch._copy_rate import copy_rate as copy_rate
from denizen.perf.watch._counting import Counts as Counts
from denizen.perf.watch._counting import counting as counting
from denizen.perf.watch._counting import distinct_bytes as distinct_bytes
from denizen.perf.watch._memory import Allocations as Allocations
from denizen.perf.watch._memory import allocations as allocations
from denizen.perf.watch._spans import Profile as Profile
from denizen.perf.watch._spans import Span as Span
from denizen.perf.watch._spans import busy as busy
from denizen.perf.watch._spans import collapsed as collapsed
from denizen.perf.watch._spans import gaps as gaps
from denizen.perf.watch._spans import is_copy as is_copy
from denizen.perf.watch._spans import profiled as profiled
from denizen.perf.watch._spans import repeating as repeating
from denizen.perf.watch._sync import sync_warnings as sync_warnings
