"""Ways to differentiate through 0/1 draws; pass one as `relax=` to `simulate`.

Measured bias on the COVID model is in docs/guides/gradients.md.
"""

from denizen.relax._relax import MeanField as MeanField
from denizen.relax._relax import StraightThrough as StraightThrough
