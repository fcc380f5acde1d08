"""A model whose file warns."""

import warnings

from denizen.zoo.sir import SIR as SIR

warnings.warn("numba is missing", stacklevel=1)
