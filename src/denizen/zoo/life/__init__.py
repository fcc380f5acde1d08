"""The Game of Life; see README.md."""

from denizen.zoo import ModelEntry

from .config import PATTERNS as PATTERNS
from .config import life as life
from .config import placed as placed
from .model import Cells as Cells
from .model import Life as Life

ENTRY = ModelEntry(about="Conway's Game of Life, and rules like it", model=Life, build=life, steps=300)
