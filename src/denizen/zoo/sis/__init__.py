"""SIS with births and deaths; see README.md."""

from denizen.zoo import ModelEntry

from .config import sis as sis
from .model import SIS as SIS
from .model import People as People

ENTRY = ModelEntry(about="infection without immunity, with births and deaths if set", model=SIS, build=sis, steps=120)
