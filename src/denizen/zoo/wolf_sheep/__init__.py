"""Wolves, sheep and grass; see README.md."""

from denizen.zoo import ModelEntry

from .config import wolf_sheep as wolf_sheep
from .model import Meadow as Meadow
from .model import WolfSheep as WolfSheep

ENTRY = ModelEntry(about="wolves eat sheep, sheep eat grass, grass grows again", model=WolfSheep, build=wolf_sheep)
