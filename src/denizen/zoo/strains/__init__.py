"""Two strains with cross-immunity; see README.md."""

from denizen.zoo import ModelEntry

from .config import strains as strains
from .model import People as People
from .model import Strains as Strains

ENTRY = ModelEntry(
    about="two strains with cross-immunity that wanes: exclusion or coexistence",
    model=Strains,
    build=strains,
    steps=400,
)
