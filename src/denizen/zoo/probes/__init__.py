"""Probes, each for one part of a trainer; see README.md."""

from .model import Action as Action
from .model import Both as Both
from .model import Constant as Constant
from .model import Continuous as Continuous
from .model import Cue as Cue
from .model import Delayed as Delayed
from .model import Endless as Endless
from .model import Memory as Memory
from .model import Mortal as Mortal
from .model import ObsValue as ObsValue
from .model import Probe as Probe
from .model import Resets as Resets
from .several import Arms as Arms
from .several import Bandit as Bandit
from .several import Padded as Padded
from .several import Team as Team
