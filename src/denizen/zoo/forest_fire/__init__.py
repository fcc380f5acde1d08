"""Forest fire; see README.md."""

from denizen.zoo import ModelEntry

from .config import CRITICAL as CRITICAL
from .config import forest_fire as forest_fire
from .model import Forest as Forest
from .model import ForestFire as ForestFire

ENTRY = ModelEntry(
    about="a fire that spreads from tree to tree, or not", model=ForestFire, build=forest_fire, steps=400
)
