"""Networks of agents: attention over each agent's own past and over the others, with weights of each agent's own."""

from denizen.nn._config import DotGATConfig as DotGATConfig
from denizen.nn._config import Isolated as Isolated
from denizen.nn._dynamic import DynamicDotGAT as DynamicDotGAT
from denizen.nn._reference import AgentStates as AgentStates
from denizen.nn._reference import DynamicDotGATReference as DynamicDotGATReference
from denizen.nn._social import SmallWorld as SmallWorld
from denizen.nn._social import SocialGraph as SocialGraph
