"""denizen: agents that live on the device. Simulate large populations in plain PyTorch, fit them, train inside them."""

import importlib
import typing

from denizen import model as model
from denizen import population as population
from denizen import relax as relax
from denizen import rng as rng
from denizen import space as space
from denizen import zoo as zoo
from denizen._version import __version__ as __version__
from denizen.model import Env as Env
from denizen.model import Model as Model
from denizen.model import State as State
from denizen.model import check as check
from denizen.model import count as count
from denizen.model import history as history
from denizen.model import mask as mask
from denizen.model import param as param
from denizen.model import real as real
from denizen.model import series as series
from denizen.model import stage as stage
from denizen.run import simulate as simulate
from denizen.space import Graph as Graph

if typing.TYPE_CHECKING:
    from denizen import nn as nn
    from denizen import perf as perf
    from denizen import rl as rl
    from denizen import tools as tools
    from denizen.perf import budget as budget
    from denizen.perf import doctor as doctor
    from denizen.rl import GRPO as GRPO
    from denizen.rl import PPO as PPO
    from denizen.rl import train as train

_LATE = ("nn", "perf", "rl", "tools")  # namespaces that cost their import only where they are used
_LATE_NAMES = {"GRPO": "rl", "PPO": "rl", "budget": "perf", "doctor": "perf", "train": "rl"}  # names from these


def __getattr__(name: str) -> typing.Any:
    if name in _LATE:
        return importlib.import_module(f"denizen.{name}")
    if name in _LATE_NAMES:
        return getattr(importlib.import_module(f"denizen.{_LATE_NAMES[name]}"), name)
    raise AttributeError(f"module 'denizen' has no attribute {name!r}")


__all__ = [
    "Env",
    "GRPO",
    "Graph",
    "Model",
    "PPO",
    "State",
    "__version__",
    "budget",
    "check",
    "count",
    "doctor",
    "history",
    "mask",
    "param",
    "real",
    "series",
    "simulate",
    "stage",
    "train",
]
