"""Sugarscape; see README.md."""

from denizen.zoo import ModelEntry

from .config import sugarscape as sugarscape
from .model import Gatherers as Gatherers
from .model import Sugarscape as Sugarscape

ENTRY = ModelEntry(about="Sugarscape: gatherers on two hills of sugar", model=Sugarscape, build=sugarscape, steps=100)
