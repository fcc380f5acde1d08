"""Foraging; see README.md."""

from denizen.zoo.foraging.config import for_evaluation as for_evaluation
from denizen.zoo.foraging.config import foraging as foraging
from denizen.zoo.foraging.model import Foraging as Foraging
from denizen.zoo.foraging.model import Plot as Plot
from denizen.zoo.foraging.modes import MODES as MODES
from denizen.zoo.foraging.modes import Interestingness as Interestingness
from denizen.zoo.foraging.modes import Mode as Mode
from denizen.zoo.foraging.modes import Outcome as Outcome
from denizen.zoo.foraging.modes import Pay as Pay
from denizen.zoo.foraging.modes import TrueTypes as TrueTypes
