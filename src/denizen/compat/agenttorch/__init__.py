"""The published calls of AgentTorch on denizen's engine; written from a description of its behaviour, without its code.

A script moves by changing two import lines::

    from denizen.compat.agenttorch import DataLoader, Executor, LoadPopulation
    from denizen.compat.agenttorch.models import covid
    from denizen.compat.agenttorch.populations import astoria

docs/guides/agenttorch.md says what differs.
"""

from denizen.compat.agenttorch._loaders import DataLoader as DataLoader
from denizen.compat.agenttorch._loaders import LoadPopulation as LoadPopulation
from denizen.compat.agenttorch._runner import Executor as Executor
from denizen.compat.agenttorch._runner import Runner as Runner
