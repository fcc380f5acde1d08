"""Counting what a region of code does: operations, host reads, transfers, allocations, kernels, graphs, bytes.

Nothing here is active unless asked: a mode, a hook or a profiler exists only within its `with` block.
"""

from denizen._watch._allocator import Allocations as Allocations
from denizen._watch._allocator import allocations as allocations
from denizen._watch._compiled import graphs_compiled as graphs_compiled
from denizen._watch._copy_rate import copy_rate as copy_rate
from denizen._watch._counting import Counts as Counts
from denizen._watch._counting import counting as counting
from denizen._watch._counting import distinct_bytes as distinct_bytes
from denizen._watch._profile import Profile as Profile
from denizen._watch._profile import is_copy as is_copy
from denizen._watch._profile import profiled as profiled
from denizen._watch._spans import Span as Span
from denizen._watch._spans import busy as busy
from denizen._watch._spans import collapsed as collapsed
from denizen._watch._spans import gaps as gaps
from denizen._watch._spans import repeating as repeating
from denizen._watch._sync import sync_warnings as sync_warnings
