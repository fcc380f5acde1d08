"""SIRS with births and deaths; see README.md."""

from denizen.zoo import ModelEntry

from .config import sirs as sirs
from .model import SIRS as SIRS
from .model import People as People

ENTRY = ModelEntry(about="immunity that wanes, with births and deaths if set", model=SIRS, build=sirs, steps=240)
