"""Models by name, each as a binding: how to build it on a population, and what AgentTorch calls its parts."""

from denizen.compat.agenttorch.models._binding import Binding as Binding
from denizen.compat.agenttorch.models._binding import Parameter as Parameter
from denizen.compat.agenttorch.models._covid import covid as covid
