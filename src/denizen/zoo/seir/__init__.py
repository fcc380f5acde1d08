"""SEIR; see README.md."""

from denizen.zoo import ModelEntry

from .config import seir as seir
from .events import infections as infections
from .model import SEIR as SEIR
from .model import People as People

ENTRY = ModelEntry(
    about="susceptible, exposed, infected, recovered", model=SEIR, build=seir, steps=160, events={"caught": infections}
)
