"""Counting what a region of code does: operations, host reads, transfers, allocations, kernels, graphs, bytes.

Nothing here is active unless asked: a mode, a hook or a profiler exists only within its `with` block.
"""

from denizen.perf.watch._blame import RAISED as RAISED
from denizen.perf.watch._compiler import graphs_compiled as graphs_compiled
from denizen.perf.watch._copy_rate import copy_rate as copy_rate
from denizen.perf.watch._counting import Counts as Counts
from denizen.perf.watch._counting import counting as counting
from denizen.perf.watch._event_log import allow as allow
from denizen.perf.watch._gpu_counters import gpu_reader as gpu_reader
from denizen.perf.watch._host import available_cores as available_cores
from denizen.perf.watch._host import free_on_host as free_on_host
from denizen.perf.watch._memory import Allocations as Allocations
from denizen.perf.watch._memory import allocations as allocations
from denizen.perf.watch._memory import clean as clean
from denizen.perf.watch._memory import free as free
from denizen.perf.watch._memory import out_of_memory as out_of_memory
from denizen.perf.watch._memory import peak_bytes as peak_bytes
from denizen.perf.watch._memory import size as size
from denizen.perf.watch._memory import wait as wait
from denizen.perf.watch._memory import without_frames as without_frames
from denizen.perf.watch._operations import SIMULATED as SIMULATED
from denizen.perf.watch._operations import distinct_bytes as distinct_bytes
from denizen.perf.watch._places import PACKAGES as PACKAGES
from denizen.perf.watch._places import STDLIB as STDLIB
from denizen.perf.watch._places import USER as USER
from denizen.perf.watch._places import made_by_dataclass as made_by_dataclass
from denizen.perf.watch._places import role as role
from denizen.perf.watch._places import shown as shown
from denizen.perf.watch._spans import Profile as Profile
from denizen.perf.watch._spans import Span as Span
from denizen.perf.watch._spans import busy as busy
from denizen.perf.watch._spans import clipped as clipped
from denizen.perf.watch._spans import collapsed as collapsed
from denizen.perf.watch._spans import gaps as gaps
from denizen.perf.watch._spans import is_copy as is_copy
from denizen.perf.watch._spans import profiled as profiled
from denizen.perf.watch._spans import repeating as repeating
from denizen.perf.watch._spans import union as union
from denizen.perf.watch._sync import sync_warnings as sync_warnings
from denizen.perf.watch._tf32 import takes_tf32 as takes_tf32
from denizen.perf.watch._tf32 import tf32_switch as tf32_switch
from denizen.perf.watch._timing import Timing as Timing
