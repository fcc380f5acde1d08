"""Schelling's segregation; see README.md."""

from denizen.zoo import ModelEntry

from .config import schelling as schelling
from .model import Neighbours as Neighbours
from .model import Schelling as Schelling

ENTRY = ModelEntry(about="Schelling's segregation: mild wishes part a town", model=Schelling, build=schelling, steps=60)
