"""Probes of a trainer, each of one part; see README.md."""

from denizen.zoo.probes.model import Action as Action
from denizen.zoo.probes.model import Both as Both
from denizen.zoo.probes.model import Constant as Constant
from denizen.zoo.probes.model import Continuous as Continuous
from denizen.zoo.probes.model import Cue as Cue
from denizen.zoo.probes.model import Delayed as Delayed
from denizen.zoo.probes.model import Endless as Endless
from denizen.zoo.probes.model import Memory as Memory
from denizen.zoo.probes.model import Mortal as Mortal
from denizen.zoo.probes.model import ObsValue as ObsValue
from denizen.zoo.probes.model import Probe as Probe
from denizen.zoo.probes.model import Resets as Resets
from denizen.zoo.probes.several import Arms as Arms
from denizen.zoo.probes.several import Bandit as Bandit
from denizen.zoo.probes.several import Padded as Padded
from denizen.zoo.probes.several import Team as Team
