"""Reinforcement learning inside worlds that live on the device."""

from denizen.model import Box as Box
from denizen.model import Discrete as Discrete
from denizen.model import Env as Env
from denizen.model import Look as Look
from denizen.rl._worlds import Step as Step
from denizen.rl._worlds import Worlds as Worlds
