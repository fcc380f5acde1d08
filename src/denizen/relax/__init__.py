"""Ways to differentiate through 0/1 draws; pass one as `relax=` to `simulate`.

`measure` tells how far each is off for a model; tables for models of the zoo are in docs/guides/gradients.md.
"""

from denizen.relax._measure import Measured as Measured
from denizen.relax._measure import Slope as Slope
from denizen.relax._measure import measure as measure
from denizen.relax._relax import Logistic as Logistic
from denizen.relax._relax import MeanField as MeanField
from denizen.relax._relax import StraightThrough as StraightThrough
from denizen.relax._weigh import OneFlip as OneFlip
from denizen.relax._weigh import ScoreFunction as ScoreFunction
