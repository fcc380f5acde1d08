"""The few operations that denizen brings itself: random words and masks, and sums over neighbours.

Each is a pair, a reference in plain torch (`_philox`, `_threshold`, `_neighbours`) and a fast variant with the same
bits (`_cpu*` with numba, `_cuda*` with Triton); `_library*` register them with torch under vmap, autograd and
compilation.
"""

from denizen.ops._accumulate import add_counts as add_counts
from denizen.ops._accumulate import add_fixed as add_fixed
from denizen.ops._accumulate import add_histogram as add_histogram
from denizen.ops._direction import Traffic as Traffic
from denizen.ops._direction import direction as direction
from denizen.ops._grid import rounded as rounded
from denizen.ops._inductor import fuse_draws as fuse_draws
from denizen.ops._inductor import start_compilers as start_compilers
from denizen.ops._library import draw_mask as draw_mask
from denizen.ops._library import draw_words as draw_words
from denizen.ops._library import reference_only as reference_only
from denizen.ops._library import register_mutating as register_mutating
from denizen.ops._library import sum_counts as sum_counts
from denizen.ops._library import variant as variant
from denizen.ops._library_codes import grow as grow
from denizen.ops._library_codes import in_range as in_range
from denizen.ops._library_tables import histogram as histogram
from denizen.ops._packed import pack as pack
from denizen.ops._reverse_only import lookup as lookup
from denizen.ops._reverse_only import sum_fixed as sum_fixed
from denizen.ops._reverse_only import sum_real as sum_real
from denizen.ops._rounding import FEW as FEW
from denizen.ops._rounding import rounding as rounding
