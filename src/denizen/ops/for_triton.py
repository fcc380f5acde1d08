"""denizen's random numbers in your own Triton kernels; needs Triton.

`one_word(ids, step, stream, k0, k1)` is the word that `dz.rng` draws for each id: uint32 of the shape of `ids`. `step`
is a world's step as uint32, `stream` the number that `dz.rng.stream_number` gives a name, `k0` and `k1` the two halves
of the world's key.
"""

from denizen.ops._cuda_draws import _one_word as one_word

__all__ = ["one_word"]
