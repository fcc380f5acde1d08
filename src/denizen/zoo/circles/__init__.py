"""Circles; see README.md."""

from denizen.zoo import ModelEntry

from .config import circles as circles
from .model import Circles as Circles
from .model import Dots as Dots

ENTRY = ModelEntry(about="points that settle at a distance from each other", model=Circles, build=circles, steps=200)
