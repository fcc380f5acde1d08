"""denizen's random numbers and threads in your own numba kernels; needs numba.

- `jit` compiles a function that lets go of the interpreter lock, and caches it.
- `over_ranges(work, total, size)` calls `work(start, stop)` over 0 … total - 1, in several threads where `size` numbers
  make that pay.
- `philox_worlds(keys, first, block, num, step, stream, w0, w1, w2, w3)` writes the words that `dz.rng` draws for the
  ids 4 `block` … 4 `block` + 3 in `num` worlds from `first` on: one uint32 array for each id. `keys` are the worlds'
  keys `[worlds, 2]`, `stream` the number that `dz.rng.stream_number` gives a name.
"""

from denizen.ops._cpu import _jit as jit
from denizen.ops._cpu import over_ranges
from denizen.ops._cpu_draws import _philox_worlds as philox_worlds

__all__ = ["jit", "over_ranges", "philox_worlds"]
