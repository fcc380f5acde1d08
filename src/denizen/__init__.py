"""denizen: agents that live on the device. Simulate large populations in plain PyTorch, fit them, train inside them."""

import importlib
import typing

from denizen._version import __version__ as __version__

if typing.TYPE_CHECKING:
    from denizen import disease as disease
    from denizen import errors as errors
    from denizen import fit as fit
    from denizen import model as model
    from denizen import nn as nn
    from denizen import ops as ops
    from denizen import perf as perf
    from denizen import population as population
    from denizen import relax as relax
    from denizen import rl as rl
    from denizen import rng as rng
    from denizen import run as run
    from denizen import space as space
    from denizen import sweeps as sweeps
    from denizen import tools as tools
    from denizen import zoo as zoo
    from denizen.fit import calibrate as calibrate
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
    from denizen.perf import budget as budget
    from denizen.perf import doctor as doctor
    from denizen.rl import GRPO as GRPO
    from denizen.rl import PPO as PPO
    from denizen.rl import train as train
    from denizen.run import simulate as simulate
    from denizen.space import Graph as Graph

# Everything is imported where it is first used: importing torch takes seconds, in which the command line has to answer
# Ctrl-C, and a namespace costs its import only where it is used.
_NAMESPACES = (
    "disease",
    "errors",
    "fit",
    "model",
    "nn",
    "ops",
    "perf",
    "population",
    "relax",
    "rl",
    "rng",
    "run",
    "space",
    "sweeps",
    "tools",
    "zoo",
)
_NAMES = dict.fromkeys(
    ("Env", "Model", "State", "check", "count", "history", "mask", "param", "real", "series", "stage"), "model"
)
_NAMES |= {"GRPO": "rl", "PPO": "rl", "budget": "perf", "doctor": "perf", "train": "rl", "simulate": "run"}
_NAMES |= {"Graph": "space", "calibrate": "fit"}


def __getattr__(name: str) -> typing.Any:
    if name in _NAMESPACES:
        return importlib.import_module(f"denizen.{name}")
    if name in _NAMES:
        found = getattr(importlib.import_module(f"denizen.{_NAMES[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'denizen' has no attribute {name!r}")


def __dir__() -> list[str]:
    dunders = (name for name in globals() if name.startswith("__"))
    return sorted({*dunders, *__all__, *_NAMESPACES})


__all__ = [
    "Env",
    "GRPO",
    "Graph",
    "Model",
    "PPO",
    "State",
    "__version__",
    "budget",
    "calibrate",
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
